"""Reports without a browser: what stands in the page, that nothing of it can run, and errors."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import math
import re
import shlex
import tomllib
from collections import Counter, defaultdict
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.cli import displays
from securevfl.cli.app import app
from securevfl.data.source import DataSource
from securevfl.engine.transcript import Transcript
from securevfl.errors import CheckpointError, ConfigurationError, DataError
from securevfl.privacy.released_equations import Odometer
from securevfl.report import write_report
from securevfl.report.figures import curves, links, measures_of
from securevfl.report.loading import read_records
from securevfl.report.page import value_text
from securevfl.report.reproduce import how_to_reproduce
from securevfl.report.timeline import CELLS, down_times, timeline
from securevfl.runs.result import TOLD, Run
from securevfl.runs.storage import write_transcript
from securevfl.studies.compare import comparison
from securevfl.studies.run import run_study

DIGITS = DataSource("digits", {"parties": 4, "seed": 0})
SMALL = {"width": 4, "hidden": 4, "batch": 16}
CONDITIONS = {"upload_mean": [0.1, 0.1, 2.0, 3.0], "bandwidth": 0}
FAULTS = {
    "tick": 1.0,
    "first": 2,
    "client": {"fault": 0.02, "rejoin": 0.5},
    "outage": [{"party": 3, "rounds": [3, 6]}, {"party": 2, "rounds": [9]}],
}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7 * 7 }}\u2028"
CLAIM = {"who": "server", "about": "features", "notion": "perfect", "source": "a theorem"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def faulty(folder: Path) -> Run:
    waits = {"share_timeout": 4.0, "result_timeout": 4.0, "cohorts": 0}
    return svfl.run(
        "fedvs", DIGITS, rounds=12, conditions=CONDITIONS, faults=FAULTS, out=folder / "faulty",
        **SMALL, **waits,
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain(folder: Path) -> Run:
    return svfl.run("split", DIGITS, rounds=8, conditions=CONDITIONS, out=folder / "plain", **SMALL)


def page(*folders: Path | None, out: Path, **more: Any) -> str:
    return write_report([f for f in folders if f], out=out, **more).path.read_text()


def embedded(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found[1])


def write_run(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> Path:
    """A run folder as `Run.save` writes one, with whatever names a test wants."""
    folder.mkdir(parents=True)
    protocol = json.dumps(changes.get("protocol", "fedvs"))
    data = json.dumps(changes.get("dataset", "digits"))
    folder.joinpath("config.toml").write_text(
        f"format = 1\nversion = '0.1.0'\nprotocol = {protocol}\nseed = 0\n[options]\nrounds = 2\n"
        f"[conditions]\nname = {json.dumps(changes.get('conditions', 'none'))}\n[data]\n"
        f"name = {data}\n{changes.get('config', '')}"
    )
    lines = [{"event": "round", "party": -1, "round": n + 1, **row} for n, row in enumerate(rows)]
    entries = [*lines, *changes.get("events", ())]
    folder.joinpath("history.jsonl").write_text("\n".join(json.dumps(e) for e in entries) + "\n")
    transcript = Transcript()
    for round_, kind, sender, receiver, sent, arrived, late in changes.get("messages", ()):
        row = transcript.add(sender, receiver, kind, round_, 10, round(sent * 1e9), None)
        transcript.arrive(row, round(arrived * 1e9))
        if late:
            transcript.mark_late(row)
    write_transcript(folder, transcript)
    summary = {"dataset": changes.get("dataset", "digits"), "claims": changes.get("claims", [])}
    folder.joinpath("summary.json").write_text(json.dumps(summary))
    return folder


TWO_ROWS = [
    {"step": 1, "time": 1.0, "loss": 2.0, "bytes": 10, "accuracy": 0.25},
    {"step": 2, "time": 2.5, "loss": 1.0, "bytes": 30, "accuracy": 0.5},
]


# -- the page stands alone -----------------------------------------------------------------------


class Elements(HTMLParser):
    """All elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_nothing_is_loaded_from_anywhere(faulty, plain, tmp_path):
    text = page(faulty.folder, plain.folder, out=tmp_path / "r.html")
    for tag, attributes in Elements(text).found:
        assert tag not in ("iframe", "object", "embed", "base", "form")
        if tag == "img":  # a picture that the page holds itself, in which scripts do not run
            assert str(attributes.pop("src")).startswith("data:image/svg+xml;base64,")
        for name in ("src", "srcset", "action", "data", "poster", "background"):
            assert name not in attributes, (tag, attributes)
        target = attributes.get("href", "#")
        assert str(target).startswith(("#", "data:,"))
    assert set(re.findall(r"\b\w+://[^\s\"']*", text)) == {"http://www.w3.org/2000/svg"}
    reaching = r"fetch\(|XMLHttpRequest|Socket|EventSource|sendBeacon|import\(|url\((?!#)|@import"
    assert not re.findall(reaching, text)


