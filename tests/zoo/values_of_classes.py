"""Leaks by values that a party's class or parameters have: what is stored, and for how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from securevfl.field import LagrangeCode
from securevfl.field.prss import Prss
from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import every
from tests.zoo.fedvs_masks import UPLOADS
from tests.zoo.planting import planted


def _with(**attributes: Any) -> Callable[[Any], None]:
    """Plant that gives a party's class other values, and no function."""

    def plant(client: Any) -> None:
        kind = type(client)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        client.__class__ = type(kind.__name__, (kind,), {**names, **attributes})

    return plant


def _keys_of_one(client: Any) -> None:
    """With T = 2 the keys of masks are those for one colluder."""
    code = client.public.code
    one = LagrangeCode(code.field, parties=code.parties, segments=code.segments + 1, privacy=1,
                       alphas=code.alphas, betas=code.betas)  # fmt: skip
    vars(client.public)["prss"] = Prss(one, degree=2)


# -- seeing them ---------------------------------------------------------------------------------


def _nothing_ahead(outcome: Outcome) -> bool:
    """Whether a client writes nothing down before an upload leaves."""
    return not outcome.parties[0].kept_ahead


def _fewer_keys(outcome: Outcome) -> bool:
    public: Any = outcome.protocol.public  # type: ignore[attr-defined]
    return bool(public.prss.code.privacy < public.config.privacy)


LEAKS = (
    planted("fedvs", "nothing written ahead", "states that are not kept",
            "A crash makes a client forget that it uploaded, and masks are used again.",
            every(_with(kept_ahead=())), UPLOADS, _nothing_ahead),
    planted("fedvs", "T=2: keys for one colluder", "less than is asked for",
            "With privacy = 2 keys of masks are dealt as for T = 1.", every(_keys_of_one),
            (("server + T clients", "features"),), _fewer_keys, {"privacy": 2, "segments": 1}),
)  # fmt: skip
