"""The theorem's verifier: what it endorses, and each planted leak of the specification."""

import numpy as np
import pytest

from securevfl.audit.keyed.runs import record_keyed
from securevfl.audit.keyed.traces import traces
from securevfl.audit.settings import settings_of
from securevfl.audit.subject import Subject, follow
from securevfl.audit.verdicts import conclude
from securevfl.audit.verifiers.declaration import DeclaredMessages
from securevfl.audit.verifiers.influence import Influence
from securevfl.audit.verifiers.shared_models import NUMBERS, Theorem, coalitions_of
from securevfl.engine.party import SERVER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make
from tests.zoo.shared_models import LEAKS

SMALL = {"width": 4, "hidden": 4, "rounds": 4, "batch": 15}


class Quick(Subject):
    """A subject of which few settings are run."""

    names = ()

    @property
    def settings(self):
        """Those that are named."""
        return self.shared("settings", lambda: tuple(self._few()))

    def _few(self):
        for one in settings_of(self.protocol):
            if one.name in self.names:
                yield follow(self.instance(options=one.options), one)


def subject_of(protocol, *names, **options):
    made = Quick(make(protocol, **(SMALL | options)))
    made.names = names
    return made


def judged(subject, claim, *verifiers):
    found = []
    for one in verifiers:
        assert one.applies(claim, subject.protocol)
        found += one.examine(claim, subject, seed=0, level=1e-6)
    return conclude(claim, found)


@pytest.mark.parametrize("leak", LEAKS, ids=lambda one: one.name)
def test_every_leak_of_the_specification_is_violated(leak):
    names = ("all crash, uploads lost",) if leak.shows is None else ()
    subject = subject_of(leak.make(), *names, **leak.options)
    claims = {(one.who, one.asset): one for one in subject.protocol.claims}
    for broken in leak.breaks:
        verdict = judged(subject, claims[broken], DeclaredMessages(), Theorem())
        assert verdict.verdict == "VIOLATED", broken


@pytest.fixture(scope="module")
def sound():
    return subject_of("coded_split", "clients crash", helpers=1)


@pytest.mark.parametrize(
    ("who", "asset"), [("T clients", "labels"), ("server + T clients", "model")]
)
def test_every_hypothesis_has_its_evidence(sound, who, asset):
    claim = next(c for c in sound.protocol.claims if (c.who, c.asset) == (who, asset))
    verdict = judged(sound, claim, Theorem())
    assert verdict.verdict == "PROVED"
    numbers = {int(e.text[1:].partition(")")[0]) for e in verdict.evidence if e.text[0] == "("}
    every = {number for number, _ in NUMBERS.values()}
    assert numbers == every - (set() if asset == "labels" else {16})
    assert all(one.verifier == "theorem" for one in verdict.evidence)
    supposed = [e.text for e in verdict.evidence if e.effect == "silent"]
    assert supposed[0].startswith("supposed and not checked: (S1)")


def test_the_numbers_are_those_of_the_page():
    from pathlib import Path

    page = Path(__file__).parents[3].joinpath("docs/coded-split-proof.md").read_text()
    for number in {number for number, _ in NUMBERS.values()}:
        assert f"\n| {number} | " in page
    for number in range(1, 6):
        assert f"\n| S{number} | " in page


def test_a_condition_that_does_not_hold_forbids_proved(sound, monkeypatch):
    from securevfl.audit.proof.certificate import Check
    from securevfl.audit.verifiers import shared_models

    claim = next(c for c in sound.protocol.claims if c.asset == "labels")
    for name, (_, gains) in NUMBERS.items():
        checks = [Check("points", True, "."), Check(name, False, ".")]
        monkeypatch.setattr(shared_models, "_checks", lambda subject, checks=checks: checks)
        fresh = subject_of("coded_split")
        verdict = judged(fresh, claim, Theorem()).verdict
        assert verdict == ("VIOLATED" if gains == "clients" else "NO VIOLATION FOUND")


