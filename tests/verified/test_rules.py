"""Escapes of an author's module, each named with its line, and a module that has none."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import securevfl
from securevfl.verified import participants
from securevfl.verified.rules import problems, problems_of
from tests.verified.leaks import agrees

ROOT = Path(securevfl.__file__).parent

EXAMPLES = Path(__file__).parents[2] / "examples"

BAD = {
    "random": "import random",
    "os": "import os\nx = os.urandom(3)",
    "seeded": "import numpy as np\ndef f(r):\n    return np.random.default_rng(r)",
    "node": "def f(x):\n    return x._node",
    "dict": "def f(x):\n    return x.__dict__",
    "getattr": "def f(x):\n    return getattr(x, '_no' + 'de')",
    "vars": "def f(x):\n    return vars(x)",
    "time": "import time\ndef f(x):\n    time.sleep(x)",
    "print": "def f(x):\n    print(x)",
    "global": "seen = ()\ndef f(x):\n    global seen\n    seen = x",
    "lambda": "class A:\n    def f(self, x):\n        return x.map(lambda v: v, shape=())",
    "method": "class A:\n    def f(self, x):\n        return x.map(self.g, shape=())",
    "try": "def f(x):\n    try:\n        return bool(x)\n    except TypeError:\n        return 1",
    "subclasses": "def f():\n    return object.__subclasses__()",
    "private import": "from securevfl.verified import _refuse",
    "inside": "from securevfl.verified.values import Element",
    "sys": "from sys import _getframe",
    "identity": "def f(x, y):\n    return x is y",
    "set": "def f(x):\n    x.bound = 3",
    "open": "def f():\n    return open('x')",
    "eval": "def f(s):\n    return eval(s)",
    "ctypes": "import ctypes",
    "id": "def f(x):\n    return id(x) % 2",
    "save": "import numpy as np\ndef f(x):\n    np.save('a', x)",
    "class": "def f(x):\n    return type(x)",
    "format": "def f(x):\n    return '{0._node}'.format(x)",
    "match": "def f(x):\n    match x:\n        case object(_node=y):\n            return y",
    "subclass": "from securevfl.verified import Element\nclass Mine(Element):\n    pass",
    "world": "class A:\n    def f(self):\n        return self.world.messages",
    "spec": "class A:\n    def f(self, x):\n        return self.world.spec(x)",
    "output": "class A:\n    def run(self, x, world):\n        world.output('x', x)",
    "class container": "class A:\n    seen = {}",
    "module container": "seen = []",
    "made container": "class A:\n    seen = dict()",
    "default": "def f(x, seen=[]):\n    return x",
    "engine": "class A:\n    def f(self, x):\n        self.engine.send(x)",
    "state": "class A:\n    def f(self, x):\n        return x.state_dict()",
    "logging": "import logging",
    "code": "for i in range(3):\n    pass",
    "own module": "from . import helpers",
}


@pytest.mark.parametrize("name", BAD)
def test_an_escape_is_named_with_its_line(name):
    found = problems(BAD[name], "author.py")
    assert found
    assert all(text.startswith("author.py:") for text in found)
    agrees("author's module", name, "RULE", found[0])


def test_the_line_is_the_one_that_breaks_the_rule():
    assert problems(BAD["print"], "author.py") == ["author.py:2: print is on no list of names"]


def test_functions_of_arrays_alone_are_allowed_and_others_are_not():
    pure = "percentile quantile bincount histogram interp searchsorted split kron fft abs uint8"
    other = "random load save fromfile memmap seterr errstate put copyto fill_diagonal datetime64"
    for name in (*pure.split(), *other.split()):
        found = problems(f"import numpy as np\ndef f(x):\n    return np.{name}(x)", "author.py")
        assert bool(found) == (name in other.split()), name


READ = """class Method:
    def client(self, n):
        {}
        return Client(n, self.data.train[n])
