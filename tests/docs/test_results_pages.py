"""Pages of results are those that the scripts write from the stored results."""

import functools
import importlib
import io
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from typer.main import get_command

from securevfl.cli.app import app

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.stem for path in ROOT.glob("benchmarks/*_page.py"))
STUDIES_OF_SITE = "results-"  # how names of pages begin that are not committed


def git(*words, **options):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, **options)


needs_git = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs a checkout"
)


@pytest.fixture
def benchmarks(monkeypatch):
    """Modules of the folder, by name."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


@functools.cache
def written_by(script):
    """Texts of a script's pages by path, and the files that it opened."""
    opened, real = set(), io.open

    def noted(file, *arguments, **options):
        opened.add(Path(file).resolve() if isinstance(file, str | Path) else file)
        return real(file, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.syspath_prepend(ROOT / "benchmarks")
        patch.setattr(io, "open", noted)
        build = importlib.import_module("build")
        return dict(build.texts([script.removesuffix("_page")])), opened


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_page_is_what_its_script_writes(script, benchmarks):
    """Committed pages hold that text; what is built for the site is whole, and leads somewhere."""
    written, _ = written_by(script)
    assert written
    for page, text in written.items():
        if page.name.startswith(STUDIES_OF_SITE):
            a_built_page_is_whole(page, text)
            pictures_can_be_drawn(text, benchmarks)
        else:
            command = f"PYTHONPATH=. python benchmarks/build.py {script.removesuffix('_page')}"
            assert page.read_text() == text, command
        if script != "words_page":  # which are written by hand
            assert f"benchmarks/{script}.py" in text  # it says what to change instead


def a_built_page_is_whole(page, text):
    assert text.startswith("# ")
    assert text.endswith("\n")
    assert len(text.split()) > 500
    assert re.findall(r"\b(?:nan|NaN|None|inf)\b", text) == []
    # Its folder is docs/, where it has the other pages beside it.
    targets = set(re.findall(r"(?<!!)\[[^\]]*\]\((?!https?:|#)([^)#\s]+)", text))
    there = {path.name for path in built()} | {path.name for path in ROOT.glob("docs/*.md")}
    lost = {t for t in targets if t not in there and not (ROOT / "docs" / t).exists()}
    assert lost == set(), page
    named = set(re.findall(r"`([\w./-]+/[\w.-]+\.py)`", text))
    assert {name for name in named if not (ROOT / name).exists()} == set()
    for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            is_understood(shlex.split(line))


def built():
    """Pages that are built for the site."""
    listed = (ROOT / "docs" / "results.md").read_text()
    return [Path(f"{name}.md") for name in re.findall(r"`(results-[\w-]+)`", listed)]


def is_understood(words):
    """A command line of `securevfl` has its options, and runs nothing here."""
    assert words[0] == "securevfl"
    command = get_command(app)
    names = words[1:]
    while hasattr(command, "commands"):
        command = command.commands[names.pop(0)]
    command.make_context("securevfl", names)


def pictures_can_be_drawn(text, benchmarks):
    drawer, shown = benchmarks("pictures").drawer, benchmarks("build").shown
    for picture in shown(text):
        assert callable(drawer(picture))
        own = "curves.csv" if picture.name == "curves.png" else f"{picture.stem}.*"
        assert [path for path in picture.parent.glob(own) if path.suffix != ".png"], picture


@pytest.mark.parametrize(
    "picture",
    [
        "vflhlp/avazu-twin/curves.png",
        "cvfl/figures-3-6-mnist/curves.png",
        "privacy/attacks-coded-digits.png",
        "sums/frontier-digits.png",
    ],
)
def test_a_picture_of_each_kind_is_drawn_from_stored_results(
    picture, benchmarks, tmp_path, monkeypatch
):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: drawn.append((self, path)))
    path = Path("benchmarks/results") / picture
    benchmarks("pictures").draw(path)
    [(figure, where)] = drawn
    assert where == path
    assert [axes for axes in figure.axes if axes.lines or axes.images or axes.collections]
    figure.canvas.draw()