def test_the_browser_is_told_to_run_this_script_only_and_to_load_nothing(plain, tmp_path):
    text = page(plain.folder, out=tmp_path / "r.html")
    script = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert "connect-src" not in rules
    assert "innerHTML" not in script[0]


def test_names_from_files_are_text_wherever_they_stand(tmp_path):
    """Protocol, data set, conditions, kinds, events, claims, options: all of them hostile."""
    key = json.dumps(HOSTILE)
    folder = write_run(
        tmp_path / "run",
        TWO_ROWS,
        protocol=HOSTILE,
        dataset=HOSTILE,
        conditions=HOSTILE,
        config=f"[data.options]\nparties = 2\n{key} = {key}\n[faults]\nname = {key}\ntick = 1.0\n"
        f"[derived]\n{key} = 1\nepsilon_round = 2.0\n",
        events=[
            {"event": HOSTILE, "party": 0, "round": 1, "time": 1.5},
            {"event": "skipped", "party": -1, "round": 1, "time": 1.5, "why": HOSTILE},
        ],
        messages=[(1, HOSTILE, 0, -1, 0.0, 0.5, False)],
        claims=[dict.fromkeys(CLAIM, HOSTILE)],
    )
    verdict = {"protocol": HOSTILE, "parameters": {HOSTILE: 2}, "claims": []}
    verdict["claims"] = [
        {**dict.fromkeys(CLAIM, HOSTILE), "verdict": HOSTILE, "evidence": HOSTILE,
         "failure_probability": None},
    ]  # fmt: skip
    verdict["shown"] = [dict.fromkeys(("who", "what", "evidence"), HOSTILE)]
    (folder / "verify.json").write_text(json.dumps(verdict))
    other = write_run(tmp_path / "other", TWO_ROWS)
    for runs in ((folder,), (folder, other)):
        text = page(*runs, out=tmp_path / "hostile.html")
        elements = Elements(text).found
        assert [tag for tag, _ in elements].count("script") == 2
        assert not [tag for tag, _ in elements if tag == "img"]
        names = {name for _, attributes in elements for name in attributes}
        assert not [name for name in names if name.startswith("on")]
        assert "{{ 7 * 7 }}" in text
        assert HOSTILE not in text
    assert embedded(text)["runs"][0]["label"].startswith(HOSTILE)


# -- what it says is what the history says -------------------------------------------------------


def test_curves_are_the_history_row_by_row(faulty, tmp_path):
    drawn = embedded(page(faulty.folder, out=tmp_path / "r.html"))["runs"][0]["curves"]
    assert drawn["every"] == 1
    for name in ("step", "time", "bytes", "loss", "accuracy", "test_loss"):
        assert drawn[name] == [row.get(name) for row in faulty.history], name


def test_the_table_of_evaluations_is_the_history(plain, tmp_path):
    text = page(plain.folder, out=tmp_path / "r.html")
    table = re.search(r'<table data-evaluated="0">.*?</table>', text, re.S)
    assert table is not None
    for row in plain.history:
        cells = [f"{row['step']:,}", f"{row['time']:,.2f} s", f"{100 * row['accuracy']:.2f} %"]
        for cell in cells:
            assert f'<td class="number">{cell}</td>' in table[0]
    assert table[0].count("<tr>") == len(plain.history) + 1


def test_links_are_the_sums_of_the_transcript(faulty, tmp_path):
    drawn = embedded(page(faulty.folder, out=tmp_path / "r.html"))["runs"][0]["links"]
    columns = faulty.transcript.columns()
    expected: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for kind, sender, receiver, nbytes, late in zip(
        *(columns[name] for name in ("kind", "sender", "receiver", "bytes", "late")), strict=True
    ):
        sums = expected[str(kind), int(sender), int(receiver)]
        expected[str(kind), int(sender), int(receiver)] = [
            sums[0] + 1, sums[1] + int(nbytes), sums[2] + int(late),
        ]  # fmt: skip
    kinds = [kind["kind"] for kind in drawn["kinds"]]
    numbers = {name: -1 if name == "server" else int(name[6:]) for name in drawn["parties"]}
    found = {
        (kinds[kind], numbers[drawn["parties"][a]], numbers[drawn["parties"][b]]): sums
        for kind, a, b, *sums in drawn["cells"]
    }
    assert found == expected
    assert drawn["bytes"] == faulty.transcript.bytes


