"""Verifier of traffic: sizes, order, times and control messages must not depend on secrets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from securevfl.audit.coalitions import may_see
from securevfl.audit.columns.other_columns import OTHER_RANGES, other_columns
from securevfl.audit.followed_runs import Followed
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.pairs import (
    by_chance,
    long_events,
    once_more,
    random_controls,
    small_traffic,
)
from securevfl.audit.traffic.seen import Traffic, differences, is_event, traffic_of
from securevfl.audit.traffic.setting import ITSELF
from securevfl.audit.verdicts import Evidence
from securevfl.engine.streams import SecretSeed
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol


class TrafficComparison:
    """Runs the configuration with other columns and networks and compares the traffic.

    Traffic is what masks and ciphertexts do not hide: which messages there are, their sizes, their
    order, when they leave and arrive, and what control messages say.
    """

    name = "traffic"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Secrecy of features and models, perfect or by a primitive; labels have `influence`."""
        secret = claim.strength in ("perfect", "computational") and claim.against != OUTSIDER
        return secret and claim.asset in ("features", "model")

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Traffic that the adversary sees, of runs that differ in all columns and networks."""
        found = subject.shared("traffic", lambda: list(_compared(subject)))
        if not found:
            text = (
                "sizes, order or times differ between runs with equal inputs, so they say nothing"
            )
            yield Evidence(self.name, "silent", text, "gap")
            return
        yield from self._unread(subject)
        unequal = [(words, key, what) for words, key, what in found if key is not None]
        against = claim.against  # the history is no party's view
        seen = [one for one in unequal
                if not is_event(one[1]) and may_see(against, subject.protocol, one[1])]  # fmt: skip
        if seen:
            words, _, what = seen[0]
            text = f"runs that differ in columns and networks alone have other traffic ({words}): "
            yield Evidence(self.name, "accuses", text + what, "demonstration", 0.0)
            return
        if unequal:
            words, key, what = unequal[0]
            whose = "what parties tell the history" if is_event(key) else "others' traffic"
            text = f"{whose} depends on columns or networks ({words}): {what}"
            text += ". Leave it out, or say in `told_events` what it tells" * is_event(key)
            yield Evidence(self.name, "silent", text, "gap")
            return
        still = [words for words, _, what in found if what]
        if still:
            text = (
                f"a gradient was zero in {', '.join(still)}, so their traffic was compared until "
                "then only: verify a wider network, or more rows in a batch"
            )
            yield Evidence(self.name, "silent", text, "gap")
        told = "".join(f"; {name!r} tells {what}" for name, what in
                       subject.protocol.told_events.items())  # fmt: skip
        text = (
            f"{len(found) - len(still)} pairs of runs that differ in all columns and networks have "
            "the same traffic: messages, sizes, order, times, what control messages say, and what "
            f"parties but the server tell the history{told and ', of which no claim speaks: '}"
            f"{told.removeprefix('; ')}"
        )
        declared = bool(subject.protocol.messages)  # else nobody knows what there is to compare
        yield Evidence(self.name, "supports" if declared else "silent", text)

    def _unread(self, subject: Subject) -> Iterator[Evidence]:
        """Gaps for what the comparison leaves out and could hold more than it should."""
        for kind in subject.shared("random controls", lambda: random_controls(subject)):
            text = (
                f"the control message {kind!r} differs between runs with equal inputs, so it is "
                "not compared: declare what is random in it as a key, or leave it out"
            )
            yield Evidence(self.name, "silent", text, "gap")
        for kind in subject.shared("long events", lambda: long_events(subject)):
            text = f"the {kind} may depend on columns, and is longer than a few numbers"
            yield Evidence(self.name, "silent", text, "gap")


def _compared(subject: Subject) -> Iterator[tuple[str, MessageKey | None, str]]:
    """Of each pair of runs what it was, and a message in which they differ, None for none.

    Nothing where already two runs with equal inputs differ in more than control messages.
    """
    followed = {one.setting.name: one for one in subject.settings}
    chance = by_chance(subject)
    if chance is None:
        return
    for name, columns in other_columns(subject.instance().data, subject.seed).items():
        subject.progress(f"traffic, {name}")
        subject.note(f"{subject.describe()}; {name}, and other networks, for the traffic")
        one = small_traffic(subject)
        made = subject.instance(
            columns=columns, all_rows=True, secrets=SecretSeed(subject.seed + 11)
        )
        yield _first(name, one, traffic_of(made, ITSELF), chance)
    for found in followed.values():
        setting = found.setting
        if found.comparison.deviations:
            continue
        subject.progress(f"traffic, {setting.name}")
        traffic = with_other_columns(subject, found)
        subject.note(f"{setting.name} once more, with other columns and networks, for the traffic")
        yield _first(setting.name, found.traffic, traffic, chance)


def with_other_columns(subject: Subject, found: Followed) -> Traffic:
    """Traffic of a run in the same setting, with other columns and networks."""
    setting, whole = found.setting, found.setting == ITSELF
    many = subject.many and not setting.predicts
    data = subject.instance(whole=whole, many=many, multiple=setting.multiple).data
    columns = other_columns(data, subject.seed)[OTHER_RANGES]
    secrets = SecretSeed(subject.seed + 12)
    return once_more(subject, found, columns=columns, all_rows=True, secrets=secrets)


def _first(
    name: str, one: Traffic, other: Traffic, chance: frozenset[str]
) -> tuple[str, MessageKey | None, str]:
    stills = [still for still in (one.still, other.still) if still is not None]
    if stills:
        first = min(stills, key=lambda still: still.round)
        one, other = one.before(first), other.before(first)
    for key, what in differences(one, other):
        if not what.startswith("round") and key.kind in chance:
            continue
        return name, key, f"round {key.round}, {key.kind!r}: {what}"
    return name, None, "a gradient was zero" if stills else ""
