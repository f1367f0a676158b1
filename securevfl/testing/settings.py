"""Settings in which a protocol is run besides the plain one: late, crashed or wrong parties."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.delays import Delay
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.protocol import Protocol

_PATIENCE = 3.0  # seconds of timeouts where the configuration has none


@dataclass(frozen=True)
class Setting:
    """Changes of options and conditions under which a configuration is run again.

    Attributes
    ----------
    name : str
        Name in reports.
    options : mapping
        Options that differ from the configuration's.
    conditions : Conditions
        Delays and bandwidth.
    faults : Faults or None
        Crashes and lost messages.
    wrong_uploads : int
        Number of clients, from the first, whose uploads are replaced by random elements. Without
        delays the first ones' uploads are among those that are decoded.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    conditions: Conditions = NONE
    faults: Faults | None = None
    wrong_uploads: int = 0


@dataclass(frozen=True)
class _Late(Conditions):
    """Conditions under which listed messages are late and all others arrive at once.

    Attributes
    ----------
    nanoseconds : int
        Delay of a late message.
    messages : frozenset of (int, int, str)
        Round, party and activity of each.
    """

    nanoseconds: int = 0
    messages: frozenset[tuple[int, int, str]] = frozenset()

    def delay(self, seed: int, party: int, round: int, activity: str) -> int:
        """Delay in nanoseconds: that given for a (round, party, activity) in `messages`, else 0."""
        return self.nanoseconds if (round, party, activity) in self.messages else 0


def settings_of(protocol: Protocol) -> Iterator[Setting]:
    """Settings under which a protocol may send other messages.

    Timeouts that the configuration does not have are set where somebody is late or down
    (`Protocol.fault_options`): without them a run waits.
    """
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


def _faults(protocol: Protocol, often: dict[str, Any]) -> Iterator[Setting]:
    """Settings with crashes of each role that can crash, and with lost messages."""
    crashes = Faults({"client": Chain(0.15, 0.5)}, first=3)
    yield Setting("clients crash", often, faults=crashes)
    crashes = Faults({"client": Chain(0.5, 0.9)}, first=2)
    yield Setting("clients crash again and again", often, faults=crashes)
    if _hides_columns(protocol):
        crashes = Faults({"server": Chain(0.3, 0.9)}, first=3)
        yield Setting("server crashes", often, faults=crashes)
    if hosts := protocol.roles().get("host"):
        lost = Outage(hosts[-1], rounds=(3, math.inf))
        crashes = Faults({"host": Chain(0.3, 0.9)}, first=3, outages=(lost,))
        yield Setting("hosts crash, one for good", often, faults=crashes)
    yield Setting("messages lost", often, faults=Faults({"link": Chain(0.02, 0.7)}, first=3))


def _scripted(protocol: Protocol, often: dict[str, Any], timeout: float) -> Iterator[Setting]:
    """Settings in which a sum is asked for again on the same rows, by share and result timeouts.

    Uploads to the first sum are late. Half of the clients do not upload then, because they are down
    or lack a share, and could upload to a sum of other models: all must remember who uploaded. In
    the third setting only T + 1 clients share in time, fewer than a sum needs. In the last, uploads
    to ten sums are late, all clients crash after the second and restart, and K + T - 1 are then
    down. The others must tell the server of the first sum, or it would ask for its rows again.
    """
    if not (_has(protocol, "share_timeout") and _has(protocol, "result_timeout")):
        return
    clients = protocol.peers()
    half = clients[len(clients) // 2 :]
    options = often | {"share_timeout": timeout, "result_timeout": timeout}
    # Each attempt asks for the same rows again.
    same = options | ({"batch": protocol.data.rows} if _has(protocol, "batch") else {})

    def late(*messages: Iterable[tuple[int, int, str]]) -> Conditions:
        every = frozenset(one for some in messages for one in some)
        return _Late("late", nanoseconds=round(1.5e9 * timeout), messages=every)

    def down(some: Iterable[int], begin: float, end: float) -> tuple[Outage, ...]:
        return tuple(Outage(n, seconds=(begin * timeout, end * timeout)) for n in some)

    uploads = late(((1, n, "upload") for n in clients), ((1, 1, "share"), (2, 0, "share")))
    faults = Faults(outages=down(half, 0.5, 1.5))
    yield Setting("uploads late, others down", same, uploads, faults)
    uploads = late(((2, n, "upload") for n in clients), ((2, 1, "share"), (3, 0, "share")))
    lost = Faults(outages=tuple(Outage((0, n), rounds=(2, 3), one_way=True) for n in half))
    yield Setting("uploads late, others lack a share", same, uploads, lost)
    few = int(getattr(protocol.config, "privacy", 1) or 0) + 1
    shares = late(
        ((1, n, "share") for n in clients[few:]), ((2, n, "share") for n in clients[:-few])
    )
    yield Setting("few share in time", same, shares)
    if isinstance(protocol, CodedProtocol) and _has(protocol, "batch"):
        two = options | {"batch": -(-protocol.data.rows // 2)}  # an epoch
        code = protocol.code
        silent = clients[len(clients) - (code.segments + code.privacy - 1) :]
        faults = Faults(outages=(*down(clients, 1.2, 1.6), *down(silent, 2.95, 12)))
        uploads = late((round, n, "upload") for round in range(1, 11) for n in clients)
        words = "uploads late, all come back, some down"
        yield Setting(words, two, uploads, faults)


def _hides_columns(protocol: Protocol) -> bool:
    """Whether claims say that masks or ciphertexts hide columns."""
    hidden = ("perfect", "computational")
    return any(one.strength in hidden for one in protocol.claims if one.asset == "features")


def _with_timeouts(protocol: Protocol) -> tuple[dict[str, Any], float] | None:
    """Options with timeouts where the configuration has none, and the shortest timeout."""
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