"""


@pytest.mark.parametrize(
    "line",
    [
        "top = max(abs(X).max() for X in self.data.train)",
        "data, top = self.data, self.data.train[0].max()",
        "X, y = self.data.train, 1; top = X[0].sum()",
        "own = self.data.train[n]; again = own; top = again > 0",
        "self.columns = self.data.train",
        "top = scale(self.data.train)",
        "top = [x for x in (1, self.data.train_labels)]",
        "y = self.data.train_labels; top = y[0]; low = 3 if top else 2",
    ],
)
def test_numbers_of_all_parties_columns_are_public_and_named(line):
    found = problems(READ.format(line), "author.py")
    assert any("author.py:3: arrays of the data set are read" in one for one in found), found


@pytest.mark.parametrize(
    "line",
    [
        "width = self.data.train[n].shape[1] + len(self.data.train_labels)",
        "y, rounds = self.data.train_labels, 3; made = Server(n, labels=y, rounds=rounds)",
        "more = self.data.widths, self.data.rows, self.data.num_classes",
        "made = self.make_server(Server, *(n, self.data.train_labels))",
        "X, rounds = self.data.train[n], self.config.rounds; rounds = rounds + 1; c = Client(n, X)",
    ],
)
def test_arrays_are_given_to_parties_and_shapes_are_public(line):
    found = problems(READ.format(line), "author.py")
    assert not any("arrays of the data set" in one for one in found), found


def test_the_example_breaks_none():
    assert problems_of(EXAMPLES / "proved_protocol" / "proved_split.py") == []


# Errors that a method's parties catch, beside the ends of waits. What is caught decides what comes
# next, so it must not depend on protected values of honest parties.
CAUGHT = {
    # Uploads that disagree: honest ones never do.
    ("protocols.fedvs.algorithm", "(CorruptResultsError, NotEnoughResultsError)"),
    ("protocols.base.levels.signed_uploads", "ApartError"),
    ("protocols.base.levels.signed_uploads", "CorruptResultsError"),
    # What others were told or dealt: who follows the protocol tells all the same, and who lacks a
    # round, as losses alone decide, has another history.
    ("active.history", "ApartError"),
    ("protocols.base.levels.proved_shares", "ApartError"),
    # Before a run: what the configuration, and the data of the simulation's owner, allow.
    ("protocols.fedvs.protocol", "RangeError"),
    ("protocols.fedvs.parameters", "ConfigurationError"),
    ("protocols.coded_split.parameters", "ConfigurationError"),
    ("protocols.cvfl.parameters", "ValueError"),
    # In a function: its result, 0 or 1, is a value like any other.
    ("protocols.secagg_split.signatures", "InvalidSignature"),
    # Of bare values, as a judge has them, in a function of what was received.
    ("active.dealing", "WireError"),
    ("active.statements", "(InvalidSignature, ValueError)"),
    ("active.uploads", "CorruptResultsError"),
    ("active.judge", "(KeyError, TypeError, ValueError)"),
    ("active.judge", "OSError"),
    ("active.judge", "ValueError"),
    # Texts of options.
    ("protocols.base.registry", "ValidationError"),
    ("protocols.base.options", "(TypeError, ValueError)"),
}


def test_methods_with_proofs_catch_no_error_that_values_decide():
    found = set()
    for path in (*(ROOT / "protocols").rglob("*.py"), *(ROOT / "active").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                found.add((module, "" if node.type is None else ast.unparse(node.type)))
    ends = {"TimeoutError", "RoundOverError"}
    assert {one for one in found if one[1] not in ends} == CAUGHT


@pytest.mark.parametrize(
    ("array", "few"),
    [([0, 1, 0, 1], True), (np.ones((9, 1)), True), ([0, 1] * 4, False), (np.arange(6.0), False)],
)
def test_two_parties_may_have_equal_arrays_only_where_there_are_few(array, few):
    assert participants._few(array) is few
