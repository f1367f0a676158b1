"""The cases of the golden record: runs of six rounds on digits, one for each thing to be kept.

A case is a `Case` under a name such as ``split/stragglers=skip``: a protocol, what differs from
the small options below, and the circumstances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import networks

ROUNDS = 6
# Sizes of all cases, as far as the protocol has the option. Neither rows nor columns divide evenly.
SMALL = {"rounds": ROUNDS, "batch": 15, "width": 6, "hidden": 6}
# Cheap settings of protocols whose defaults train for long, or whose noise comes from nowhere.
OWN: dict[str, dict[str, Any]] = {
    # Histories of these bits, and of the defaults before a budget of sums chose others.
    "fedvs": {"prime": 2**61 - 1, "data_bits": 20, "model_bits": 24, "paper": True},
    "coded_split": {"degree": 2, "lr_decay": "none", "sum_budget": 0.0},
    "secagg_split": {"cohorts": 0},  # histories of any survivors
    "wait_dp": {"noise": "seeded"},
    "multivfl": {"samples": 15, "noise": "seeded"},
    "dvfl": {"guest_epochs": 2, "host_epochs": 2, "hosts": 2, "interval": 1.0, "width": 6}
    | {"host_width": 8},
    "ssl_local": {"pretrain_epochs": 1, "pretrain_batch": 32},
    "fedhssl": {"pretrain_epochs": 1, "pretrain_batch": 32},
    "vflhlp": {"pretrain_epochs": 1, "pretrain_batch": 32},
}
PATIENT = {"share_timeout": 1.0, "result_timeout": 1.0, "cohorts": 0}
PRETRAINED = {"pretrain_epochs": 1, "pretrain_batch": 32}
P31 = 2**31 - 1


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes
    ----------
    protocol : str
    options : mapping
        Of the protocol, over `SMALL` and `OWN`.
    data : {"even", "few", "strips"}
        5 parties; 4 with few aligned rows; 4 with strips of images.
    conditions, faults
        As `securevfl.run` takes them.
    sealed : bool
    until : float or None
    resumed : int
        Interrupt the run at so many looks at the clock, and resume it; 0 for never.
    count : mapping
        Events that the run must have, with their least number, lest it show nothing.
    """

    protocol: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = "even"
    conditions: Any = "paper"
    faults: Any = None
    sealed: bool = True
    until: float | None = None
    resumed: int = 0
    count: Mapping[str, int] = field(default_factory=dict)


def late(*slow: int, parties: int = 5, seconds: float = 3.0) -> dict[str, Any]:
    """Conditions in which some clients are always late, with shares as with uploads."""
    shift = [seconds if n in slow else 0.01 * (n + 1) for n in range(parties)]
    return {"upload_mean": [0.0] * parties, "upload_shift": shift, "share_factor": 1.0}


SLOW_UPLINKS = {
    "upload_mean": 0.05,
    "upload_shift": [0.0, 0.01, 0.02, 0.03, 0.04],
    "bandwidth": 1e6,
    "uplinks": [1e5, 2e5, 1e5, 5e4, 1e5],
}
MODELLED = {
    "upload_mean": 0.05,
    "upload_shift": 0.0,
    "compute": "modelled",
    "seconds_per_multiply_add": 1e-7,
}
CHAINS = {"client": {"fault": 0.2, "rejoin": 0.6}, "first": 2, "tick": 0.5}
LOSSES = {"lost": 1}
LINKS = {
    "fedvs": {"link": {"fault": 0.1, "rejoin": 0.7}, "tick": 0.5},
    "split": {"link": {"fault": 0.3, "rejoin": 0.7}, "tick": 0.5},
    "coded_split": {"link": {"fault": 0.1, "rejoin": 0.7}, "first": 2, "tick": 0.5},
}


def away(party: int, *rounds: int) -> dict[str, Any]:
    """Faults by script: a client that is down for some rounds."""
    return {"outage": [{"party": party, "rounds": list(rounds)}]}


