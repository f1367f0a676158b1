"""Code of a protocol that is not the library's: what it defines, and what it is held against.

Verifiers recompute messages by the formulas that a protocol declares, and judge the claims that it
makes. A class that errs in these and in its parties alike agrees with itself, so no verdict on code
of others endorses.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from securevfl.protocols.base.protocol import Protocol

# What a class may define without a change of what is specified: how its parties are made.
_PARTIES = frozenset({"parties", "party", "client", "server", "name", "card", "apart", "twin"})
_OURS, _EXAMPLES = "securevfl.", "securevfl.testing."  # leaks among them


def own_code(protocol: Protocol) -> list[str]:
    """Names of all that classes outside the library define for a protocol; empty for none."""
    return sorted(f"{cls.__name__}.{name}" for cls, name in _defined(protocol))


def own_parts(protocol: Protocol) -> list[str]:
    """Names of what a protocol is held against and that is not the library's; empty for none."""
    found = {f"{cls.__name__}.{name}" for cls, name in _defined(protocol) if name not in _PARTIES}
    return sorted(found | {*_formulas(protocol)} | {*_unlike_options(protocol)})


def _defined(protocol: Protocol) -> Iterator[tuple[type, str]]:
    for cls in type(protocol).__mro__:
        if not _is_ours(cls.__module__):
            yield from ((cls, name) for name in vars(cls) if _counts(name))


def _is_ours(module: str) -> bool:
    ours = module.startswith(_OURS) and not module.startswith(_EXAMPLES)
    return ours or module in ("builtins", "abc", "typing")


def _counts(name: str) -> bool:
    """Whether a name of a class is more than what Python puts there, or words."""
    by_python = name.startswith("__") and name.endswith("__") and name != "__init__"
    return not (by_python or name == "_abc_impl")


def _formulas(protocol: Protocol) -> Iterator[str]:
    for spec in protocol.messages:
        for formula in (spec.recompute, spec.shape, spec.count):
            while isinstance(formula, functools.partial):
                formula = formula.func
            if formula is not None and not _is_ours(getattr(formula, "__module__", "") or ""):
                yield f"the formula of {spec.kind!r}"


def _unlike_options(protocol: Protocol) -> Iterator[str]:
    """Parameters of a code that are not those that the options ask for."""
    code = getattr(getattr(protocol, "public", None), "code", None)
    if code is None:
        return
    asked = {"privacy": code.privacy, "segments": code.segments, "prime": code.field.modulus}
    for option, found in asked.items():
        wanted = getattr(protocol.config, option, None)
        if wanted is not None and wanted != found:
            yield f"the code's {option} = {found}, where {wanted} is asked for"
