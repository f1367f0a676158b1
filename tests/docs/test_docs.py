"""Every code block of the README and of the documentation runs, in a small size.

Blocks without a language are lines of a shell: commands of `securevfl` run in this process, in a
folder that has the files that they name, with sizes put after their own options. A block that
cannot run here says so in a comment before it, ``<!-- not run: REASON -->``, or of some lines only,
``<!-- not run, "PREFIX": REASON -->``; the number of lines that are not run is pinned below, and
commands among them must still be understood by the command line.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import galois
import pytest
from typer.testing import CliRunner

import securevfl
from securevfl.cli import output, studies, verify
from securevfl.cli import run as start
from securevfl.cli.app import app
from securevfl.protocols.base.registry import find_protocols
from securevfl.runs.organisations import invitation, join, prediction, relay
from tests.docs.pages import committed_pages

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(str(path.relative_to(ROOT)) for path in committed_pages("**/*.md")),
]
NOT_RUN = 41

# Put after a command's own options, where the last one counts.
SMALL = {
    "compare": "--rounds 2 --seeds 1 --workers 1",
    "study": "--workers 1",
    "verify shared_sum": "--parties 3",
    "run dvfl": "--batch 256",  # its parties train for five epochs in each round
    "bench scale": "--protocols split --parties 2 --rows '' --features '' --rounds ''",
    "bench threshold": "--until 1 --kinds slow --parties 6 --counts 1 --seeds 1 --workers 1",
    "bench decoding": "--parties 6 --privacy 1 --segments 2 --tries 1 --time-parties 6 --rounds 2",
}
SIZES = {  # of the protocols that have them
    "rounds": 2, "batch": 32, "width": 8, "hidden": 8, "pretrain_epochs": 1, "local_rounds": 2,
    "guest_epochs": 5, "host_epochs": 5, "host_width": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    Attributes
    ----------
    document : str
    line : int
    language : str
    text : str
    notes : str
        Comments on the lines directly before it.
    """

    document: str
    line: int
    language: str
    text: str
    notes: str

    @property
    def skipped(self) -> list[str]:
        """What begins the lines that are not run; an empty text for all of them."""
        return re.findall(r'<!-- not run(?:, "([^"]+)")?: \S', self.notes)

    def lines(self) -> Iterator[tuple[str, bool]]:
        """Lines of a shell without their comments, and whether each is run."""
        for line in re.sub(r"\\\n\s*", "", self.text).splitlines():
            words = re.sub(r"(^|\s+)#.*", "", line).strip()
            if words:
                yield words, not words.startswith(tuple(self.skipped))


def blocks(document: str) -> list[Block]:
    """All blocks but directives of the site."""
    found, opened, notes, body = [], None, "", []
    for number, line in enumerate(ROOT.joinpath(document).read_text().splitlines(), 1):
        if opened is None and line.startswith("```"):
            opened, body = (number, line[3:].strip()), []
        elif opened is not None and line.startswith("```"):
            if not opened[1].startswith("{"):
                text = "\n".join(body) + "\n"
                found.append(Block(document, *opened, text, notes))
            opened, notes = None, ""
        elif opened is not None:
            body.append(line)
        elif line.startswith("<!--"):
            notes += line
        elif line.strip():
            notes = ""
    return found


BLOCKS = {document: blocks(document) for document in DOCUMENTS}
ALL = [block for found in BLOCKS.values() for block in found]


def shell_lines(*, run: bool) -> list[str]:
    """Commands that are run, or those that are not."""
    return [line for b in ALL if b.language == "" for line, runs in b.lines() if runs == run]