def test_bars_are_the_delays_that_the_conditions_say(plain):
    """Without a limit of bandwidth a message is under way exactly as long as it is delayed."""
    found = timeline(read_records([plain.folder])[0])
    server, *clients = found["lanes"]
    rounds = range(1, 9)
    assert found["first"] == found["last"] == list(rounds)
    delay = plain.spec.conditions.delay
    drawn = {n: [delay(0, n, r, "upload") / 1e9 for r in rounds] for n in range(4)}
    for lane, row in zip(clients, found["table"][1:], strict=True):
        own = drawn[lane["party"]]
        assert lane["bars"] == pytest.approx(own, abs=2e-9)
        assert row["mean"] == pytest.approx(math.fsum(own) / 8)
        assert row["largest"] == pytest.approx(max(own))
        slowest = [max(drawn, key=lambda n, r=r: drawn[n][r]) for r in range(8)]
        assert row["slowest"] == slowest.count(lane["party"])
    assert server["bars"] == pytest.approx([max(at) for at in zip(*drawn.values(), strict=True)])


def test_breakdowns_and_late_messages_are_those_of_the_events(faulty):
    found = timeline(read_records([faulty.folder])[0])
    events = Counter((event["event"], event["party"]) for event in faulty.events)
    assert events["down", 3] >= 1
    for lane, row in zip(found["lanes"], found["table"], strict=True):
        party = lane["party"]
        starts = [e["time"] for e in faulty.events if (e["event"], e["party"]) == ("down", party)]
        ends = [e["time"] for e in faulty.events if (e["event"], e["party"]) == ("up", party)]
        assert [a for a, _ in lane["down"]] == starts
        assert [b for _, b in lane["down"] if b is not None] == ends
        assert row["crashes"] == events["down", party]
        assert sum(lane["late"]) == row["late"] == events["late", party]
        assert sum(lane["lost"]) == row["lost"] == events["lost", party]
    assert found["ends"][-1] == pytest.approx(faulty.history[-1]["time"])
    assert found["lanes"][3]["down"][-1][1] is None, "party 2 stays away"


def test_messages_make_the_columns(tmp_path):
    """A column goes from the first message of a round to that of the next, given-up ones too."""
    messages = [
        (0, "data", 0, 1, 0.0, 0.5, False),
        (1, "up", 0, -1, 0.5, 0.9, False),
        (1, "up", 1, -1, 0.6, 1.5, True),
        (2, "up", 0, -1, 1.25, 2.0, True),
        (3, "up", 0, -1, 1.75, 2.25, False),
    ]
    folder = write_run(tmp_path / "run", TWO_ROWS, messages=messages)
    found = timeline(read_records([folder])[0])
    assert (found["ends"], found["last"]) == ([0.5, 1.25, 1.75, 2.5], [0, 1, 2, 3])
    server, zero, one = found["lanes"]
    assert server["bars"] == [0.5, 0.75, 0.5, 0.75]
    assert zero["bars"] == pytest.approx([0.0, 0.4, 0.75, 0.5])
    assert one["bars"] == pytest.approx([0.0, 0.9, 0.0, 0.0])
    assert (zero["late"], one["late"]) == ([0, 0, 0, 1], [0, 0, 1, 0])
    assert [row["slowest"] for row in found["table"]] == [None, 2, 1]


def test_rounds_that_do_not_follow_one_another_are_no_columns(tmp_path):
    messages = [(2, "up", 0, -1, 0.0, 0.5, False), (1, "up", 1, -1, 1.0, 2.0, True)]
    found = timeline(read_records([write_run(tmp_path / "run", TWO_ROWS, messages=messages)])[0])
    assert found["last"] == []
    assert len(set(map(len, (found["ends"], *(lane["late"] for lane in found["lanes"]))))) == 1
    assert found["lanes"][2]["late"].index(1) / len(found["ends"]) == pytest.approx(0.8, abs=0.02)