def _defaults(protocols: tuple[str, ...]) -> dict[str, Case]:
    few = {"local", "ssl_local", "fedhssl", "vflhlp"}
    return {name: Case(name, data="few" if name in few else "even") for name in protocols}


def _each(protocol: str, option: str, values: tuple[Any, ...], **more: Any) -> dict[str, Case]:
    others = more.pop("options", {})
    return {
        f"{protocol}/{option}={value}": Case(protocol, {option: value, **others}, **more)
        for value in values
    }


def _fedvs() -> dict[str, Case]:
    made = {
        "plain": Case("fedvs", {"masked": False}),
        "secure": Case("fedvs", {"secure": True}),
        "secure,plain": Case("fedvs", {"secure": True, "masked": False}),
        "segments=1": Case("fedvs", {"segments": 1}),
        "tolerate_corrupt=1": Case("fedvs", {"tolerate_corrupt": 1, "segments": 1}, data="wide"),
        "late": Case("fedvs", PATIENT, conditions=late(1)),
        "late,plain": Case("fedvs", {"masked": False, **PATIENT}, conditions=late(1)),
        "away": Case("fedvs", PATIENT, conditions="none", faults=away(1, 2, 4)),
        "away,secure": Case(
            "fedvs", {**PATIENT, "secure": True}, conditions="none", faults=away(1, 2, 4)
        ),
        "given_up": Case(
            "fedvs",
            {"max_attempts": 6, **PATIENT},
            conditions="none",
            faults={"outage": [{"party": n, "rounds": [2, 3]} for n in (1, 2, 3)]},
            count={"given_up": 1},
        ),
        "segments=2": Case("fedvs", {"segments": 2}),
        "privacy=2": Case("fedvs", {"segments": 1, "privacy": 2}),
        "pretrain=p": Case("fedvs", {"pretrain": "p", **PRETRAINED}),
        "pretrain=full": Case("fedvs", {"pretrain": "full", **PRETRAINED}),
        "prime=2^31-1": Case(
            "fedvs", {"prime": P31, "data_bits": 8, "model_bits": 9, "weight_bound": 2.0}
        ),
        "degree=1": Case("fedvs", {"degree": 1}),
        "own_centre": Case("fedvs", {"own_centre": networks.centre, "own_loss": networks.loss}),
    }
    return {f"fedvs/{name}": case for name, case in made.items()}


def _split() -> dict[str, Case]:
    own = {
        "own_client": networks.Tower,
        "own_centre": networks.centre,
        "own_loss": networks.loss,
    }
    return (
        _each(
            "split",
            "stragglers",
            ("zeros", "buffer", "mean"),
            options={"timeout": 0.5},
            conditions=late(1, 3),
        )
        | {
            "split/stragglers=ignore": Case(
                "split", {"stragglers": "ignore", "quorum": 2}, conditions=late(1, 3)
            ),
            "split/stragglers=skip": Case(
                "split",
                {"stragglers": "skip", "timeout": 0.1},
                conditions={"upload_mean": 0.04, "upload_shift": 0.0},
                count={"skipped": 1},
            ),
        }
        | {"split/stragglers=wait": Case("split", {"stragglers": "wait"}, conditions=late(1, 3))}
        | _each("split", "aggregation", ("mean", "concat", "max"))
        | _each("split", "client", ("pn", "mlp"))
        | _each("split", "client", ("cnn", "strided_cnn"), data="strips")
        | _each("split", "optimizer", ("sgd", "adam"))
        | _each("split", "centre", ("linear",))
        | _each("split", "inference", ("all",))
        | {
            "split/quantized": Case(
                "split", {"quantized": True, "data_bits": 20, "model_bits": 24}
            ),
            "split/segments=2": Case("split", {"segments": 2}),
            "split/own": Case("split", own),
            "split/lr_decay=linear": Case("split", {"lr_decay": "linear"}),
        }
    )