def test_released_models_and_labels_against_the_server_are_not_endorsed():
    released = subject_of("coded_split", release=True)
    claims = {(one.who, one.asset): one for one in released.protocol.claims}
    assert claims["T clients", "features"].given == ("released models",)
    verdict = judged(released, claims["T clients", "features"], Theorem())
    assert verdict.verdict == "NOT TESTED"
    labels = Claim("server", "labels", "perfect", ".")
    assert judged(released, labels, Theorem()).verdict == "NOT TESTED"


def test_dealt_masks_are_not_endorsed_by_checks_of_agreed_keys():
    dealt = subject_of("coded_split", masks="dealt")
    for claim in dealt.protocol.claims:
        assert judged(dealt, claim, Theorem()).verdict == "NOT TESTED"


def test_it_applies_to_no_protocol_without_shared_models_and_influence_to_no_other():
    claim = Claim("T clients", "labels", "perfect", ".")
    shared, other = make("coded_split"), make("fedvs")
    assert Theorem().applies(claim, shared)
    assert not Theorem().applies(claim, other)
    assert not Influence().applies(claim, shared)
    assert Influence().applies(claim, other)


def test_coalitions_are_of_every_size_and_of_owners_helpers_and_both():
    made = make("coded_split", privacy=3, helpers=7)
    found = coalitions_of(made, 0)
    assert {len(one) for one in found} == {1, 2, 3}
    kinds = {(min(C) < made.owners, max(C) >= made.owners) for C in found if len(C) > 1}
    assert kinds == {(True, False), (False, True), (True, True)}
    assert len(set(found)) == len(found)


class Knowing(get_protocol("coded_split")):
    """The server is made with a number that depends on the columns of owner 2."""

    def parties(self):
        made = super().parties()
        made[-1].seen = float(self.data.train[2].mean())
        return made


class Patient(get_protocol("coded_split")):
    """The server's first deal waits for as many seconds as the first class has rows."""

    def parties(self):
        made = super().parties()
        server, labels = made[-1], self.data.train_labels
        send = server.send

        def sending(to, kind, payload, *, round=None, after=0.0):
            late = float((labels == labels.min()).sum()) if round == 1 else 0.0
            send(to, kind, payload, round=round, after=after + late)

        server.send = sending
        return made


class Zero(get_protocol("coded_split")):
    """The server's secret is known."""

    def parties(self):
        made = super().parties()
        made[-1].secret_bytes = bytes
        return made


@pytest.mark.parametrize(
    ("protocol", "claim", "verdict", "number"),
    [
        (Knowing, ("server", "features"), "NO VIOLATION FOUND", "(17)"),
        (Patient, ("T clients", "labels"), "VIOLATED", "(16)"),
        (Zero, ("T clients", "labels"), "VIOLATED", "(6)"),
    ],
)
def test_what_goes_beside_messages_and_in_times_is_not_endorsed(protocol, claim, verdict, number):
    subject = subject_of(protocol)
    claims = {(one.who, one.asset): one for one in subject.protocol.claims}
    found = judged(subject, claims[claim], Theorem())
    assert found.verdict == verdict
    failed = [e.text for e in found.evidence if e.bearing in ("gap", "demonstration")]
    assert any(text.startswith(number) for text in failed)


def broken(made, **changes):
    run = record_keyed(made)
    for name, change in changes.items():
        change(run, name)
    return {one.name for one in traces(run) if not one.holds}


def test_what_a_run_draws_and_asks_is_looked_at():
    made = make("coded_split", **SMALL)
    assert broken(made) == set()
    assert broken(made, keys=lambda run, _: run.run.parties[2].keys.update({2: b"x" * 32})) == {
        "keys held"
    }
    assert broken(made, log=lambda run, _: run.log.keys.clear()) == {"fresh keys"}
    assert broken(made, log=lambda run, _: run.log.calls.clear()) == {"fresh masks"}

    def same(run, _):
        run.run.tapes[1].draws[0] = np.zeros_like(run.run.tapes[1].draws[0])

    assert broken(made, tapes=same) == {"fresh masks", "different masks", "uploads"}

    def equal(run, _):
        first = run.run.sent("embedding", 2)[0, -1]
        run.run.sent("embedding", 2)[0, -1] = made.code.field.add(first, first)

    assert broken(made, sent=equal) >= {"uploads"}
    assert broken(made, asked=lambda run, _: run.questions.streams.pop(3)) == {"streams drawn"}
    assert broken(made, asked=lambda run, _: run.questions.derived.clear()) == {"masks of steps"}