def test_long_histories_share_columns_and_keep_every_evaluation(tmp_path):
    rows = [{"step": n + 1, "time": float(n + 1), "loss": 1 / (n + 1)} for n in range(4001)]
    for place in (7, 1999, 4000):
        rows[place]["accuracy"] = place / 4001
    record = read_records([write_run(tmp_path / "run", rows)])[0]
    drawn = curves(record)
    assert drawn["every"] == 3
    assert [v for v in drawn["accuracy"] if v is not None] == [p / 4001 for p in (7, 1999, 4000)]
    assert len(drawn["loss"]) < 1400
    found = timeline(record)
    assert found["step"] == 17
    assert len(found["ends"]) <= CELLS
    assert (found["first"][0], found["last"][0], found["last"][-1]) == (1, 17, 4001)
    assert found["lanes"][0]["bars"] == pytest.approx([1.0] * len(found["ends"]))


def test_one_value_is_no_curve(tmp_path):
    rows = [{"step": n, "time": 1.0 * n, "loss": 1 / n} for n in (1, 2, 3)]
    rows[-1] |= {"accuracy": 0.9}
    (record,) = read_records([write_run(tmp_path / "once", rows)])
    assert measures_of([record]) == ["loss"]
    (record,) = read_records([write_run(tmp_path / "only", rows[-1:])])
    assert measures_of([record]) == ["accuracy", "loss"]


def test_values_that_are_no_numbers_leave_gaps(tmp_path):
    rows = [{**TWO_ROWS[0], "loss": math.nan}, {**TWO_ROWS[1], "loss": 1.0}]
    text = page(write_run(tmp_path / "run", rows), out=tmp_path / "r.html")
    assert embedded(text)["runs"][0]["curves"]["loss"] == [None, 1.0]


def test_settings_have_all_their_digits(plain, tmp_path):
    text = page(plain.folder, out=tmp_path / "r.html")
    for name, value in (("options.lr", "0.01"), ("sealed", "true"), ("options.width", "4")):
        assert f"<code>{name}</code></th><td>{value}</td>" in text
    assert "<td>[0.1, 0.1, 2.0, 3.0]</td>" in text


def test_stretches_of_a_party_that_is_down():
    def event(name, time):
        return {"event": name, "time": time}

    assert down_times([]) == []
    assert down_times([event("down", 1.0), event("up", 2.0), event("down", 3.0)]) == [
        [1.0, 2.0], [3.0, None],
    ]  # fmt: skip


def test_a_run_without_any_delay_has_no_time_to_draw(tmp_path):
    rows = [{**row, "time": 0.0} for row in TWO_ROWS]
    messages = [(1, "up", 0, -1, 0.0, 0.0, False), (2, "up", 0, -1, 0.0, 0.0, False)]
    folder = write_run(tmp_path / "run", rows, messages=messages)
    assert timeline(read_records([folder])[0])["last"] == [1, 2]
    text = page(folder, out=tmp_path / "r.html")
    assert "Nothing took virtual time" in text
    assert 'value="step" checked' in text


def test_late_messages_on_a_cluster_are_those_that_receivers_tell(tmp_path):
    """Senders know no arrivals there; setup may overlap with round 1; time is real."""
    transcript = Transcript()
    for round_, kind, sender, receiver, sent in (
        (0, "data", 0, 1, 2), (1, "round", -1, 0, 1), (1, "up", 0, -1, 2), (2, "round", -1, 0, 5),
    ):  # fmt: skip
        transcript.add(sender, receiver, kind, round_, 10, sent * 10**8, None)
    told = {"event": "late", "party": -1, "round": 2, "time": 0.75, "kind": "up", "sender": 0}
    folder = write_run(tmp_path / "run", TWO_ROWS, events=[told])
    (folder / "config.toml").write_text("engine = 'ray'\n" + (folder / "config.toml").read_text())
    write_transcript(folder, transcript)
    record = read_records([folder])[0]
    found = timeline(record)
    assert (found["ends"], found["last"]) == ([0.5, 2.5], [1, 2])
    assert [lane["late"] for lane in found["lanes"]] == [[0, 0], [0, 1], [0, 0]]
    assert [lane["bars"] for lane in found["lanes"]] == [[0.5, 2.0], None, None]
    late = {kind["kind"]: kind["late"] for kind in links(record)["kinds"]}
    assert late == {"data": 0, "round": 0, "up": 1}
    assert '"clock":"real time"' in page(folder, out=tmp_path / "r.html")


def test_asynchronous_runs_show_who_was_used_when(tmp_path):
    run = svfl.run("vafl", DIGITS, rounds=30, conditions=CONDITIONS, out=tmp_path / "run", **SMALL)
    found = timeline(read_records([run.folder])[0])
    used = Counter(row["client"] for row in run.history)
    assert found["used"]
    for lane, row in zip(found["lanes"][1:], found["table"][1:], strict=True):
        assert sum(lane["bars"]) == row["used"] == used[lane["party"]]