def _others() -> dict[str, Case]:
    few: dict[str, Any] = {"data": "few"}
    return (
        _each("wait_dp", "noise_on", ("embeddings", "gradients", "both"))
        | _each("wait_dp", "noise_on", ("none",), options={"label_epsilon": 1.0})
        | {"wait_dp/label_epsilon": Case("wait_dp", {"label_epsilon": 1.0})}
        | _each("cvfl", "mode", ("async", "sync", "single"))
        | _each("multivfl", "server_optimizer", ("fedavg", "fedadam", "fedyogi", "feddemonadam_t2"))
        | {
            "multivfl/intersection=psi": Case("multivfl", {"intersection": "psi"}),
            "multivfl/epsilon": Case("multivfl", {"epsilon": 5.0}),
        }
        | _each("fedonce", "objective", ("nat", "autoencoder"), options={"local_rounds": 4})
        | _each("dvfl", "objective", ("autoencoder", "simclr"))
        | _each("he_split", "scheme", ("ckks", "paillier"), options={"width": 2, "batch": 5})
        | _each("fedhssl", "method", ("simsiam", "byol", "moco"), **few)
        | _each("ssl_local", "method", ("simsiam", "byol", "moco", "scarf"), **few)
        | _each("vflhlp", "variant", ("full", "a", "p", "none"), **few)
        | _each("local", "rows", ("all", "aligned"), **few)
        | _each("vfb2", "threads", (1,))
        | {
            "secagg_split/consistency": Case("secagg_split", {"consistency": True}),
            "secagg_split/late": Case("secagg_split", PATIENT, conditions=late(1)),
            "vafl/timeout": Case("vafl", {"timeout": 0.5}, conditions=late(1, 3)),
        }
    )


def _circumstances() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for name in ("fedvs", "split", "vafl", "dvfl", "cvfl", "secagg_split", "vfb2"):
        made |= {
            f"{name}/conditions=none": Case(name, conditions="none"),
            f"{name}/conditions=slow uplinks": Case(name, conditions=SLOW_UPLINKS),
            f"{name}/sealed=false": Case(name, conditions=SLOW_UPLINKS, sealed=False),
        }
    resumed = ("fedvs", "split", "dvfl", "multivfl", "wait_dp", "fedonce", "secagg_split")
    for name in (*resumed, "coded_split"):
        made[f"{name}/resumed"] = Case(name, resumed=40)
    made["vafl/resumed"] = Case("vafl", {"rounds": 20}, resumed=10, conditions=SLOW_UPLINKS)
    patient = {
        "fedvs": {"max_attempts": 9, **PATIENT},
        "split": {"stragglers": "zeros", "timeout": 0.5},
        "coded_split": {"ask_timeout": 1.0, "rounds": 12},
    }
    for name, options in patient.items():
        quick: dict[str, Any] = {"conditions": {"upload_mean": 0.05, "upload_shift": 0.0}}
        made |= {
            f"{name}/computing=modelled": Case(name, conditions=MODELLED),
            f"{name}/faults=chains": Case(name, options, faults=CHAINS, count={"down": 1}, **quick),
            f"{name}/faults=links": Case(name, options, faults=LINKS[name], count=LOSSES, **quick),
            f"{name}/faults=script": Case(
                name, options, faults=away(2, 2, 4), count={"down": 1}, **quick
            ),
            f"{name}/until": Case(name, {"rounds": 50}, until=20.0),
            f"{name}/faults=chains,resumed": Case(
                name, options, faults=CHAINS, resumed=12, **quick
            ),
        }
    made["dvfl/faults=chains"] = Case(
        "dvfl", faults={"guest": CHAINS["client"]} | {"tick": 0.5}, count={"down": 1}
    )
    return made


def cases(protocols: tuple[str, ...]) -> dict[str, Case]:
    """Every case by its name; `protocols` are those that the library has."""
    return _defaults(protocols) | _fedvs() | _split() | _others() | _circumstances()
