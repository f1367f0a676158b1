"""Random changes of FedVS: each is one statement, the sample is the seed's, and zero masks show."""

import ast
import importlib
import json
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks/results/privacy/mutations.json").read_text())


@pytest.fixture(scope="module")
def mutants():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("mutants")


@pytest.fixture(scope="module")
def mutations(mutants):
    return importlib.import_module("mutations")


@pytest.fixture(scope="module")
def page(mutations):
    return importlib.import_module("mutation_tables")


@pytest.fixture(scope="module")
def every(mutants):
    return mutants.all_mutants(ROOT / "securevfl")


def source_of(mutant):
    return (ROOT / "securevfl" / mutant.file).read_bytes()


def line_of(mutant):
    return source_of(mutant).splitlines()[mutant.line - 1]


def functions_of(tree):
    return {
        node.name: ast.dump(node)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


@cache
def parsed(source):
    return ast.dump(ast.parse(source))


def test_a_seed_gives_one_order_of_the_same_changes(mutants, every):
    again = mutants.all_mutants(ROOT / "securevfl")
    order = [one.name for one in mutants.in_random_order(every, 3)]
    assert order == [one.name for one in mutants.in_random_order(again, 3)]
    assert order != [one.name for one in mutants.in_random_order(every, 4)]
    assert len(set(order)) == len(order) == len(every) > 3000


def test_a_change_is_python_in_one_statement_and_not_the_same_as_before(mutants, every):
    sound = 0
    for mutant in mutants.in_random_order(every, 5)[:150]:
        source = source_of(mutant)
        if not mutant.is_python(source):
            continue
        sound += 1
        changed = mutant.apply(source)
        assert ast.dump(ast.parse(changed)) != parsed(source)
        first, head = mutant.span
        last = max(head, source[: mutant.end].count(b"\n") + 1)  # a block goes as a whole
        before, after = source.splitlines(), changed.splitlines()
        assert after[: first - 1] == before[: first - 1]
        rest = len(before) - last
        assert after[len(after) - rest :] == before[last:]
        assert first <= mutant.line <= head
    assert sound > 140


def test_texts_errors_and_what_is_only_recorded_are_not_changed(every):
    for mutant in every:
        source = source_of(mutant)
        head = source.splitlines()[mutant.span[0] - 1].strip()
        assert not head.startswith((b"raise ", b'"""', b"self.record(", b"import ", b"from "))


@pytest.mark.parametrize(
    ("source", "operator", "lines"),
    [
        ("def f(a, b):\n    return a + b\n", "operator", {"return ((a) - (b))"}),
        (
            "def f(a, b):\n    return a < b\n",
            "comparison",
            {"return ((a) <= (b))", "return ((a) > (b))"},
        ),
        ("def f(a):\n    if a:\n        g(a)\n", "negate", {"if not (a):"}),
        ("def f(a):\n    g(a)\n", "delete", {"pass"}),
        ("def f(a):\n    g(a)\n", "repeat", {"g(a); g(a)"}),
        ("def f(a, b):\n    return g(a, b)\n", "swap", {"return g(b, a)"}),
        ("def f(a):\n    return a + 3\n", "constant", {"return a + 4", "return a + (2)"}),
        ("def f(a, b):\n    return a or b\n", "and, or", {"return ((a) and (b))"}),
        ("def f(a, b):\n    return g(a)\n", "variable", {"return g(b)"}),
        ("def f(self):\n    self.send(SERVER, 1)\n", "receiver", {"self.send(0, 1)"}),
    ],
)
def test_what_is_changed_in_a_function(mutants, source, operator, lines):
    found = mutants.Finder("f.py", source.encode(), None).find()
    made = {
        line[2:]
        for one in found
        if one.operator == operator
        for line in one.diff(source.encode())
        if line.startswith("+")
    }
    assert made == lines


def zero_masks(every):
    shape = "self.uniform((self.public.code.privacy, *model.shape))"
    return next(
        one
        for one in every
        if one.text.startswith("np.zeros((self.public.code.privacy, *model.shape)")
        and source_of(one)[one.start : one.end].decode() == shape
    )


@pytest.mark.slow
def test_masks_that_are_zero_are_kept_and_noticed_and_nothing_is_left_behind(mutations, every):
    before = source_of(zero_masks(every))
    tree, options = mutations.Tree(), mutations.OPTIONS["K = 2"][0]
    try:
        tree.put(zero_masks(every), before)
        state, changed = mutations.apart(tree.home, mutations.verified, options, limit=300)
        assert state == "done"
    finally:
        tree.remove()
    sound_verdicts = mutations.load()["sound"]["K = 2"]
    assert sound_verdicts["server + T clients, model"] == "PROVED"
    assert mutations.noticed_in(("done", changed), sound_verdicts) in ("accused", "withheld")
    assert not tree.home.exists()
    assert source_of(zero_masks(every)) == before


@pytest.mark.parametrize(
    ("verdicts", "way"),
    [
        ({"a": "PROVED", "b": "NOT TESTED"}, ""),
        ({"a": "VIOLATED", "b": "NOT TESTED"}, "accused"),
        ({"a": "NO VIOLATION FOUND", "b": "NOT TESTED"}, "withheld"),
        ({"a": "COULD NOT BE CHECKED", "b": "NOT TESTED"}, "could not be checked"),
        ({"a": "PROVED", "b": "VIOLATED"}, "another claim (b: VIOLATED)"),
    ],
)
def test_how_a_verification_notices(mutations, verdicts, way):
    sound = {"a": "PROVED", "b": "NOT TESTED"}
    found = ("done", {"verdicts": verdicts, "words": {}})
    assert mutations.noticed_in(found, sound) == way
    assert mutations.noticed_in(("raised", "why"), sound) == "verify ended in an error"
    late = ("raised", "no end within 120 s")
    assert mutations.noticed_in(late, sound).startswith("no verdict within")


def test_the_committed_results_are_of_different_changes_that_differ_in_something():
    names = [row["name"] for row in RESULTS["rows"]]
    assert len(set(names)) == len(names)
    assert not set(names) & set(RESULTS["dropped"])
    assert len(names) + len(RESULTS["dropped"]) < RESULTS["all"]
    for row in RESULTS["rows"]:
        assert row["case"] in RESULTS["cases"]
        assert row.get("differs") or row["ended"]
        assert bool(row["by"]) == bool(row["noticed"])


def test_a_change_is_found_again_where_its_line_has_moved(mutations, every):
    """The same statement stands in a client and in the server: the nearest is meant."""
    same = [
        one
        for one in every
        if one.text == "(self.round + 1)" and b"ledger.announce" in line_of(one)
    ]
    assert len(same) == 2
    for one in same:
        row = {"name": "moved", "file": one.file, "line": one.line - 8}
        row["diff"] = one.diff(source_of(one))
        assert mutations.found_again(row, every) is one
        assert mutations.found_again(row | {"diff": ["- x", "+ y"]}, every) is None
        assert mutations.found_again(row | {"diff": [], "now": row["diff"]}, every) is one


def test_every_change_that_verify_did_not_notice_is_judged_twice(page):
    for row in RESULTS["rows"]:
        if not row["noticed"].startswith("verify"):
            kind, why = page.judgement_of(row)
            assert kind in set(page.KINDS) - {""}, row["name"]
            assert why
            assert page.again_of(row)[0] in page.SECOND_KINDS, row["name"]


def test_the_section_of_the_page_is_of_the_committed_results(page, tmp_path, monkeypatch):
    committed = page.PAGE.read_text()
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    page.PAGE.write_text(committed)
    page.write_page(RESULTS)
    assert page.PAGE.read_text() == committed, "python benchmarks/mutations.py --page"


def test_verdicts_of_the_unchanged_copy_are_taken_while_nothing_is_changed(
    mutations, every, tmp_path, monkeypatch
):
    """Else what a change loses would be what its baseline has lost."""
    there, verified = [None], []

    class Copy:
        home = tmp_path

        def put(self, mutant, source, file=""):
            there[0] = mutant

    def apart(home, function, options, limit):
        verified.append(there[0])
        return "done", {"verdicts": {"a claim": "PROVED" if there[0] is None else "VIOLATED"},
                        "words": {"a claim": "it leaks"}}  # fmt: skip

    one = every[0]
    row = {"name": one.name, "file": one.file, "line": one.line, "diff": [], "noticed": "",
           "by": "", "case": next(iter(mutations.OPTIONS)) + ", as configured"}  # fmt: skip
    monkeypatch.setattr(mutations, "Tree", Copy)
    monkeypatch.setattr(mutations, "load", lambda: {"rows": [dict(row)]})
    monkeypatch.setattr(mutations, "store", lambda results: None)
    monkeypatch.setattr(mutations, "apart", apart)
    for stage in ("again", "options"):
        study = mutations.Study()
        verified.clear()
        study.rest(float("inf"), [stage], [""])
        assert verified[0] is None
        assert verified[-1].name == one.name
        assert "accused" in study.results["rows"][0]["by"]


def test_sums_of_the_unchanged_protocol_tell_no_more_than_they_may(mutations):
    assert mutations.sums_that_tell_more("K = 2, clients late") == []