# -- claims --------------------------------------------------------------------------------------


def verified(folder: Path, **changes: Any) -> Path:
    claims = [{**CLAIM, "verdict": "PROVED", "evidence": "a; b", "failure_probability": None}]
    report = {"protocol": "fedvs", "parameters": {"N": 4, "K": 1}, "claims": claims, **changes}
    folder.joinpath("verify.json").write_text(json.dumps(report))
    return folder / "verify.json"


def verdicts(text: str) -> list[str]:
    return re.findall(r'class="badge v-[a-z-]+">([^<]*)<', text)


@pytest.mark.parametrize(("visits", "state"), [(3, "below"), (4, "beyond"), (7, "spanned")])
def test_what_sums_told_is_coloured_and_stands_with_the_claims(visits, state, tmp_path):
    told = Odometer(4, 13, 27, visits, 9, 10, budget=False)
    folders = []
    for name in ("a", "b"):
        tells = f"What these sums tell: {told.sentence()}"
        granted = {
            "given": ["decoded sums"],
            "tells": tells,
            "source": f"{CLAIM['source']}. {tells}",
        }
        folder = write_run(tmp_path / name, TWO_ROWS, claims=[{**CLAIM, **granted}])
        summary = json.loads((folder / "summary.json").read_text())
        notices = [f"{TOLD}: {told.sentence()}", "another"]
        summary |= {"released": told.to_dict(), "notices": notices}
        (folder / "summary.json").write_text(json.dumps(summary))
        folders.append(folder)
    text = page(folders[0], out=tmp_path / "one.html")
    assert text.count(f'data-sums="{state}"') == 1
    assert text.count(told.sentence()) == 1
    assert "What these sums tell stands above" in text
    assert "<p>Another.</p>" in text
    assert "<td>perfect, given decoded sums</td>" in text
    assert ("To stay below: width &lt;= 1" in text) is (state != "below")
    path = folders[1] / "summary.json"
    summary = json.loads(path.read_text())
    summary["claims"] += [{**CLAIM, "notion": "undetermined", "given": ["something else"]}]
    path.write_text(json.dumps(summary))
    both = page(*folders, out=tmp_path / "two.html")
    assert both.count("perfect, given decoded sums<br>") == 2
    assert both.count("undetermined, given something else<br>") == 1  # beside the other claim
    assert both.count(f"{4 * visits} equations, 13 unknowns") == 2
    assert "equations per unknown" in both


def test_claims_without_a_verification_say_so(tmp_path):
    claims = [CLAIM, {**CLAIM, "about": "labels", "notion": "none"}]
    folder = write_run(tmp_path / "run", TWO_ROWS, claims=claims)
    written = write_report([folder])
    assert [text.partition(";")[0] for text in written.missing] == [
        "no verdicts for fedvs",
        "no messages of fedvs",
    ]
    assert verdicts(written.path.read_text()) == ["not verified", "not protected"]


def test_verdicts_come_from_the_folder_or_from_a_file(tmp_path):
    claims = [CLAIM, {**CLAIM, "about": "model"}]
    folder = write_run(
        tmp_path / "run", TWO_ROWS, claims=claims, config="[derived]\nN = 4\nK = 2\n"
    )
    file = verified(tmp_path, parameters={"N": 4, "K": 2, "batch_rows": 7, "epsilon_round": 9})
    given = page(folder, out=tmp_path / "r.html", verifications=[file])
    assert verdicts(given) == ["PROVED", "not verified"]
    verified(folder, parameters={})
    assert verdicts(page(folder, out=tmp_path / "r.html")) == ["PROVED", "not verified"]


def test_a_claim_is_shown_with_what_its_proof_grants(tmp_path):
    folder = write_run(tmp_path / "run", TWO_ROWS, claims=[{**CLAIM, "given": ["decoded sums"]}])
    proved = {**CLAIM, "given": ["decoded sums", "ideal PRF"], "verdict": "PROVED"}
    file = verified(tmp_path, parameters={}, claims=[{**proved, "evidence": "a"}])
    text = page(folder, out=tmp_path / "r.html", verifications=[file])
    assert "perfect, given decoded sums, ideal PRF" in text


