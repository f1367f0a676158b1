"""Rules for an author's module that types cannot enforce; help for honest authors.

Types stop wrong uses of a protected value. They cannot stop code that bypasses them, or passes
values by a file, a clock or an object that two parties share. The syntax tree is compared with
lists of allowed constructs; every other construct is reported with its line. **This is no
sandbox**: Python code can hide a leak on purpose.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np

MODULES = {
    *("__future__", "collections.abc", "dataclasses", "functools", "itertools", "math", "typing"),
    *("numpy", "pydantic", "torch", "securevfl.engine.party", "securevfl.errors"),
}
PACKAGES = ("securevfl.field", "securevfl.models", "securevfl.privacy", "securevfl.protocols",
            "securevfl.verified")  # fmt: skip
# Types, constants, makers and modules of numpy; its pure functions of arrays are found by kind.
NUMPY = {
    *("arange", "array", "asarray", "ascontiguousarray", "bool_", "complex128", "complex64"),
    *("diag_indices", "dtype", "e", "empty", "eye", "fft", "finfo", "float16", "float32"),
    *("float64", "full", "identity", "iinfo", "indices", "inf", "int16", "int32", "int64", "int8"),
    *("intp", "linalg", "nan", "ndarray", "newaxis", "ones", "pi", "tri", "tril_indices"),
    *("triu_indices", "uint16", "uint32", "uint64", "uint8", "zeros"),
}
# Functions of arrays that use files, text or memory of others, or change an argument in place.
IMPURE = {
    *("array2string", "array_repr", "array_str", "copyto", "datetime_as_string", "fill_diagonal"),
    *("frombuffer", "fromfile", "fromstring", "genfromtxt", "loadtxt", "may_share_memory", "place"),
    *("put", "put_along_axis", "putmask", "save", "savetxt", "savez", "savez_compressed"),
    "shares_memory",
}
BUILTINS = {
    *("abs", "all", "any", "bool", "bytes", "classmethod", "dict", "enumerate", "float"),
    *("frozenset",),
    *("int", "isinstance", "len", "list", "map", "max", "min", "pow", "property", "range"),
    *("reversed", "round", "set", "slice", "sorted", "staticmethod", "str", "sum", "super"),
    *("tuple",),
    *("zip", "ValueError", "TypeError", "RuntimeError", "NotImplementedError", "filter", "object"),
}
DUNDER = {"__init__", "__post_init__"}
# Of a World: declared outputs only, in `ideal`. Of a party: nothing that goes around the wrapper.
OF_WORLD = {
    *("spec", "the", "output", "released", "nodes", "messages", "inputs", "secret", "input"),
    *("equal", "rounds"),
}
AROUND = {"engine", "state_dict", "load_state_dict", "handlers", "envelope", "secrets", "world"}
# Of a data set: arrays of all parties, of which the protocol's class gives each party its own.
ARRAYS = {
    *("train", "test", "train_labels", "test_labels", "unseen", "alone", "alone_labels"),
    "train_weights",
}
BASES = {"Protected", "Element", "Secret", "Key", "Model", "World", "Hands"}
TOP = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


def problems(source: str, name: str = "module") -> list[str]:
    """Broken rules in a module's source, as ``name:line: why``."""
    reader = _Reader(name)
    tree = ast.parse(source)
    reader.begin(tree)
    reader.visit(tree)
    return [text for _, text in sorted(reader.found)]


def problems_of(path: str | Path) -> list[str]:
    """Broken rules in a file, as text lines."""
    return problems(Path(path).read_text(), Path(path).name)


