"""Verifier of what is added where parties are on machines of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from securevfl.audit.coalitions import may_see
from securevfl.audit.deviations import Deviation
from securevfl.audit.followed_runs import Followed, Predicting, follow
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.setting import Setting
from securevfl.audit.verdicts import Evidence
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.streams import OwnEntropy
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.organisations.parties import evaluation_maker
from securevfl.runs.threads import one_thread
from tests.oracles.hosted_runs import HostedRun, run_hosted

_EVALUATION = Setting("the evaluation between organisations")


class BetweenMachines:
    """Runs parties by the hosts of a cluster, and measures as organisations do.

    What leaves a host must be what its party asked for: frames, and events in its reports, which
    else say how the party stands, by counts and words that follow from what was seen of it. What
    organisations send to measure test rows must be declared, where the protocol has an inference
    that hides them.
    """

    name = "between machines"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Secrecy of features and models, perfect or by a primitive."""
        secret = claim.strength in ("perfect", "computational") and claim.against != OUTSIDER
        return secret and claim.asset in ("features", "model") and bool(protocol.messages)

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """A frame that no party sent, or one for the evaluation, speaks against the claim."""
        run = subject.shared("hosted run", lambda: _hosted(subject))
        yield from self._frames(claim, subject, "by hosts of a cluster", run.wrong_frames)
        if run.wrong_events:
            yield Evidence(self.name, "silent", run.wrong_events[0], "channel")
        measured = subject.shared("evaluation", lambda: _evaluated(subject))
        if isinstance(measured, Followed):
            found = measured.comparison.deviations
            yield from self._frames(claim, subject, measured.setting.name, found)
        elif measured:
            yield Evidence(self.name, "silent", measured)
        text = (
            f"with a host for each party, as on a cluster, all {run.frames} frames are what "
            f"parties sent, sealed as documented, {run.events} events what they told, and reports "
            "say no more than how each stands"
        )
        if not (run.wrong_frames or run.wrong_events):
            yield Evidence(self.name, "supports", text)

    def _frames(
        self, claim: Claim, subject: Subject, where: str, found: Iterable[Deviation]
    ) -> Iterator[Evidence]:
        wrong = list(found)
        seen = [one for one in wrong if may_see(claim.against, subject.protocol, one.key)]
        if seen:
            yield Evidence(self.name, "accuses", f"{where}: {seen[0]}", "demonstration", 0.0)
        elif wrong:
            yield Evidence(self.name, "silent", f"{where}: {wrong[0]}", "gap")


def _hosted(subject: Subject) -> HostedRun:
    subject.progress("a run with a host for each party")
    found = run_hosted(subject.instance())
    subject.note(f"{subject.describe()}; with a host for each party, as on a cluster")
    return found


def _evaluated(subject: Subject) -> Followed | str:
    """The evaluation as organisations make it, or what is to be said of it; empty for none."""
    made = subject.instance()
    trained = made.parties()
    maker = evaluation_maker(made, subject.instance, lambda party: trained[party.index])
    if maker is None:
        return ""
    if not made.prediction_messages:
        return (
            "between organisations each client sends the server its embeddings of test rows, in "
            "the clear, for the measures; no claim covers what these tell"
        )
    subject.progress(_EVALUATION.name)
    with one_thread():
        Simulation(trained, seed=made.seed, secrets=made.secrets).run()
    parties = {n: maker(n, OwnEntropy.draw(n)) for n in trained}
    subject.note(f"{subject.describe()}; {_EVALUATION.name}")
    predicting = made.predicting(made.data.test_rows)
    return follow(predicting, _EVALUATION, predicting=Predicting(made, parties))
