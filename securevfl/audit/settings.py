"""Settings in which a configuration is run besides as it is: late, crashed, wrong, resumed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from securevfl.audit.followed_runs import Setting
from securevfl.engine.conditions import Conditions
from securevfl.engine.delays import Delay
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.protocols.base.protocol import Protocol

_RESUMED_IN = 4  # round in which a run is broken off
_PREDICTED = 4500  # rows of a coded prediction: a server asks for some 4096 of them at once
_PATIENCE = 3.0  # seconds of timeouts where the configuration has none


@dataclass(frozen=True)
class _Late(Conditions):
    """Some messages come late, and all others at once.

    Attributes
    ----------
    nanoseconds : int
    messages : frozenset of (int, int, str)
        Round, party and activity of each.
    """

    nanoseconds: int = 0
    messages: frozenset[tuple[int, int, str]] = frozenset()

    def delay(self, seed: int, party: int, round: int, activity: str) -> int:
        """The delay of a message."""
        return self.nanoseconds if (round, party, activity) in self.messages else 0


def settings_of(protocol: Protocol) -> Iterator[Setting]:
    """Settings that may change what a protocol sends.

    Timeouts that the configuration does not have are set where somebody is late or down
    (`Protocol.fault_options`): without them a run waits.
    """
    yield Setting("resumed", resumed_in=_RESUMED_IN)
    if _has(protocol, "secure") and not protocol.config.secure:
        yield Setting("coded inference", {"secure": True})
    timed = _with_timeouts(protocol)
    if timed is None:
        yield Setting("clients late", conditions=_delays(protocol, 1.0))
        if protocol.card.absence != "waits":  # else the first crash ends the run
            yield from _faults(protocol, {})
    else:
        options, timeout = timed
        again = _has(protocol, "max_attempts")  # else a run ends where too few are in time
        often = options | ({"max_attempts": 50} if again else {})
        late = timeout if again else timeout / 2
        yield Setting("clients late", often, _delays(protocol, timeout / 3))
        yield Setting("attempts given up", often, _delays(protocol, late))
        late = 3 * timeout if again else late
        yield Setting("results late", often, _delays(protocol, late, share_factor=0.1))
        yield from _faults(protocol, often)
        yield from _scripted(protocol, often, timeout)
    if _has(protocol, "tolerate_corrupt"):
        wrong = max(1, int(protocol.config.tolerate_corrupt))
        options = {"tolerate_corrupt": wrong} | ({} if timed is None else timed[0])
        yield Setting("wrong uploads", options, wrong_uploads=wrong)
    if protocol.prediction_messages:
        yield Setting("coded prediction", predicts=_PREDICTED)
        if timed is not None:
            conditions = _delays(protocol, late, share_factor=0.1)
            words = "coded prediction, results late"
            yield Setting(words, often, conditions, predicts=_PREDICTED)


def _faults(protocol: Protocol, often: dict[str, Any]) -> Iterator[Setting]:
    """Crashes of each role that can have them, and lost messages."""
    crashes = Faults({"client": Chain(0.15, 0.5)}, first=3)
    yield Setting("clients crash", often, faults=crashes)
    crashes = Faults({"client": Chain(0.5, 0.9)}, first=2)
    yield Setting("clients crash again and again", often, faults=crashes)
    if hides_columns(protocol):  # formulas of others may need that rounds follow one another
        crashes = Faults({"server": Chain(0.3, 0.9)}, first=3)
        yield Setting("server crashes", often, faults=crashes)
    if hosts := protocol.roles().get("host"):
        lost = Outage(hosts[-1], rounds=(3, math.inf))
        crashes = Faults({"host": Chain(0.3, 0.9)}, first=3, outages=(lost,))
        yield Setting("hosts crash, one for good", often, faults=crashes)
    yield Setting("messages lost", often, faults=Faults({"link": Chain(0.02, 0.7)}, first=3))


def _scripted(protocol: Protocol, often: dict[str, Any], timeout: float) -> Iterator[Setting]:
    """Attempts on the same rows that chance seldom makes, where sums have sharers in time.

    In the first setting half of the clients upload too late to a sum, and the others are down then:
    if no client or server remembers, the others upload to a sum of other models. In the second as
    few clients share in time as no sum may have.
    """
    if not (_has(protocol, "share_timeout") and _has(protocol, "result_timeout")):
        return
    clients = protocol.peers()
    options = often | {"share_timeout": timeout, "result_timeout": timeout}
    if _has(protocol, "batch"):
        options["batch"] = protocol.data.rows  # each attempt asks for the same rows again
    late = round(1.5e9 * timeout)
    down = tuple(
        Outage(n, seconds=(0.5 * timeout, 1.5 * timeout)) for n in clients[len(clients) // 2 :]
    )
    messages = {(1, n, "upload") for n in clients} | {(1, 1, "share"), (2, 0, "share")}
    conditions = _Late("late", nanoseconds=late, messages=frozenset(messages))
    yield Setting("uploads late, others down", options, conditions, Faults(outages=down))
    few = int(getattr(protocol.config, "privacy", 1) or 0) + 1
    messages = {(1, n, "share") for n in clients[few:]} | {(2, n, "share") for n in clients[:-few]}
    conditions = _Late("late", nanoseconds=late, messages=frozenset(messages))
    yield Setting("few share in time", options, conditions)


def hides_columns(protocol: Protocol) -> bool:
    """Whether masks or ciphertexts are claimed to hide columns."""
    hidden = ("perfect", "computational")
    return any(one.strength in hidden for one in protocol.claims if one.asset == "features")


def _with_timeouts(protocol: Protocol) -> tuple[dict[str, Any], float] | None:
    """Options that end waiting, where the configuration has none, and the shortest timeout."""
    config = protocol.config
    fields = type(config).model_fields
    options: dict[str, Any] = {}
    for name, value in protocol.fault_options.items():
        if getattr(config, name) == fields[name].default:
            timeout = name.endswith("timeout") or name == "patience"
            options[name] = _PATIENCE if timeout else value
    names = [n for n in protocol.fault_options if n.endswith("timeout") or n == "patience"]
    if not names:
        return None
    return options, min(float(options.get(n, getattr(config, n, None)) or _PATIENCE) for n in names)


def _delays(protocol: Protocol, mean: float, *, share_factor: float = 1.0) -> Conditions:
    return Conditions("late", (Delay(mean),) * len(protocol.peers()), share_factor=share_factor)


def _has(protocol: Protocol, option: str) -> bool:
    return option in type(protocol.config).model_fields