def test_a_verdict_on_other_parameters_is_none_on_the_run(tmp_path):
    folder = write_run(
        tmp_path / "run", TWO_ROWS, claims=[CLAIM], config="[derived]\nN = 4\nK = 2\n"
    )
    text = page(folder, out=tmp_path / "r.html", verifications=[verified(tmp_path)])
    assert verdicts(text) == ["not verified", "PROVED"]
    assert text.index("not verified</span>") < text.index("Verdicts on other parameters (1)")
    assert "K = 1 (run: 2)" in text
    assert "N = 4 (run" not in text


@pytest.mark.parametrize("notion", ["computational", "none"])
def test_a_verdict_is_none_on_a_claim_of_another_strength(notion, tmp_path):
    """As after `verify --plain`, which holds the paper's claims against the plain protocol."""
    folder = write_run(tmp_path / "run", TWO_ROWS, claims=[{**CLAIM, "notion": notion}])
    file = verified(folder)
    file.write_text(file.read_text().replace("PROVED", "VIOLATED"))
    text = page(folder, out=tmp_path / "r.html")
    first = "not protected" if notion == "none" else "not verified"
    assert verdicts(text) == [first, "VIOLATED"]
    assert "claims, which this run does not make (1)" in text


def test_epsilon_is_what_the_last_round_says(tmp_path):
    run = svfl.run(
        "wait_dp", DIGITS, rounds=3, noise="seeded", conditions="none", out=tmp_path / "run",
        **SMALL,
    )  # fmt: skip
    text = page(run.folder, out=tmp_path / "r.html")
    spent = run.history[-1]["epsilon_total"]
    assert f"Epsilon: {value_text(spent)} spent at the end of the run" in text
    drawn = embedded(text)["runs"][0]["curves"]
    assert drawn["epsilon_total"] == [row["epsilon_total"] for row in run.history]


# -- repeating -----------------------------------------------------------------------------------


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("which", ["faulty", "plain"])
def test_the_command_of_the_page_repeats_the_run(which, request, tmp_path, monkeypatch):
    run = request.getfixturevalue(which)
    made = how_to_reproduce(tomllib.loads((run.folder / "config.toml").read_text()))
    monkeypatch.chdir(tmp_path)
    for name, text in made.files.items():
        Path(name).write_text(text)
    words = shlex.split(made.command)
    assert words[0] == "securevfl"
    done = CliRunner().invoke(app, [*words[1:], "--out", "again"])
    assert done.exit_code == 0, done.output
    assert rows_of(Path("again")) == rows_of(run.folder)
    assert made.notes == []


def test_the_page_says_with_what_a_run_was_made(plain, tmp_path):
    text = page(plain.folder, out=tmp_path / "r.html")
    config = tomllib.loads((plain.folder / "config.toml").read_text())
    assert config["versions"]["numpy"] == np.__version__
    said = ", ".join(f"{name} {number}" for name, number in config["versions"].items())
    assert f"Run with securevfl {svfl.__version__}, {said}." in text


def test_the_command_names_options_that_are_not_the_default():
    config = {
        "protocol": "fedvs", "seed": 3, "until": 4.5, "sealed": False, "eval_every": 7,
        "options": {"rounds": 60, "masked": False, "lr": 0.05, "batch": 128, "prime": 2**31 - 1},
        "data": {"name": "my file.csv", "options": {"seed": 4, "label": "y", "scaling": "none"}},
        "conditions": {"name": "none"},
    }  # fmt: skip
    made = how_to_reproduce(config)
    assert made.command == (
        "securevfl run fedvs --data 'my file.csv' --label y --set 'data.scaling=\"none\"' "
        "--rounds 60 --no-masked --lr 0.05 --batch 128 --prime 2147483647 --seed 3 "
        "--conditions none --until 4.5 --unsealed"
    )
    assert "another seed" in made.notes[0]
    assert "every 7 rounds" in made.notes[1]


def test_a_session_is_repeated_by_another_manifest():
    config = {
        "protocol": "split", "seed": 2, "engine": "organisations",
        "options": {"rounds": 7, "width": 16}, "data": {},
        "organisation": {
            "party": -1, "parties": 2,
            "data": {"tables": {"label": "bad", "id_column": "who", "test_fraction": 0.25}},
        },
    }  # fmt: skip
    made = how_to_reproduce(config)
    assert made.command == (
        "securevfl keys manifest again.toml --server server.key.pub --party 0=party-0.key.pub "
        "--party 1=party-1.key.pub --protocol split --seed 2 --label bad --id who "
        "--set data.test_fraction=0.25 --set rounds=7 --set width=16"
    )
    assert "A session is carried out once" in made.notes[0]
    assert len(made.notes) == 1


