"""The configuration itself, run in a process beside."""

from __future__ import annotations

import pytest

from securevfl.audit.beside.second_process import SecondProcess
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.declaration import DeclaredMessages
from securevfl.audit.verifiers.specification import Specification
from securevfl.audit.verifiers.traffic import TrafficComparison
from securevfl.audit.verify import judge, verify
from securevfl.audit.whole_run import WholeRun
from securevfl.errors import RunError
from securevfl.testing.runs import make, tiny_data

OPTIONS = {"rounds": 12, "batch": 10, "hidden": 6, "width": 4}


def configured(**options):
    return make("fedvs", tiny_data(), defaults={}, **OPTIONS | options)


def beside(told=None, **options):
    whole = WholeRun("fedvs", tiny_data(), OPTIONS | options, 0)
    return SecondProcess(whole, (lambda words: None) if told is None else told.append)


def subject(itself, **options):
    return Subject(configured(**options), whole=True, settings=lambda _: (), itself=itself)


def findings(one):
    [found] = one.settings
    return found.comparison, found.traffic, found.rounds, found.draws, found.keys, found.ended


@pytest.fixture(scope="module")
def verified():
    """Findings of the process, and evidence of verifiers that ask for them."""
    told = []
    with beside(told) as itself:
        one = subject(itself)
        about = one.protocol.claims[0]
        verifiers = (DeclaredMessages(), TrafficComparison(), Specification())
        verdict = judge(about, one, verifiers)
        return findings(one), verdict, one, told


def test_it_finds_what_a_run_here_finds(verified):
    assert verified[0] == findings(subject(None))


def test_its_run_is_part_of_the_evidence(verified):
    _, verdict, one, told = verified
    words = {piece.verifier: piece.text for piece in verdict.evidence}
    assert "as configured" in words["declared messages"]
    assert words["traffic"].startswith("5 pairs")  # four small ones, and this
    assert any("as configured" in ran for ran in one.ran)
    assert not told or all("round" in words for words in told)


def test_what_is_changed_there_counts(verified):
    class Changed:
        def result(self, name):
            return ["securevfl.field.prss"] if name == "altered" else []

    one = subject(None)
    one.itself = Changed()
    words = [piece.text for piece in Specification().examine(
        one.protocol.claims[0], one, seed=0, level=1e-6)]  # fmt: skip
    assert any("securevfl.field.prss" in text for text in words)
    assert not any(isinstance(piece, Evidence) and "prss" in piece.text
                   for piece in verified[1].evidence)  # fmt: skip


def test_a_process_that_ends_is_no_verdict():
    with beside() as itself:
        itself._process.kill()
        with pytest.raises(RunError, match="ended by itself"):
            itself.result("followed")
        verdict = judge(configured().claims[0], subject(itself), (DeclaredMessages(),))
    assert verdict.verdict == "COULD NOT BE CHECKED"


def test_an_error_there_is_told_here():
    with beside(segments=9) as itself, pytest.raises(RunError, match=r"ConfigurationError.*K"):
        itself.result("followed")


def test_it_ends_with_its_context():
    with beside() as itself:
        process = itself._process
    assert process.exitcode is not None


def test_the_order_of_verifiers_changes_no_verdict(monkeypatch):
    """With a process beside, verifiers that do not ask for its run go first."""
    monkeypatch.setattr("securevfl.audit.subject.settings_of", lambda _: ())
    monkeypatch.setattr(Subject.__init__, "__kwdefaults__",
                        Subject.__init__.__kwdefaults__ | {"settings": lambda _: ()})  # fmt: skip
    reports = [verify("fedvs", tiny_data(), tests=(), processes=n, **OPTIONS) for n in (1, 2)]
    one, two = (
        [(c.who, c.about, c.verdict, [e.verifier for e in c.evidence]) for c in report.claims]
        for report in reports
    )
    assert one == two
    assert sorted(reports[0].ran) == sorted(reports[1].ran)


def test_a_run_beyond_the_small_one_is_as_long_as_it_can_be_held(monkeypatch):
    one = Subject(make("secagg_split", rounds=40, batch=20), whole=True)
    assert [run["options"] for run in one.beyond] == [{"rounds": 40}, {"batch": 20}]
    monkeypatch.setattr("securevfl.audit.subject.BEYOND", 2 * one.run.nbytes + 1)
    assert [run["options"] for run in one.beyond] == [{"rounds": 16}, {"batch": 20}]
    monkeypatch.setattr("securevfl.audit.subject.BEYOND", 1)
    assert [run["options"] for run in one.beyond] == [{"batch": 20}]
