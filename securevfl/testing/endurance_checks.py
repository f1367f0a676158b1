"""Check that a protocol makes all its steps although a party is late, down or wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.engine.conditions import Conditions
from securevfl.engine.party import Party
from securevfl.errors import ConfigurationError, RunError
from securevfl.protocols.base.messages import UPLOADS
from securevfl.testing.basics import require
from securevfl.testing.runs import Outcome, ProtocolLike, class_of, make, simulate
from securevfl.testing.settings import Setting, settings_of
from securevfl.verified import bare_of

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

_GOES_ON = ("tolerates", "fills")  # what a card says of absence
_FAR = 1000.0  # seconds; many times all timeouts of a run
_VERY_LATE = "one round very late"


@dataclass(frozen=True)
class _OneRoundLate(Conditions):
    """Conditions under which uploads of round 1 are `_FAR` seconds late, and nothing else is."""

    def delay(self, seed: int, party: int, round: int, activity: str) -> int:
        """Delay of a message in nanoseconds: that of `_FAR` for an upload of round 1, else 0."""
        return int(_FAR * 1e9) if (round, activity) == (1, "upload") else 0


def check_endurance(
    protocol: ProtocolLike,
    data: VerticalDataset | None = None,
    *,
    leave_out: Collection[str] = (),
    **options: Any,
) -> None:
    """Check that a protocol that promises to go on makes all steps despite faults of a party.

    The check is for protocols whose card says "tolerates" or "fills" about absence. They run in
    several settings, with the options that these need (`securevfl.testing.settings`): messages are
    late, parties crash and restart, links lose messages, attempts fail. Each run must have as many
    steps as an undisturbed one, and no error. If the protocol corrects wrong uploads, its losses
    must be those of a run without them. If it abandons attempts, uploads that are 1000 s late must
    not delay it by as much.

    Parameters
    ----------
    protocol : str or Protocol class
        Name of an installed protocol, or a class.
    data : VerticalDataset, optional
        Data set; `tiny_data` if not given.
    leave_out : collection of str
        Names of settings to skip, because with these options the run must end: fewer results arrive
        in time than it needs.
    **options
        Options of the protocol.

    Raises
    ------
    AssertionError
        If a run has fewer steps, an error or wrong losses; the message names the setting.
    """
    made = make(protocol, data, **options)
    if made.card.absence not in _GOES_ON:
        return
    steps = len(simulate(protocol, data, **options).losses)
    for setting in _settings(made):
        if setting.name in leave_out or not _is_possible(setting, protocol, data, options):
            continue
        outcome = _run_in(setting, protocol, data, options)
        found = len(outcome.losses)
        require(found == steps, protocol, f"{setting.name}: {found} steps instead of {steps}")
        if setting.name == _VERY_LATE:
            last = max(event.time for event in outcome.events if event.name == "round") / 1e9
            require(last < _FAR, protocol, f"{setting.name}: the last step came after {last:.0f} s")
        if setting.wrong_uploads:
            plain = _run_in(replace(setting, wrong_uploads=0), protocol, data, options)
            same = outcome.losses == plain.losses
            require(same, protocol, f"{setting.name}: the losses are not those without them")


def _settings(made: Any) -> Iterator[Setting]:
    """Settings of the protocol, and one with a very late round."""
    for setting in settings_of(made):
        yield setting
        if setting.name == "results late" and "max_attempts" in setting.options:
            yield Setting(_VERY_LATE, setting.options, _OneRoundLate(_VERY_LATE))


def _is_possible(
    setting: Setting, protocol: ProtocolLike, data: VerticalDataset | None, options: dict[str, Any]
) -> bool:
    """Whether the protocol can be made with a setting's options, which may need more parties."""
    try:
        make(protocol, data, **options | dict(setting.options))
    except ConfigurationError:
        return False
    return True


def _run_in(
    setting: Setting, protocol: ProtocolLike, data: VerticalDataset | None, options: dict[str, Any]
) -> Outcome:
    """Outcome of a protocol's run in a setting; AssertionError if an error ended the run."""
    given = options | dict(setting.options)
    cls = _lying(protocol, setting.wrong_uploads) if setting.wrong_uploads else protocol
    try:
        return simulate(cls, data, conditions=setting.conditions, faults=setting.faults, **given)
    except RunError as error:
        name = class_of(protocol).name
        raise AssertionError(f"{name}: {setting.name}: the run ended: {error}") from error


def _lying(protocol: ProtocolLike, liars: int) -> type:
    """A subclass of the protocol whose first `liars` clients upload random elements."""

    class Lying(class_of(protocol)):  # type: ignore[misc]
        """The protocol with wrong uploads."""

        def parties(self) -> dict[int, Party]:
            parties: dict[int, Party] = super().parties()
            kinds = {m.kind for m in self.messages
                     if m.sender == "client" and m.carries in UPLOADS}  # fmt: skip
            for index in self.peers()[:liars]:
                _corrupt(parties[index], kinds)
            return parties

    return Lying


def _corrupt(party: Party, kinds: Collection[str]) -> None:
    stream = np.random.Generator(np.random.Philox(party.index))
    send = party.send

    def lie(to: int, kind: str, payload: Any, **given: Any) -> None:
        if kind in kinds:
            signed = isinstance(payload, tuple)  # what is beside the elements is left as it is
            wrong = [_wrong(one, stream) for one in (payload if signed else [payload])]
            payload = tuple(wrong) if signed else wrong[0]
        send(to, kind, payload, **given)

    party.send = lie  # type: ignore[method-assign]


def _wrong(right: Any, stream: np.random.Generator) -> Any:
    """Random elements in place of field elements; any other payload unchanged."""
    bare = bare_of(right)
    if not isinstance(bare, np.ndarray) or bare.dtype not in (np.uint32, np.uint64):
        return right
    return stream.integers(0, 2**16, bare.shape).astype(bare.dtype)