def test_what_a_command_cannot_say_is_said():
    made = how_to_reproduce({"protocol": "mine", "seed": 0, "options": {"a": True}, "data": {}})
    words = "securevfl run mine --set a=true --seed 0 --conditions conditions"
    assert made.command == words
    assert "data set object" in made.notes[0]
    assert "not installed" in made.notes[1]


# -- several runs --------------------------------------------------------------------------------


def test_runs_get_the_shortest_names_that_differ(faulty, plain, tmp_path):
    def labels(*folders):
        return [record.label for record in read_records(folders)]

    one, two = (write_run(tmp_path / name, TWO_ROWS) for name in ("one", "two"))
    assert labels(faulty.folder, plain.folder) == ["fedvs", "split"]
    assert labels(one, two) == ["fedvs in one", "fedvs in two"]
    assert labels(one, plain.folder, two) == ["fedvs in one", "split", "fedvs in two"]
    assert labels(one, Path(one, "..", "one")) == ["fedvs (1)", "fedvs (2)"]
    config = (two / "config.toml").read_text().replace("seed = 0", "seed = 1")
    (two / "config.toml").write_text(config)
    assert labels(one, two) == ["fedvs, seed 0", "fedvs, seed 1"]


def test_different_data_are_said(plain, tmp_path):
    other = write_run(tmp_path / "run", TWO_ROWS, dataset="other")
    warning = "not trained on the same data"
    assert warning in page(plain.folder, other, out=tmp_path / "r.html")
    same = write_run(tmp_path / "same", TWO_ROWS, dataset="other")
    assert warning not in page(other, same, out=tmp_path / "r.html")


def test_a_study_is_drawn_from_its_jobs(tmp_path):
    made = comparison(
        ["split", "vafl"], DIGITS, options=SMALL | {"rounds": 6}, seeds=range(2),
        conditions="none", faults=None, until=None, sealed=True,
    )  # fmt: skip
    run_study(made, tmp_path / "study")
    text = page(tmp_path / "study", out=tmp_path / "r.html")
    drawn = embedded(text)
    assert drawn["groups"] == ["split", "vafl"]
    assert [run["label"] for run in drawn["runs"]][:2] == ["split, seed 0", "split, seed 1"]
    with (tmp_path / "study" / "curves.csv").open(newline="") as file:
        table = [row for row in csv.DictReader(file) if (row["run"], row["seed"]) == ("vafl", "1")]
    assert drawn["runs"][3]["curves"]["accuracy"] == [float(row["accuracy"]) for row in table]
    assert drawn["runs"][0]["timeline"] is None
    results = json.loads((tmp_path / "study" / "results.json").read_text())
    for label, group in (("split", 0), ("vafl", 1)):
        found = results["runs"][label]["test_accuracy"]
        said = f"{100 * found['mean']:.2f} % ± {100 * found['half_width_95']:.2f} %"
        assert f'data-figure="test_accuracy" data-group="{group}">{said}<' in text
    assert "securevfl run vafl" in re.sub("<[^>]*>", "", text)


# -- mistakes ------------------------------------------------------------------------------------


def without(name: str):
    return lambda folder: (folder / name).unlink()