class _Reader(ast.NodeVisitor):
    def __init__(self, name: str) -> None:
        self.name = name
        self.found: set[tuple[int, str]] = set()
        self.bound: set[str] = set()
        self.within: list[str] = []  # classes and functions around
        self.plain: set[str] = set()  # classes without a base, of which none is a party

    def no(self, node: ast.AST, why: str) -> None:
        line = getattr(node, "lineno", 0)
        self.found.add((line, f"{self.name}:{line}: {why}"))

    def begin(self, tree: ast.Module) -> None:
        """Collect names that the module binds and its top-level statements."""
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                self.bound.add(node.name)
                if isinstance(node, ast.ClassDef) and not node.bases:
                    self.plain.add(node.name)
            elif isinstance(node, ast.arg):
                self.bound.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.bound.add(node.id)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.bound |= {(a.asname or a.name).split(".")[0] for a in node.names}
        for node in tree.body:
            text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not text and not isinstance(node, TOP):
                self.no(node, "code at the top of a module: definitions and constants only")
            self._constants(node, "the module")

    def _constants(self, node: ast.AST, where: str) -> None:
        """Note a module-level container, which all parties would share."""
        if isinstance(node, ast.Assign | ast.AnnAssign):
            value = node.value
            shared = ast.List | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
            names = node.targets if isinstance(node, ast.Assign) else [node.target]
            declared = any(isinstance(t, ast.Name) and t.id in ("protected", "activities",
                           "traced_options", "check_options", "fault_options",
                           "small_options", "__all__") for t in names)  # fmt: skip
            empty = isinstance(value, ast.Dict) and not value.keys
            if isinstance(value, shared) or empty or (isinstance(value, ast.Dict) and not declared):
                self.no(node, f"a container of {where}, which all parties share: a tuple is none")
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") in (
                *("dict", "list", "set", "deque", "defaultdict"),
            ):
                self.no(node, f"a container of {where}, which all parties share: a tuple is none")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self.no(node, "a module of yours: its lines are not read here; check it as well")
        elif node.module is not None:
            self._module(node, node.module)
        for alias in node.names:
            if alias.name.startswith("_") or alias.name == "*":
                self.no(node, "import of a private name")

    def _module(self, node: ast.AST, module: str) -> None:
        inside = any(module == one or module.startswith(f"{one}.") for one in PACKAGES)
        private = module.startswith("securevfl.verified.") or "._" in module
        if (module not in MODULES and not inside) or private:
            self.no(node, f"import of {module}: values leave by messages, and chance comes from "
                          "uniform, key and prf")  # fmt: skip

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if {ast.unparse(b).split(".")[-1] for b in node.bases} & BASES or node.keywords:
            self.no(node, "a class of protected values, or with a metaclass")
        for one in node.body:
            self._constants(one, f"the class {node.name}")
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        if any(isinstance(one, ast.List | ast.Dict | ast.Set | ast.Call) for one in defaults):
            self.no(node, "a default that all calls share: None, or a tuple")
        self._inputs(node)
        self._arrays(node)
        self._inside(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def _inputs(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note input numbers used outside `own`, since a trace cannot show their influence."""
        given = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)} - {"self"}
        public: set[ast.AST] = set()
        names: set[str] = set()
        for one in ast.walk(node):
            if isinstance(one, ast.Attribute) and one.attr == "shape":
                public.add(one.value)
            if not isinstance(one, ast.Call):
                continue
            if getattr(one.func, "id", "") == "len":
                public.update(one.args)
            if getattr(one.func, "attr", "") in ("own", "own_model"):
                for value in (*one.args[1:], *(word.value for word in one.keywords)):
                    found = [n for n in ast.walk(value) if isinstance(n, ast.Name)]
                    names |= {n.id for n in found} & given
                    public.update(found)
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in names and one not in public:
                self.no(one, f"{one.id} is an input: use what own returned, or .shape and len")

    def _arrays(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note data set arrays that are read but not given to a party: results count as public."""
        above = {below: one for one in ast.walk(node) for below in ast.iter_child_nodes(one)}
        todo: list[ast.AST] = []
        names: set[str] = set()  # of such arrays
        for one in ast.walk(node):
            if isinstance(one, ast.Attribute) and one.attr in ARRAYS:
                called = getattr(above[one], "func", None) is one
                todo += [one] * (not called and getattr(one.value, "id", "") != "self")
        while todo:
            line = at = todo.pop()
            around = above.get(at)
            while isinstance(around, ast.Starred | ast.keyword | ast.Tuple) or (
                isinstance(around, ast.Subscript) and around.value is at
            ):
                at, around = around, above.get(around)
            if isinstance(around, ast.Assign) and all(map(_is_local, around.targets)):
                new = {name for target in around.targets for name in _set_by(target, at, line)}
                todo += [n for n in ast.walk(node) if _loaded(n) in new - names]
                names |= new
            elif not self._takes(around):
                self.no(line, "arrays of the data set are read by the protocol's class, and what "
                              "follows from them is public: give each party its own")  # fmt: skip

    def _takes(self, around: ast.AST | None) -> bool:
        """Whether an array is given to a party, or only its public shape is used."""
        if isinstance(around, ast.Call):
            name = getattr(around.func, "id", getattr(around.func, "attr", ""))
            party = name[:1].isupper() and name not in self.plain
            return name == "len" or party or name.startswith(("make_", "made_"))
        return isinstance(around, ast.Attribute) and around.attr == "shape"

    def _inside(self, node: ast.AST) -> None:
        self.within.append(getattr(node, "name", ""))
        self.generic_visit(node)
        self.within.pop()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base, attr = node.value, node.attr
        own = isinstance(base, ast.Name) and base.id == "self"
        if isinstance(base, ast.Name) and base.id in ("np", "numpy"):
            if not _is_pure(attr):
                self.no(node, f"numpy.{attr} may draw, read, write, or change an array in place")
        elif attr.startswith("__") and attr not in DUNDER:
            self.no(node, f"{attr} reaches behind the wrapper")
        elif attr.startswith("_") and not own and attr not in DUNDER:
            self.no(node, f"{attr} is a private attribute of another object")
        elif attr in ("_value", "_node", "_world", "_home"):
            self.no(node, f"{attr} reaches behind the wrapper")
        elif attr in OF_WORLD and "ideal" not in self.within and self._named(base, "world"):
            self.no(node, f"world.{attr} belongs to `ideal`: parties compute with what they have")
        elif attr in AROUND and "ideal" not in self.within and self.within:
            self.no(node, f".{attr} goes around protected values")
        elif attr in ("format", "format_map", "tofile", "dump", "manual_seed"):
            self.no(node, f".{attr} shows values, or draws by a seed")
        self.generic_visit(node)

    @staticmethod
    def _named(base: ast.AST, name: str) -> bool:
        return (isinstance(base, ast.Name) and base.id == name) or (
            isinstance(base, ast.Attribute) and base.attr == name
        )

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id not in BUILTINS | self.bound:
            self.no(node, f"{node.id} is on no list of names")

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.no(node, "global and nonlocal names are state that parties share")

    visit_Nonlocal = visit_Global

    def visit_Try(self, node: ast.Try) -> None:
        for one in node.handlers:
            caught = "" if one.type is None else ast.unparse(one.type).split(".")[-1]
            if caught not in ("TimeoutError", "RoundOverError"):
                self.no(one, "except: an error of a protected value must end the run")
        self.generic_visit(node)

    visit_TryStar = visit_Try  # type: ignore[assignment]

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self.no(node, "a class pattern reads attributes")

    def visit_Compare(self, node: ast.Compare) -> None:
        by_identity = any(isinstance(one, ast.Is | ast.IsNot) for one in node.ops)
        none = all(isinstance(c, ast.Constant) and c.value is None for c in node.comparators)
        if by_identity and not none:
            self.no(node, "comparison of identities: which object it is may depend on values")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._target(node, target)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._target(node, node.target)
        self.generic_visit(node)

    def _target(self, node: ast.AST, target: ast.AST) -> None:
        for one in ast.walk(target):
            if not (isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)):
                continue
            if not (isinstance(one.value, ast.Name) and one.value.id == "self"):
                self.no(node, "an attribute of another object is set: send it")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("map", "call", "step"):
            first = node.args[0] if node.args else None
            method = isinstance(first, ast.Attribute) and self._named(first.value, "self")
            if isinstance(first, ast.Lambda) or (method and node.func.attr == "map"):
                self.no(node, f"{node.func.attr} takes a function of the module, not a lambda or a "
                              "method of a party")  # fmt: skip
        self.generic_visit(node)


def _is_pure(name: str) -> bool:
    """Whether a name of numpy is a type, a constant, or a function of its arguments alone."""
    from numpy.testing import overrides

    named = getattr(np, name, None)
    if not callable(named) or name in IMPURE:
        return name in NUMPY
    array_function = overrides.allows_array_function_override(named)
    return name in NUMPY or isinstance(named, np.ufunc) or array_function


def _loaded(node: ast.AST) -> str | None:
    """Name of a local variable that is read; None for other nodes."""
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else None


def _is_local(target: ast.AST) -> bool:
    """Whether only local names are assigned."""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(one, ast.Name) for one in parts)


def _set_by(target: ast.AST, value: ast.AST, part: ast.AST) -> set[str]:
    """Names that an assignment binds to a part of its value, or to a container of it."""
    pair = [one.elts for one in (target, value) if isinstance(one, ast.Tuple)]
    if len(pair) == 2 and len(pair[0]) == len(pair[1]):
        own = [t for t, v in zip(*pair, strict=True) if part in ast.walk(v)]
    else:
        own = [target]
    return {n.id for one in own for n in ast.walk(one) if isinstance(n, ast.Name)}
