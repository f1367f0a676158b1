"""Settings in which a configuration is run besides as it is: late, crashed, wrong, resumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from securevfl.audit.followed_runs import Setting
from securevfl.engine.conditions import Conditions
from securevfl.engine.delays import Delay
from securevfl.engine.faults import Chain, Faults
from securevfl.protocols.base.protocol import Protocol

_RESUMED_IN = 4  # round in which a run is broken off
_PATIENCE = 3.0  # seconds of timeouts where the configuration has none


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
    else:
        options, timeout = timed
        again = _has(protocol, "max_attempts")  # else a run ends where too few are in time
        often = options | ({"max_attempts": 50} if again else {})
        late = timeout if again else timeout / 2
        yield Setting("clients late", often, _delays(protocol, timeout / 3))
        yield Setting("attempts given up", often, _delays(protocol, late))
        late = 3 * timeout if again else late
        yield Setting("results late", often, _delays(protocol, late, share_factor=0.1))
        crashes = Faults({"client": Chain(0.15, 0.5)}, first=3)
        yield Setting("clients crash", often, faults=crashes)
        crashes = Faults({"client": Chain(0.5, 0.9)}, first=2)
        yield Setting("clients crash again and again", often, faults=crashes)
        if hides_columns(protocol):  # formulas of others may need that rounds follow one another
            crashes = Faults({"server": Chain(0.3, 0.9)}, first=3)
            yield Setting("server crashes", often, faults=crashes)
        yield Setting("messages lost", often, faults=Faults({"link": Chain(0.02, 0.7)}, first=3))
    if _has(protocol, "tolerate_corrupt"):
        wrong = max(1, int(protocol.config.tolerate_corrupt))
        options = {"tolerate_corrupt": wrong} | ({} if timed is None else timed[0])
        yield Setting("wrong uploads", options, wrong_uploads=wrong)


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
