"""Networks and losses of the user: found by name, checked before training.

An option such as ``own_centre`` holds ``module:name``. Python callers may pass the class or
function itself; it is then known by that name. A name that was read from a file (a study, a run
folder) imports nothing unless the user has named it too: files must not run code. These names are
kept in the environment variable SECUREVFL_CODE, so that worker processes know it as well.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BeforeValidator

from securevfl.errors import ConfigurationError
from securevfl.models.weights import initialised

if TYPE_CHECKING:
    import torch
    from torch import nn

OPTIONS = ("own_client", "own_centre", "own_loss")  # of protocols: those that name code
ALLOWED = "SECUREVFL_CODE"  # names that the user allows, separated by commas
_FORM = "module:name"
_GIVEN: dict[str, Any] = {}  # by name: classes and functions that Python callers passed
_CLOSE = 1e-4  # of an embedding computed alone to the same one beside other rows


def named(value: Any) -> Any:
    """Name under which another process finds a class or function; a text is returned as is."""
    if isinstance(value, str) or not callable(value):
        return value
    base = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', type(value))}"
    name, number = base, 1
    while _GIVEN.get(name, value) is not value:
        number += 1
        name = f"{base}~{number}"
    _GIVEN[name] = value
    if name == base:
        allow(name)  # a worker process will import it, if it can be imported at all
    return name


OwnCode = Annotated[str, BeforeValidator(named)]


def allow(*names: str) -> None:
    """Permit the import of code under these names, which the user gave."""
    every = dict.fromkeys([*_allowed(), *filter(None, names)])
    if every:
        os.environ[ALLOWED] = ",".join(every)


def allow_options(options: Mapping[str, Any]) -> None:
    """Permit the import of code that these options name, which the user gave."""
    allow(*(name for name in map(options.get, OPTIONS) if isinstance(name, str)))


def refuse_unnamed(options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for an option, read from a file, with code not given by the user.

    The message names the option.
    """
    for what in OPTIONS:
        name = options.get(what)
        if isinstance(name, str) and name and name not in _GIVEN:
            _refuse_unnamed(name, what)


def _allowed() -> list[str]:
    return [name for name in os.environ.get(ALLOWED, "").split(",") if name]


def _refuse_unnamed(name: str, what: str) -> None:
    if name not in _allowed():
        raise ConfigurationError(
            f"{what} = {name!r} was read from a file, and files must not name code to be run; if "
            f"you trust it, name it yourself (code= in Python, --code on the command line)"
        )


def found(name: str, what: str) -> Any:
    """Class or function with a given name.

    ConfigurationError when the name is not of the form ``module:name``, does not exist, or is in a
    file only and was not given by the user.
    """
    if name in _GIVEN:
        return _GIVEN[name]
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ConfigurationError(f"{what} = {name!r} is not of the form {_FORM}")
    _refuse_unnamed(name, what)
    try:
        value: Any = _imported(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"{what} = {name!r} cannot be imported: {error}; write {_FORM}, with a module that "
            "Python finds (here, or on PYTHONPATH)"
        ) from None
    if not callable(value):
        raise ConfigurationError(f"{what} = {name!r} is {value!r}, no class and no function")
    return value


def _imported(module: str) -> Any:
    """Imported module, also from the working folder, as with ``python -m``."""
    here = str(Path.cwd())
    known = here in sys.path
    if not known:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    finally:
        if not known:
            sys.path.remove(here)


def own_network(
    name: str, what: str, inputs: int, outputs: int, seed: int | np.random.Generator
) -> nn.Module:
    """A torch module of the user's code, weights drawn from `seed`, from inputs to outputs.

    Parameters
    ----------
    name : str
        Name of a class or function that is called with the two widths.
    what : str
        The option, for messages.
    inputs, outputs : int
        Widths of the module's input and output.
    seed : int or numpy Generator
        Source of the initial weights; torch's global state is not touched.

    Raises
    ------
    ConfigurationError
        When nothing has that name, or it makes no module, one of other widths, or one without
        trained weights.
    """
    from torch import nn

    make = found(name, what)
    try:
        module = initialised(lambda: make(inputs, outputs), seed)
    except Exception as error:
        raise ConfigurationError(
            f"{what} = {name!r}: {make!r} was called with the widths {inputs} and {outputs} of "
            f"what it takes in and gives, and failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigurationError(
            f"{what} = {name!r} made {type(module).__name__}, and a torch.nn.Module is needed"
        )
    if not any(p.requires_grad for p in module.parameters()):
        raise ConfigurationError(f"{what} = {name!r} has no weights that could be trained")
    _check_widths(module, f"{what} = {name!r}", inputs, outputs)
    return module


def _check_widths(module: nn.Module, what: str, inputs: int, outputs: int) -> None:
    import torch

    rows = torch.linspace(0, 1, 3 * inputs).reshape(3, inputs)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            given = module(rows)
    except Exception as error:
        raise ConfigurationError(
            f"{what} failed on 3 rows of {inputs} numbers: {type(error).__name__}: {error}"
        ) from error
    module.load_state_dict(before)  # running statistics must not have seen these rows
    shape = tuple(getattr(given, "shape", ()))
    if shape != (3, outputs) or not given.is_floating_point():
        kind = getattr(given, "dtype", type(given).__name__)
        raise ConfigurationError(
            f"{what} gave {kind} of shape {shape} for 3 rows of {inputs} numbers; float32 of shape "
            f"(3, {outputs}) is needed"
        )


def check_rows_apart(module: nn.Module, what: str, inputs: int) -> None:
    """Raise ConfigurationError for a client network that mixes rows or is random.

    That is when a row's embedding depends on other rows, or differs between calls: batches or a
    resumed run would then change results.
    """
    import torch

    rows = torch.linspace(0, 1, 3 * inputs).reshape(3, inputs)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = torch.get_rng_state()
            together = module(rows)
            apart = torch.cat([module(row[None]) for row in rows])
            drew = not torch.equal(before, torch.get_rng_state())
    except Exception as error:
        raise ConfigurationError(
            f"{what} failed on a single row: {type(error).__name__}: {error}; a client's network "
            "must compute each row for itself"
        ) from error
    if drew:  # whatever rate of dropout: three rows need not show it
        raise ConfigurationError(
            f"{what} draws from torch's generator for each batch, which is not of the client's "
            "own entropy and differs in a resumed run; leave out dropout and noise"
        )
    if not torch.allclose(together, apart, atol=_CLOSE, rtol=_CLOSE):
        raise ConfigurationError(
            f"{what} gives other embeddings for rows together than for each alone; leave out "
            "normalisation over the batch"
        )


def own_loss(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A loss of the user's: of raw scores, (rows, outputs), and labels, (rows,), a single number.

    ConfigurationError if there is none of that name, or, when it is used, its result is anything
    else.
    """
    loss = found(name, "own_loss")

    def checked(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        try:
            value: Any = loss(scores, labels)
        except Exception as error:
            raise ConfigurationError(
                f"own_loss = {name!r} failed on scores of shape {tuple(scores.shape)} and labels "
                f"of shape {tuple(labels.shape)} ({labels.dtype}): {type(error).__name__}: {error}"
            ) from error
        shape = tuple(getattr(value, "shape", (None,)))
        if shape != () or not value.requires_grad:
            raise ConfigurationError(
                f"own_loss = {name!r} gave {type(value).__name__} of shape {shape}; one number "
                "that gradients can be taken of is needed: the mean over the rows"
            )
        return value  # type: ignore[no-any-return]

    return checked