# -- what they need --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with every file that a document names."""
    folder = tmp_path_factory.mktemp("documents")
    tables(folder)
    (faults,) = (b.text for b in BLOCKS["docs/faults.md"] if b.language == "toml")
    (study,) = (b.text for b in BLOCKS["docs/stragglers.md"] if b.language == "toml")
    tomllib.loads(faults)
    folder.joinpath("faults.toml").write_text(faults)
    study = study.replace('"handwritten"', '"digits"').replace("seeds = 5", "seeds = 1")
    study = study.replace("until = 300.0", "until = 2.0").replace("[50, 100, 200, 300]", "[1, 2]")
    study = study.replace("seeds = 2\nuntil = 30.0", "until = 2.0")
    folder.joinpath("FILE.toml").write_text(study)
    folder.joinpath("mine.toml").write_text("bandwidth = 1e8\n")
    for name in ("server", "party-0"):
        run_line(f"securevfl keys new {folder / name}.key")
    stopped(folder / "runs" / "fedvs-digits-20260101-120000")
    return folder


def tables(folder: Path) -> None:
    """CSV files of 64 people: one owner's, and those of three parties, under the names used."""
    from sklearn.datasets import load_breast_cancer

    frame = load_breast_cancer(as_frame=True).frame.iloc[:64]
    label = frame.pop("target")
    for name in ("income", "default", "defaulted"):
        frame[name] = label
    frame.drop(columns=["default", "defaulted"]).to_csv(folder / "own.csv", index=False)
    features = list(frame.columns[:30])
    for name in ("customer", "user_id"):
        frame[name] = [f"p{n}" for n in frame.index]
    ids = ["customer", "user_id"]
    frame[[*ids, *features[:5], "defaulted"]].to_csv(folder / "bank.csv", index=False)
    frame[[*ids, *features[5:10]]].to_csv(folder / "shop.csv", index=False)
    frame[[*ids, *features[10:15]]].to_csv(folder / "phone.csv", index=False)
    frame[["user_id", "default"]].to_csv(folder / "y.csv", index=False)


def stopped(folder: Path) -> None:
    """A run that was interrupted in its second round."""
    told: list[Any] = []
    with pytest.raises(securevfl.Interrupted):
        securevfl.run(
            "fedvs", rounds=4, batch=32, width=8, hidden=8, out=folder, progress=told.append,
            interrupted=lambda: len(told) > 1,
        )  # fmt: skip


def reported() -> None:
    """Finished runs, a study and a verification, where the page on reports has them."""
    for name in ("fedvs", "split", "vafl"):
        run_line(f"securevfl run {name} --out runs/{name}")
    run_line("securevfl study FILE.toml --quick --out runs/study-delays")
    claims = {"protocol": "fedvs", "parameters": {}, "claims": [], "shown": [], "not_covered": []}
    Path("verify.json").write_text(json.dumps(claims))


# -- running ---------------------------------------------------------------------------------------


def small(line: str) -> list[str]:
    """Arguments of a command of `securevfl`, with small sizes."""
    words = shlex.split(line)[1:]
    if words[0] == "run":
        known = find_protocols()[words[1].partition(":")[0]].Config.model_fields
        for name, size in SIZES.items():
            words += [f"--{name.replace('_', '-')}", str(size)] if name in known else []
    for name, options in SMALL.items():
        if words[: len(name.split())] == name.split():
            words += ["--until", "2"] if "--until" in words else []
            words += shlex.split(options)
    return words


def few_rounds(words: re.Match[str]) -> str:
    """Rounds of a run of Python, as few as they may be."""
    return f"rounds={min(int(words[0][7:]), 5)}"


