"""Claims proved by construction: a coalition's view is simulated from its inputs and outputs.

**A first program.** A run is written with the parties of a `World`; `decide` judges whether a
coalition learns more than the declared outputs. Party `SERVER` is -1, clients count from 0::

    import numpy as np
    from securevfl.verified import SERVER, FlowError, World, decide

    world = World(2**31 - 1)                       # p; any prime below 2^62, 2 and 3 included
    alice, bob, server = world.party(0), world.party(1), world.party(SERVER)
    x = world.secret(0, "x", (4, 2))               # an input of party 0: 4 x 2 random elements
    y = world.secret(1, "y", np.ones((4, 2), int))  # or the numbers themselves

    mask = alice.uniform(4, 2)                     # a tape: fresh uniform elements
    got = alice.send(1, "mask", mask)              # what bob has now: use this, not `mask`
    alice.send(SERVER, "up", x + mask)
    bob.send(SERVER, "up", y - got)

    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])  # declared, apart from parties

    decide(world, {SERVER}).verdict                # "PROVED"
    print(decide(world, {SERVER, 1}).scope)        # never a bare "PROVED" for readers

**Values.** `world.secret(owner, name, shape_or_numbers, real=False)`. An `Element` (field array)
has ``a + b``, ``a - b``, ``-a``, ``3 * a``, `times`, public integer arrays on either side of ``+ -
*``, public integer matrices on either side of ``@``, ``a @ b`` of two Elements, ``a * b`` (opaque),
slices and fancy indices (public ones), `rows`, ``.T``, `reshape`, `sum`, and the functions
`concatenate`, `stack` and `combination`. A `Secret` (``real=True``) has `map` and `clip`.
``a.map(f, *others, shape=..., real=False)`` runs any pure function of a module on the numbers: a
proof treats it as an unknown function of all arguments. Protected arguments are passed one by one,
not in lists. Conversion of a protected value to a boolean, number, array or text is a `FlowError`.

**What a party can do**: `uniform`, `key`, ``prf(key, label, *shape)``, `public_key`,
``agree(own_key, their_public_key)``, ``split_key(key, threshold, points)`` and `join_key` (Shamir),
``encrypt(x, holder)``, ``decrypt(c)`` (sums of ciphertexts with ``+``), ``gaussian(x.clip(C),
sigma)``, ``send(to, kind, payload)`` and ``record(event, payload)``. Payloads are values, public
numbers, texts and arrays, and tuples, lists, dictionaries and dataclasses of these. `send` returns
the value that the receiver gets. A party may compute only with its own and received values: values
of two parties in one operation are a `FlowError`. ``world.round`` may be set to number the rounds.

**Outputs** are functions of inputs, declared with ``world.output(name, world.spec(...), to=[])``;
`world.spec` returns a value without an owner, for outputs only. If a linear combination of outputs
depends on one honest party alone, the verdict is at best NOT PROVED. What functions of several
parties' inputs tell, alone or with another output, is listed in `judge`, for the reader to judge.

**Verdicts**: "PROVED" (a certificate was found, and a checker with its own algebra accepted it),
"DP" (the same, except for values released with noise, which are counted), "NOT PROVED" (with the
messages for which no proof was found), "VIOLATED" (two inputs with equal outputs and different
messages were found by running the functions). A verdict holds for the traced batches, shapes and
run. ``count(world, {SERVER})`` counts a program of small p and few entries over all of its inputs
and draws, and names two inputs that leak. `docs/proof.md` has the argument.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from securevfl.verified.chance import Chance
from securevfl.verified.functions import FlowError
from securevfl.verified.participants import Participant, Provable, Streams, bare_of
from securevfl.verified.parties import Party, World
from securevfl.verified.schedules import UNDISTURBED, Schedule, usual
from securevfl.verified.trace import SERVER
from securevfl.verified.values import (
    Element,
    Key,
    Model,
    Protected,
    Secret,
    combination,
    concatenate,
    picked,
    stack,
)

if TYPE_CHECKING:
    from securevfl.verified.counting import Counted, count
    from securevfl.verified.verdicts import Judge, Verdict, decide

__all__ = [
    "SERVER",
    "UNDISTURBED",
    "Chance",
    "Counted",
    "Element",
    "FlowError",
    "Judge",
    "Key",
    "Model",
    "Participant",
    "Party",
    "Protected",
    "Provable",
    "Schedule",
    "Secret",
    "Streams",
    "Verdict",
    "World",
    "bare_of",
    "combination",
    "concatenate",
    "count",
    "decide",
    "picked",
    "stack",
    "usual",
]


_LATER = {
    **dict.fromkeys(("Judge", "Verdict", "decide"), "verdicts"),
    **dict.fromkeys(("Counted", "count"), "counting"),
}


def __getattr__(name: str) -> Any:
    """Name of the search for proofs, imported on first use; AttributeError for any other name."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
