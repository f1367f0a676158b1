"""Single-statement changes to the client and server of FedVS, and a sample of them.

A mutant is one replaced piece of one statement: of a statement, an operator, an operand, an
argument, a condition, a number, a name, an index, or a draw. Texts, types, docstrings and errors
are not changed. Only functions are; options and what a checkpoint keeps are declared outside them.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FEDVS = "protocols/fedvs"
# File to the functions that are changed; None for all. Of the code only what encodes.
FILES: dict[str, tuple[str, ...] | None] = {
    f"{FEDVS}/algorithm.py": None,
    f"{FEDVS}/sums.py": None,
    f"{FEDVS}/terms.py": None,
    f"{FEDVS}/decoding.py": None,
    "protocols/base/decoding.py": None,
    f"{FEDVS}/quantisation.py": None,
    f"{FEDVS}/messages.py": None,
    f"{FEDVS}/parameters.py": None,
    "field/prss.py": None,
    "field/designs.py": None,
    "field/lagrange.py": None,
    "field/lagrange_code.py": (
        *("recovery_threshold", "data_matrix", "mask_matrix", "vanishing", "_basis"),
        *("_constant_basis", "encode", "encode_constant"),
    ),
}
# What plans, counts or words things, and sends and draws nothing; and pre-training, not run here.
LEFT_OUT = (
    *("operations", "coding_operations", "attempts", "requirement", "out_of_range"),
    *("report_inference", "pretrain", "setup of the server", "wanted"),
)
OPERATORS: dict[type[ast.AST], tuple[tuple[type[ast.AST], str], ...]] = {
    ast.Add: ((ast.Sub, "-"),),
    ast.Sub: ((ast.Add, "+"),),
    ast.Mult: ((ast.FloorDiv, "//"), (ast.Add, "+")),
    ast.Div: ((ast.Mult, "*"),),
    ast.FloorDiv: ((ast.Mult, "*"), (ast.Mod, "%")),
    ast.Mod: ((ast.FloorDiv, "//"),),
    ast.BitAnd: ((ast.BitOr, "|"),),
    ast.BitOr: ((ast.BitAnd, "&"),),
    ast.Lt: ((ast.LtE, "<="), (ast.Gt, ">")),
    ast.LtE: ((ast.Lt, "<"), (ast.Gt, ">")),
    ast.Gt: ((ast.GtE, ">="), (ast.Lt, "<")),
    ast.GtE: ((ast.Gt, ">"), (ast.Lt, "<")),
    ast.Eq: ((ast.NotEq, "!="),),
    ast.NotEq: ((ast.Eq, "=="),),
    ast.In: ((ast.NotIn, "not in"),),
    ast.NotIn: ((ast.In, "in"),),
    ast.Is: ((ast.IsNot, "is not"),),
    ast.IsNot: ((ast.Is, "is"),),
    ast.And: ((ast.Or, "or"),),
    ast.Or: ((ast.And, "and"),),
}
# Attributes that may stand for each other.
ALIKE = (
    ("sharers", "peers"),
    ("segments", "privacy"),
    ("alphas", "betas"),
    ("data_matrix", "mask_matrix"),
    ("threshold", "results_needed"),
    ("stepped", "harmless"),
    ("data_bits", "model_bits"),
)
DRAWS = (
    "np.zeros({shape}, np.uint64)",
    "{draw} >> np.uint64(1)",
    "{draw} >> np.uint64(40)",
    "np.broadcast_to({draw}[:1], {shape}).copy()",
    "__import__('securevfl').field.PrimeField(2**50 - 2**14 + 1).random({shape}, "
    "__import__('securevfl.field.sampling', fromlist=['x']).SeededSource(0))",
    "__import__('securevfl').field.PrimeField(2**50 - 2**14 + 1).random({shape}, "
    "__import__('securevfl.field.sampling', fromlist=['x']).SeededSource(self.round))",
    "self.__dict__.setdefault(str({shape}), {draw})",
    "self.__dict__.get(str({shape})) if str({shape}) in self.__dict__ else "
    "self.__dict__.setdefault(str({shape}), {draw})",
)


@cache
def _parsed(source: bytes) -> str:
    return ast.dump(ast.parse(source))


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes
    ----------
    file : str
        Within the package.
    line : int
    operator : str
        Kind of the change.
    start, end : int
        Bytes of the file that are replaced.
    text : str
        What stands there instead.
    span : (int, int)
        First and last line of the statement, of a block its head.
    """

    file: str
    line: int
    operator: str
    start: int
    end: int
    text: str
    span: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        """A name that no other change of these files has."""
        digest = hashlib.sha256(f"{self.start} {self.end} {self.text}".encode()).hexdigest()
        return f"{Path(self.file).stem}:{self.line}:{self.operator}:{digest[:6]}"

    def apply(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def is_python(self, source: bytes) -> bool:
        """Whether the file with the change still is Python, and not the same as before."""
        try:
            changed = ast.dump(ast.parse(self.apply(source)))
        except SyntaxError:
            return False
        return changed != _parsed(source)

    def diff(self, source: bytes) -> list[str]:
        """Lines that go and come."""
        old, new = source.decode().splitlines(), self.apply(source).decode().splitlines()
        lines = list(difflib.unified_diff(old, new, lineterm="", n=0))[3:]
        return [f"{line[0]} {line[1:].strip()}" for line in lines]


class Finder:
    """Finds all changes of one file."""

    def __init__(self, file: str, source: bytes, chosen: tuple[str, ...] | None) -> None:
        self.file, self.source, self.chosen = file, source, chosen
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scope: list[str] = []
        self.span = (0, 0)

    def find(self) -> Iterator[Mutant]:
        """All changes, in the order of the file."""
        for mutant in self._functions(ast.parse(self.source)):
            if mutant.text.strip("()") != self.source[mutant.start : mutant.end].decode():
                yield mutant

    def _functions(self, tree: ast.AST) -> Iterator[Mutant]:
        for node in ast.walk(tree):
            function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if function and self._is_changed(node):
                arguments = [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
                names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
                self.assigned = [one.id for one in names if isinstance(one.ctx, ast.Store)]
                self.scope = sorted({*arguments, *self.assigned} - {"self"})
                yield from self._block(node.body)

    def _is_changed(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        server = node.name == "setup" and "alone_labels" in self._text(node)
        name = "setup of the server" if server else node.name
        return name not in LEFT_OUT and (self.chosen is None or name in self.chosen)

    def _block(self, body: list[ast.stmt]) -> Iterator[Mutant]:
        for statement in body:
            yield from self._statement(statement)

    def _statement(self, node: ast.stmt) -> Iterator[Mutant]:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        if text or self._text(node).startswith("self.record("):
            return  # only observers of a run see what is recorded
        if isinstance(node, (ast.Raise, ast.Import, ast.ImportFrom, *nested)):
            return
        body = getattr(node, "body", None)
        self.span = (node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno)
        if self._may_go(node):
            yield self._replace(node, "pass", "delete")
        if isinstance(node, (ast.Expr, ast.AugAssign)) and node.lineno == node.end_lineno:
            yield self._replace(node, f"{self._text(node)}; {self._text(node)}", "repeat")
        if isinstance(node, (ast.If, ast.While)):
            yield self._replace(node.test, f"not ({self._text(node.test)})", "negate")
        for name, value in self._parts(node):
            if name in ("body", "orelse", "finalbody"):
                yield from self._block(value)
            elif name == "handlers":
                for handler in value:
                    yield from self._block(handler.body)
            elif name not in ("annotation", "type_comment"):
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, ast.AST):
                        yield from self._expression(part)

    @staticmethod
    def _parts(node: ast.stmt) -> list[tuple[str, Any]]:
        """Fields of a statement, those of its head first."""
        blocks = ("body", "orelse", "finalbody", "handlers")
        return sorted(ast.iter_fields(node), key=lambda field: field[0] in blocks)

    def _may_go(self, node: ast.stmt) -> bool:
        """Whether a statement may be left out without an error that is certain."""
        if isinstance(node, ast.Assign):
            names = [one.id for one in node.targets if isinstance(one, ast.Name)]
            return all(self.assigned.count(name) > 1 for name in names)
        return isinstance(node, (ast.Expr, ast.AugAssign, ast.If, ast.For))

    def _expression(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.JoinedStr):
            return
        for kind in (self._operators, self._numbers, self._names, self._calls, self._conditions):
            yield from kind(node)
        for name, value in ast.iter_fields(node):
            if name == "annotation":
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from self._expression(part)

    def _operators(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.BinOp):
            left, right = self._text(node.left), self._text(node.right)
            for _, sign in OPERATORS.get(type(node.op), ()):
                yield self._replace(node, f"(({left}) {sign} ({right}))", "operator")
            yield self._replace(node, left, "operand")
            yield self._replace(node, right, "operand")
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._text(node.left), self._text(node.comparators[0])
            for _, sign in OPERATORS.get(type(node.ops[0]), ()):
                yield self._replace(node, f"(({left}) {sign} ({right}))", "comparison")
        if isinstance(node, ast.BoolOp):
            parts = [f"({self._text(one)})" for one in node.values]
            _, sign = OPERATORS[type(node.op)][0]
            yield self._replace(node, f"({f' {sign} '.join(parts)})", "and, or")
            own = " and " if isinstance(node.op, ast.And) else " or "
            for i in range(len(parts)):
                rest = own.join(parts[:i] + parts[i + 1 :])
                yield self._replace(node, f"({rest})", "operand")
        if isinstance(node, ast.UnaryOp):
            yield self._replace(node, self._text(node.operand), "drop a sign")

    def _numbers(self, node: ast.AST) -> Iterator[Mutant]:
        if not isinstance(node, ast.Constant):
            return
        if isinstance(node.value, bool):
            yield self._replace(node, str(not node.value), "constant")
        elif isinstance(node.value, int):
            yield self._replace(node, str(node.value + 1), "constant")
            yield self._replace(node, f"({node.value - 1})", "constant")
        elif node.value in ("train", "test"):
            yield self._replace(node, repr("test" if node.value == "train" else "train"), "part")

    def _names(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in self.scope:
                for other in self.scope:
                    if other != node.id:
                        yield self._replace(node, other, "variable")
            elif node.id == "SERVER":
                yield self._replace(node, "0", "receiver")
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            whole = self._text(node)
            for family in ALIKE:
                for other in family if node.attr in family else ():
                    if other != node.attr:
                        yield self._replace(node, f"{self._text(node.value)}.{other}", "attribute")
            if whole in ("self.round", "self.index"):
                yield self._replace(node, f"({whole} - 1)", "index")
                yield self._replace(node, f"({whole} + 1)", "index")
            if whole == "self.peers":
                yield self._replace(node, "self.peers[:-1]", "receiver")

    def _calls(self, node: ast.AST) -> Iterator[Mutant]:
        if not isinstance(node, ast.Call):
            return
        called, arguments = self._text(node.func), [self._text(one) for one in node.args]
        for one in arguments:
            yield self._replace(node, f"({one})", "argument for call")
        if isinstance(node.func, ast.Attribute):
            yield self._replace(node, self._text(node.func.value), "argument for call")
        keywords = [self._text(one) for one in node.keywords]
        for i in range(len(arguments) - 1):
            swapped = [*arguments[:i], arguments[i + 1], arguments[i], *arguments[i + 2 :]]
            yield self._replace(node, f"{called}({', '.join([*swapped, *keywords])})", "swap")
        for i in range(len(keywords)):
            rest = [*arguments, *keywords[:i], *keywords[i + 1 :]]
            yield self._replace(node, f"{called}({', '.join(rest)})", "drop an argument")
        if called in ("self.uniform", "self.public.field.random"):
            shape, draw = arguments[0], self._text(node)
            for form in DRAWS:
                yield self._replace(node, form.format(shape=shape, draw=draw), "draw")
            yield self._replace(node, f"({draw}, {draw})[1]", "draw")

    def _conditions(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.IfExp):
            yield self._replace(node.test, f"not ({self._text(node.test)})", "negate")
        if isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield self._replace(test, f"not ({self._text(test)})", "negate")
                yield self._replace(test, "True", "condition dropped")
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            value, place = self._text(node.value), node.slice
            if isinstance(place, ast.Slice):
                yield self._replace(node, value, "slice dropped")
            elif not isinstance(place, (ast.Constant, ast.Tuple)):
                first = f"{value}[next(iter({value}))]"
                yield self._replace(node, first, "index")

    def _text(self, node: ast.AST) -> str:
        start, end = self._place(node)
        return self.source[start:end].decode()

    def _place(self, node: ast.AST) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end

    def _replace(self, node: ast.AST, text: str, operator: str) -> Mutant:
        start, end = self._place(node)
        line: int = node.lineno  # type: ignore[attr-defined]
        return Mutant(self.file, line, operator, start, end, text, self.span)


def all_mutants(package: Path) -> list[Mutant]:
    """All changes of all files, each once."""
    found: dict[str, Mutant] = {}
    for file, chosen in FILES.items():
        for mutant in Finder(file, (package / file).read_bytes(), chosen).find():
            found.setdefault(mutant.name, mutant)
    return list(found.values())


def in_random_order(mutants: list[Mutant], seed: int) -> list[Mutant]:
    """All of them; each next one of a random kind of change, so that rare kinds come as often.

    Within a kind each is as likely as the others.
    """
    draw = random.Random(seed)
    by_operator: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_operator.setdefault(mutant.operator, []).append(mutant)
    for some in by_operator.values():
        draw.shuffle(some)
    order = []
    while by_operator:
        operator = draw.choice(sorted(by_operator))
        order.append(by_operator[operator].pop())
        if not by_operator[operator]:
            del by_operator[operator]
    return order