def run_line(line: str) -> None:
    """Run a line of a shell, or see that another test does."""
    words = shlex.split(line)
    if words[0] == "python":
        assert words[1].startswith("examples/"), f"{line}: mark it as not run, with a reason"
        assert ROOT.joinpath(words[1]).is_file()  # tests/docs/test_examples.py runs them all
        return
    assert words[0] == "securevfl", f"{line}: mark it as not run, with a reason"
    done = CliRunner().invoke(app, small(line))
    assert done.exit_code == 0, f"{line}\n{done.output}"


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("document", [name for name, found in BLOCKS.items() if found])
def test_every_block_runs(document, prepared, tmp_path, monkeypatch, capsys, request):
    folder = shutil.copytree(prepared, tmp_path / "folder")
    monkeypatch.chdir(folder)
    # Most of the time of a small study or report is that of its pictures, which other tests see.
    monkeypatch.setattr("securevfl.runs.plots.draw_study", lambda _, path, **_more: path.touch())
    monkeypatch.setattr("securevfl.report.pictures.inline", lambda _figure: "data:,")
    monkeypatch.setattr("securevfl.report.pictures.write_pictures", lambda *_given: [])
    monkeypatch.setattr(
        "securevfl.bench.decoding.draw_threshold", lambda _, path, *_more: path.touch()
    )
    if any("securevfl report runs/fedvs" in block.text for block in BLOCKS[document]):
        reported()
    if document == "docs/ecosystem.md":
        galois.GF(2**31 - 1, compile="python-calculate")  # two products need no compiled ones
    if document == "docs/own-protocol.md":
        request.getfixturevalue("own_page")
    if document == "docs/extending.md":
        for kind in ("protocol", "attack", "verifier", "dataset", "conditions"):
            request.getfixturevalue("install")(f"own_{kind}")
    names: dict[str, Any] = {"__name__": "documents"}
    for block in BLOCKS[document]:
        if "" in block.skipped:
            continue
        source = re.search(r"<!-- from (\S+) -->", block.notes)
        if source is not None:
            assert block.text in ROOT.joinpath(source[1]).read_text(), f"{document}:{block.line}"
        elif block.language == "python":
            lines = "\n" * block.line + re.sub(r"\brounds=\d+", few_rounds, block.text)
            exec(compile(lines, document, "exec"), names)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "":
            for line, runs in block.lines():
                if runs:
                    run_line(line)
        else:
            assert block.language == "text", f"{document}:{block.line}: {block.language}"


def test_the_number_of_lines_that_are_not_run():
    whole = [b for b in ALL if b.language != "" and b.skipped]
    assert len(shell_lines(run=False)) + len(whole) == NOT_RUN


def test_no_block_is_hidden_by_indentation():
    for document in DOCUMENTS:
        text = re.sub(r"^```.*?^```", "", ROOT.joinpath(document).read_text(), flags=re.S | re.M)
        assert not re.search(r"^    (securevfl|python|pip|import|from|@)\b", text, re.M), document


@pytest.mark.parametrize(
    "line", [line for line in shell_lines(run=False) if line.startswith("securevfl ")]
)
def test_commands_that_are_not_run_are_understood(line, monkeypatch, tmp_path):
    if line.startswith("securevfl verify runs/"):
        monkeypatch.chdir(tmp_path)
        securevfl.run("fedvs", rounds=1, conditions="none", out=line.split()[2])
    called: list[Any] = []
    note = lambda *arguments, **options: called.append(arguments)  # noqa: E731
    monkeypatch.setattr(start, "start", note)
    monkeypatch.setattr(start, "go_on", note)
    monkeypatch.setattr(verify, "start", note)
    monkeypatch.setattr(studies, "compare", note)
    for name in ("start", "init"):
        monkeypatch.setattr(relay, name, lambda *arguments: called.append(arguments) or {})
    liar = SimpleNamespace(party=-1, why="it lied")
    judged = lambda *arguments: called.append(arguments) or liar  # noqa: E731
    monkeypatch.setattr("securevfl.runs.evidence.judged", judged)
    server = invitation.Invitation(-1, "session", b"digest", ())
    monkeypatch.setattr(invitation.Invitation, "parse", lambda text: server)
    monkeypatch.setattr(join, "join", lambda found, **options: called.append(found) or {})
    predicted = lambda found, **options: called.append(found) or {"predicted_rows": 1}  # noqa: E731
    monkeypatch.setattr(prediction, "predict", predicted)
    monkeypatch.setattr(output, "print_brief", called.append)
    result = CliRunner().invoke(app, shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    assert called


def test_a_line_that_fails_is_found():
    with pytest.raises(AssertionError, match="unknown option"):
        run_line("securevfl run split --nonsense 3")
    with pytest.raises(AssertionError, match="mark it"):
        run_line("pip install securevfl")