def text_in(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


MISTAKES = {
    "no config": (without("config.toml"), ConfigurationError, "no run: it holds no config.toml"),
    "not ended": (without("history.jsonl"), ConfigurationError, "securevfl resume"),
    "no rows": (text_in("history.jsonl", "\n"), ConfigurationError, "at least one round"),
    "bad TOML": (text_in("config.toml", "a = "), DataError, "not valid TOML"),
    "old format": (text_in("config.toml", "format = 0"), DataError, "has format 0"),
    "no table": (
        text_in("config.toml", "format = 1\nprotocol = 'fedvs'\nconditions = 3"), DataError,
        "a table each of",
    ),
    "bad verdicts": (
        text_in("verify.json", '{"protocol": "fedvs", "claims": [{"verdict": "PROVED"}]}'),
        DataError, "no output of `securevfl verify",
    ),
    "bad line": (text_in("history.jsonl", "{}\n"), DataError, "line 1 is no event"),
    "no JSON": (text_in("history.jsonl", "{\n"), DataError, "line 1 is not valid JSON"),
    "no text": (
        lambda folder: (folder / "history.jsonl").write_bytes(b"\xff"), DataError, "is no text",
    ),
    "messages": (text_in("messages.npz", "none"), CheckpointError, "messages.npz is damaged"),
    "columns": (
        lambda folder: np.savez(folder / "messages.npz", kinds=np.array(["a"])), CheckpointError,
        "other columns",
    ),
    "claims": (text_in("summary.json", '{"claims": [3]}'), DataError, "claims"),
    "released": (text_in("summary.json", '{"released": [3]}'), DataError, "'released' without"),
    "verify": (text_in("verify.json", "{}"), DataError, "no output of `securevfl verify"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_folder_that_cannot_be_reported_is_explained(name, tmp_path):
    spoil, error, part = MISTAKES[name]
    folder = write_run(tmp_path / "run", TWO_ROWS)
    spoil(folder)
    with pytest.raises(error, match=re.escape(part)):
        write_report([folder])
    assert not (folder / "report.html").exists()


def test_a_folder_of_runs_names_one_of_them(tmp_path):
    write_run(tmp_path / "runs" / "fedvs-1", TWO_ROWS)
    with pytest.raises(ConfigurationError, match=r"such as .*fedvs-1; name one"):
        write_report([tmp_path / "runs"])
    with pytest.raises(ConfigurationError, match="does not exist"):
        write_report([tmp_path / "nowhere"])
    (tmp_path / "study" / "jobs").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="go on with the study"):
        write_report([tmp_path / "study"])
    (tmp_path / "study" / "results.json").write_text('{"settings": {"a": {}}}')
    with pytest.raises(ConfigurationError, match="holds no run that ended"):
        write_report([tmp_path / "study"])
    (tmp_path / "study" / "jobs" / "a-0.json").write_text('{"label": "a", "curve": [1]}')
    with pytest.raises(DataError, match="is no result of a study"):
        write_report([tmp_path / "study"])


def test_other_files_are_left_alone(tmp_path):
    folder = write_run(tmp_path / "run", TWO_ROWS)
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    with pytest.raises(ConfigurationError, match="is there and is no report"):
        write_report([folder], out=tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"
    with pytest.raises(ConfigurationError, match=r"ending \.html"):
        write_report([folder], out=tmp_path / "page.txt")
    write_report([folder], out=tmp_path / "new.html")
    write_report([folder], out=tmp_path / "new.html")


def test_a_verification_of_another_protocol_is_refused(tmp_path):
    folder = write_run(tmp_path / "run", TWO_ROWS)
    file = verified(tmp_path, protocol="split")
    with pytest.raises(ConfigurationError, match="none of the runs is one of it"):
        write_report([folder], verifications=[file])


# -- the command ---------------------------------------------------------------------------------


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)], prog_name="securevfl")


def test_a_link_in_a_folder_is_replaced_and_not_followed(tmp_path):
    folder = write_run(tmp_path / "run", TWO_ROWS)
    elsewhere = tmp_path / "elsewhere.html"
    (folder / "report.html").symlink_to(elsewhere)
    write_report([folder])
    assert not elsewhere.exists()
    assert (folder / "report.html").is_file()


def test_messages_that_would_fill_the_memory_are_not_read(plain, tmp_path, monkeypatch):
    monkeypatch.setattr("securevfl.reading._SHARE", 2**62)
    with pytest.raises(CheckpointError, match=r"messages.npz is too large: .* may be used here"):
        write_report([plain.folder], out=tmp_path / "page.html")


def test_the_page_goes_into_the_folder_of_a_run(tmp_path):
    folder = write_run(tmp_path / "run", TWO_ROWS)
    done = call(folder, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["report"] == str(folder / "report.html")
    assert told["bytes"] == (folder / "report.html").stat().st_size
    assert told["runs"] == ["fedvs"]


def test_a_comparison_goes_here_or_where_it_is_told(tmp_path, monkeypatch):
    one, two = (write_run(tmp_path / name, TWO_ROWS) for name in ("one", "two"))
    monkeypatch.chdir(tmp_path)
    assert call(one, two).exit_code == 0
    assert (tmp_path / "report.html").exists()
    assert call(one, two, "--out", "both.html").exit_code == 0
    assert (tmp_path / "both.html").exists()


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, monkeypatch):
    monkeypatch.setattr(displays, "PATIENCE", 600.0)  # on a busy machine it may say what it does
    done = call(tmp_path / "nowhere")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "does not exist" in done.stderr


def test_claims_of_a_run_are_those_of_its_summary(plain, tmp_path):
    text = page(plain.folder, out=tmp_path / "r.html")
    for claim in plain.claims:
        for part in (claim.who, claim.source):
            assert part.replace("'", "&#39;") in text, asdict(claim)
