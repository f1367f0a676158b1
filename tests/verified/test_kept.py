"""A verification that was stopped goes on from the verdicts of finished schedules."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from securevfl.verified.prove import Step
from securevfl.verified.traced import proofs
from securevfl.verified.traced.kept import KeptVerdicts, verdict_of
from securevfl.verified.traced.proofs import Traced, prove_protocol, verdicts_in
from securevfl.verified.verdicts import Judge, Verdict

TRACED = Traced("fedvs", {})
STEP = Step("move", 3, (0, 1), 2, (1, 0), "a tape")
SOME = Verdict("PROVED", (-1, 0), ("sum",), "server", judge=("one",), steps=(STEP, Step("give", 4)))


@pytest.fixture
def judged(monkeypatch):
    """Two schedules of different traces, and the coalitions that were judged in both."""
    schedules, found = Traced.schedules, []
    of = ("nobody is late", "client 0 uploads nothing")
    monkeypatch.setattr(
        Traced,
        "schedules",
        lambda traced: tuple(one for one in schedules(traced) if one.name.startswith(of)),
    )
    decide = Judge.decide
    monkeypatch.setattr(Judge, "decide", lambda *a, **k: found.append(a[1]) or decide(*a, **k))
    return found


def stop_at(schedule):
    def told(words):
        if words.endswith(f"a trace, {schedule}"):
            raise KeyboardInterrupt

    return told


def test_a_second_start_judges_only_what_the_first_left(judged, tmp_path):
    path = tmp_path / "here" / "unfinished.jsonl"
    names = [one.name for one in TRACED.schedules()]
    with pytest.raises(KeyboardInterrupt):
        prove_protocol(
            TRACED, fresh=False, progress=stop_at(names[1]), kept=verdicts_in(path, TRACED, "1")
        )
    first = len(judged)
    assert path.exists()
    again = prove_protocol(TRACED, fresh=False, kept=verdicts_in(path, TRACED, "1"))
    assert len(judged) == 2 * first
    assert not path.parent.exists()
    assert again == prove_protocol(TRACED, fresh=False)
    assert list(again.traces) == names


def test_of_other_coalitions_than_before_nothing_is_taken(tmp_path):
    """An author who had named fewer coalitions before the stop saw an IndexError."""
    split, path = Traced("split", {}, 2), tmp_path / "here" / "unfinished.jsonl"
    whole = prove_protocol(split, fresh=False)
    first = KeptVerdicts(path, f"1; {split}")
    first.add(whole.traces["nobody is late"], whole.verdicts[:1])
    again = prove_protocol(split, fresh=False, kept=verdicts_in(path, split, "1"))
    assert [one.coalition for one in again.verdicts] == [one.coalition for one in whole.verdicts]


def test_of_another_library_or_another_trace_nothing_is_taken(tmp_path):
    path = tmp_path / "unfinished.jsonl"
    verdicts_in(path, TRACED, "1").add("digest", [SOME])
    assert verdicts_in(path, TRACED, "1").read() == {"digest": (SOME,)}
    assert verdicts_in(path, TRACED, "2").read() == {}
    assert verdicts_in(path, replace(TRACED, seed=1), "1").read() == {}


def test_a_line_that_was_cut_off_is_written_again(tmp_path):
    path = tmp_path / "unfinished.jsonl"
    kept = KeptVerdicts(path, "key")
    kept.add("one", [SOME])
    kept.add("two", [SOME, SOME])
    path.write_text(path.read_text()[:-20])
    again = KeptVerdicts(path, "key")
    assert list(again.read()) == ["one"]
    again.add("three", [SOME])
    assert list(KeptVerdicts(path, "key").read()) == ["one", "three"]
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 3


def test_a_verdict_is_read_as_it_was_written():
    open_ = Verdict("NOT PROVED", (0,), (), text="m", messages=("a", "b"), schedules=("none",))
    for one in (SOME, open_):
        assert verdict_of(json.loads(json.dumps(one.to_dict()))) == one


def test_a_verification_needs_no_disk(tmp_path):
    (tmp_path / "file").write_text("")
    kept = KeptVerdicts(tmp_path / "file" / "unfinished.jsonl", "key")
    kept.add("one", [SOME])
    kept.remove()
    assert kept.read() == {}


def test_what_is_kept_is_checked_by_the_other_process(tmp_path, monkeypatch):
    """A verdict on disk that nobody proved does not become one."""
    path, traced = tmp_path / "unfinished.jsonl", Traced("flexvfl", {}, parties=2)
    world = traced.run()
    wrong = [Verdict("PROVED", tuple(sorted(c)), (), "client") for c in world.coalitions]
    verdicts_in(path, traced, "1").add(world.digest(), wrong)
    monkeypatch.setattr(proofs, "_elsewhere", lambda file: (_answers(file), "no answer"))
    found = prove_protocol(traced, kept=verdicts_in(path, traced, "1"))
    assert {one.verdict for one in found.verdicts} == {"NOT PROVED"}
    assert all("not accepted by the checking process" in one.text for one in found.verdicts)


def _answers(file):
    """Answers of a check in this process, which costs less than a new one."""
    answers = proofs.check_certificate(file)
    return {",".join(map(str, some)): why or "" for some, why in answers.items()}