def test_a_mask_of_a_smaller_range_and_a_secret_of_another_origin_are_found():
    from securevfl.field import PrimeField

    made, cls = make("coded_split", **SMALL), get_protocol("coded_split")

    def small(protocol):
        parties = cls.parties(protocol)
        low = PrimeField(2**31 - 1)
        parties[1].uniform = lambda shape: low.random(shape).astype(made.code.field.dtype)
        return parties

    made.parties = lambda: small(made)
    assert broken(made) == {"fresh masks"}

    def seeded(protocol):
        parties = cls.parties(protocol)
        parties[-1].secret_bytes = lambda count: bytes(range(count))
        return parties

    made.parties = lambda: seeded(made)
    assert broken(made) == {"fresh keys"}

    def poor(protocol):
        parties = cls.parties(protocol)
        parties[0].secret_bytes = lambda count: b"k" * count
        return parties

    made.parties = lambda: poor(made)
    assert broken(made) == {"fresh keys", "different keys"}


@pytest.mark.parametrize("late", [False, True])
def test_what_is_done_in_late_rounds_only_is_found_where_all_rounds_run(late, monkeypatch):
    """The digest that every holder is told is the step itself, after more rounds than a small run.

    Parties and formulas compute it by the same function, so that no message deviates.
    """
    from securevfl.protocols.coded_split.dealing import Dealing

    own, last = Dealing.digest, 8 if late else 10**6

    def digest(self, secret, number, step):
        if number > last:
            return np.ascontiguousarray(step, np.int64).tobytes()[:32]
        return own(self, secret, number, step)

    monkeypatch.setattr(Dealing, "digest", digest)
    made = make("coded_split", **(SMALL | {"rounds": 12}))
    claim = next(one for one in made.claims if one.asset == "labels")
    subject = Quick(made, whole=True)
    verdict = judged(subject, claim, Theorem())
    assert verdict.verdict == ("VIOLATED" if late else "PROVED")


def test_steps_that_the_server_has_forgotten_are_looked_at():
    """Holders say every 64 steps what they have stored, and the server forgets those steps."""
    run = record_keyed(make("coded_split", **(SMALL | {"rounds": 70})), restarted=(0, 2))
    assert run.server.forgotten
    assert sorted(run.steps) == [*range(1, 71)]
    for one in traces(run):
        assert one.holds, one.detail
    ideal = run.protocol.ideal_output(run.run, MessageKey("embedding", 70, 0, SERVER))
    sent = {j: value for (j, _), value in run.run.sent("embedding", 70).items()}
    code, used = run.protocol.code, sorted(sent)[: run.protocol.public.threshold]
    sums = code.decode(np.stack([sent[j] for j in used]), used, degree=run.protocol.result_degree)
    assert (code.field.signed(sums) == ideal).all()


def test_shares_of_steps_that_no_seed_stands_for_forbid_proved(monkeypatch):
    """A share that is zero leaves the step itself to the others, and formulas have it too."""
    from securevfl.protocols.coded_split.dealing import Dealing

    own = Dealing.from_seed

    def from_seed(self, seed, shape):
        share = own(self, seed, shape)
        share[5:] = 0
        return share

    monkeypatch.setattr(Dealing, "from_seed", from_seed)
    subject = subject_of("coded_split")
    claim = next(one for one in subject.protocol.claims if one.asset == "labels")
    verdict = judged(subject, claim, Theorem())
    assert verdict.verdict == "NO VIOLATION FOUND"
    assert "shares of step 1 are not those of its seeds" in verdict.words