@needs_git
def test_committed_pictures_are_those_that_committed_pages_show():
    kept = git("ls-files", "benchmarks/results/*.png").stdout.split()
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    text = "".join(p.read_text() for p in pages if not p.name.startswith(STUDIES_OF_SITE))
    assert [name for name in kept if f"{name})" not in text] == []


def stored():
    """Files of results that are there, but for pictures that were drawn from them."""
    listed = git("ls-files", "benchmarks/results").stdout.split()
    return [path for name in listed if (path := ROOT / name).exists()]


@needs_git
def test_stored_results_are_compact(benchmarks, tmp_path):
    """Below 8 MB together, and of a study what `benchmarks/compact.py` keeps."""
    assert sum(path.stat().st_size for path in stored()) < 8e6
    folders = [path.parent for path in stored() if path.name == "results.json"]
    assert len(folders) > 50
    for folder in folders:
        copy = tmp_path / folder.parent.name / folder.name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.png"))
        before = {path.name: path.read_bytes() for path in copy.iterdir()}
        benchmarks("compact").study(copy)
        after = {path.name: path.read_bytes() for path in copy.iterdir()}
        assert before == after, f"python benchmarks/compact.py {folder.relative_to(ROOT)}"


@needs_git
def test_no_result_is_stored_that_nothing_uses(benchmarks):
    """A page or picture is made from it, or a page, a test or a script names it."""
    opened, shown = set(), set()
    for script in SCRIPTS:
        written, files = written_by(script)
        opened |= files
        shown |= {one for text in written.values() for one in benchmarks("build").shown(text)}
    for picture in shown:
        own = picture.with_suffix(".csv"), picture.with_suffix(".json")
        opened |= {(ROOT / path).resolve() for path in own}
    folders = ("docs", "tests", "benchmarks/words", "benchmarks/papers")
    kinds = ("md", "py", "json", "toml")
    texts = [path for one in folders for kind in kinds for path in (ROOT / one).rglob(f"*.{kind}")]
    texts += [*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.py"), ROOT / "benchmarks" / "choose.md"]
    text = "".join(path.read_text() for path in texts if path.name not in map(str, built()))
    told = "".join(p.read_text() for p in texts if p.suffix == ".md" or "benchmarks" in p.parts)
    named = re.findall(r"benchmarks/results/([\w/-]+[*\w-]*\.json)", told.replace("KIND", "*"))
    patterns = {name for name in named if "*" in name}
    of_studies = {"results.json", "curves.csv", "times.csv"}
    unused = []
    for path in stored():
        name = str(path.relative_to(ROOT / "benchmarks" / "results"))
        alone = path.name in text and path.name not in of_studies
        if path.resolve() not in opened and name not in text and not alone:
            unused += [name] * (not any(fnmatch(name, each) for each in patterns))
    assert not unused, ", ".join(unused)


@pytest.mark.skipif(
    shutil.which("git") is None or git("rev-parse", "--is-shallow-repository").stdout != "false\n",
    reason="needs the whole history",
)
def test_the_commits_that_results_name_can_be_looked_at():
    named = {}
    for path in ROOT.glob("benchmarks/results/**/*.json"):
        content = json.loads(path.read_text())
        told = content.get("commit") if isinstance(content, dict) else None
        named |= dict.fromkeys(re.findall(r"\b[0-9a-f]{7,12}\b", told or ""), path)
    assert len(named) > 20
    # Of what HEAD comes from: a commit that a rebase left behind is not in anybody else's clone.
    history = {line[:7]: line for line in git("rev-list", "HEAD").stdout.splitlines()}
    left = {one: named[one] for one in named if not history.get(one[:7], "").startswith(one)}
    assert left == {}


STUDIES = {
    f"{file.parent.name}-{file.stem}": (file, results)
    for file in sorted(ROOT.glob("benchmarks/papers/*/*.toml"))
    for results in (ROOT / "benchmarks/results" / file.parent.name).glob(
        f"{file.stem}/results.json"
    )
}


@pytest.mark.parametrize("name", STUDIES)
def test_results_say_of_themselves_what_their_study_says(name):
    """Pages print what results hold: a correction in the study's file must stand there, too."""
    file, results = STUDIES[name]
    study, told = tomllib.loads(file.read_text()), json.loads(results.read_text())
    assert told.get("ours", {}) == study.get("ours", {})
