"""Compilation, caching and calls of all kernels.

numba compiles a kernel when it first meets arguments of some kinds, and `objects` keeps the machine
code. Where the code is kept already, a process needs llvmlite alone: importing numba and setting up
its first call take half a second of CPU time.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import threading
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir

from securevfl.errors import ConfigurationError
from securevfl.field.kernels import objects

_Function = TypeVar("_Function", bound=Callable[..., object])

_I32, _I64 = ir.IntType(32), ir.IntType(64)
# Neither Python objects nor memory of numba's own nor exceptions: then the code calls nothing.
_OPTIONS: dict[str, Any] = {
    "boundscheck": False, "error_model": "numpy", "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True, "_nrt": False,
}  # fmt: skip
_SCALARS: dict[type, Any] = {
    int: ctypes.c_int64, bool: ctypes.c_bool, np.int64: ctypes.c_int64, np.uint64: ctypes.c_uint64,
    np.uint32: ctypes.c_uint32, np.int32: ctypes.c_int32, float: ctypes.c_double,
    np.float64: ctypes.c_double, np.float32: ctypes.c_float,
}  # fmt: skip
_RESULTS: dict[str, Any] = {
    "none": None, "bool": ctypes.c_bool, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
}  # fmt: skip
_WHOLE = frozenset((bool, np.int64, np.uint64, np.uint32, np.int32))
_HEAD = object.__basicsize__  # Bytes that all objects of Python begin with.
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_lock = threading.Lock()


class Kernel:
    """A function compiled for each combination of argument types, run without Python's lock.

    Arguments are arrays, numbers of the types of `_SCALARS` and tuples of both. The result is
    nothing, a truth value or an integer of 64 bits. A kernel may neither allocate nor raise.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.__module__ = function.__module__

    def __call__(self, *arguments: Any) -> Any:
        """Run the code for arguments of these kinds."""
        kinds: list[Any] = []
        words: list[Any] = []
        _flatten(arguments, kinds, words)
        compiled = self._compiled.get(tuple(kinds)) or self.compiled(arguments)
        return compiled(*words)

    def compiled(self, arguments: tuple[Any, ...]) -> Any:
        """Return the machine code for arguments of these kinds."""
        kinds: list[Any] = []
        _flatten(arguments, kinds, [])
        key = tuple(kinds)
        with _lock:
            if key not in self._compiled:
                self._compiled[key] = self._load(tuple(map(_described, arguments)))
        return self._compiled[key]

    def _load(self, kinds: tuple[Any, ...]) -> Any:
        refuse_other_layout()
        name = f"{self.__module__.partition('.kernels.')[2]}.{self.__name__}"
        address, result = objects.find(name, repr(kinds), lambda: compile_to_object(self, kinds))
        return ctypes.CFUNCTYPE(_RESULTS[result], *_words(kinds))(address)


def compiled(kernel: Any, *arguments: Any) -> Any:
    """Machine code of a kernel for arguments of the types of `arguments`, to call repeatedly.

    It takes the `id` of each array and plain numbers, with tuples flattened. Calling it saves the
    microsecond in which `Kernel` finds the types.
    """
    return kernel.compiled(arguments)


def address(array: np.ndarray[Any, Any]) -> int:
    """Address of an array's data, read as kernels read it.

    It is what `array.ctypes.data` says, in a quarter of the time.
    """
    return int(ctypes.c_int64.from_address(id(array) + _HEAD).value)


def _flatten(values: tuple[Any, ...], kinds: list[Any], words: list[Any]) -> None:
    """Append kinds of values and their words (a tuple's kinds end with None); OverflowError."""
    for value in values:
        kind = type(value)
        if kind in _WHOLE:
            kinds.append(kind)
            words.append(int(value))
        elif kind is int or kind is float:
            if kind is int and not _LEAST <= value <= _GREATEST:  # A word would wrap in silence.
                raise OverflowError(f"kernels take integers of 64 bits with a sign, got {value}.")
            kinds.append(kind)
            words.append(value)
        elif isinstance(value, np.ndarray):
            kinds += value.dtype, value.ndim, value.flags.c_contiguous
            words.append(id(value))
        elif kind is tuple:
            kinds.append(tuple)
            if set(map(type, value)) == {int} and _LEAST <= min(value) <= max(value) <= _GREATEST:
                kinds += map(type, value)
                words += value
            else:
                _flatten(value, kinds, words)
            kinds.append(None)
        else:
            kinds.append(kind)
            words.append(float(value) if isinstance(value, np.floating) else int(value))


@lru_cache(maxsize=1)
def refuse_other_layout() -> None:
    """Refuse a NumPy version whose array objects differ from the layout that `_fields` reads.

    RuntimeError when address, number of axes, shape or strides of an array are not where they
    should be.
    """
    array = np.empty((3, 5), dtype=np.uint32)[::2, 1:]
    fields = id(array) + _HEAD
    data, _, shapes, strides = (ctypes.c_int64 * 4).from_address(fields)
    found = [data, ctypes.c_int32.from_address(fields + 8).value, strides - shapes]
    if found == [array.__array_interface__["data"][0], 2, 16]:  # So shapes is an address.
        found = list((ctypes.c_int64 * 4).from_address(shapes))
    if found != [*array.shape, *array.strides]:
        raise RuntimeError(
            f"numpy {np.__version__} lays out its arrays in a way that this version of securevfl "
            "does not know, so compiled kernels could read wrong numbers; install an earlier numpy "
            "(2.x is known)."
        )


def _described(value: Any) -> Any:
    """Kind of an argument, equal in every process; TypeError for a type that kernels lack."""
    if isinstance(value, np.ndarray):
        if not value.dtype.isnative:
            raise TypeError(f"kernels take numbers in the machine's byte order, got {value.dtype}.")
        return value.dtype.name, value.ndim, "C" if value.flags.c_contiguous else "A"
    if isinstance(value, tuple):
        return ("tuple", *map(_described, value))
    if type(value) not in _SCALARS:
        raise TypeError(f"kernels take arrays, numbers and tuples of them, got {value!r}.")
    return type(value).__name__


def _words(kinds: Any) -> list[Any]:
    """ctypes types of the words that encode arguments."""
    types: list[Any] = []
    for kind in kinds:
        if isinstance(kind, str):
            types += [c for t, c in _SCALARS.items() if t.__name__ == kind]
        elif kind[0] == "tuple":
            types += _words(kind[1:])
        else:
            types.append(ctypes.c_void_p)
    return types


class _Module:
    """A module imported on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


# What code generators need of numba, which no process imports that finds its kernels compiled.
types: Any = _Module("numba.core.types")
cgutils: Any = _Module("numba.core.cgutils")


class Part:
    """A function or code generator used inside kernels, in the form that numba compiles."""

    def __init__(self, function: Callable[..., Any], decorate: Callable[..., Any]) -> None:
        self._function, self._decorate = function, decorate
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    @cached_property
    def _numba_type_(self) -> Any:  # numba asks objects that it does not know for this attribute.
        from numba.core.registry import cpu_target

        self._made = self._decorate(self._function)  # Its type holds it weakly.
        context = cpu_target.typing_context
        context.refresh()  # A code generator is known after this only.
        return context.resolve_value_type(self._made)


def kernel(function: _Function) -> _Function:
    """Decorator that turns a function into a `Kernel`, compiled by argument types."""
    return cast(_Function, Kernel(function))


def inlined(function: _Function) -> _Function:
    """Decorator for helper functions that are inlined into kernels."""

    def decorate(function: Any) -> Any:
        import numba

        return numba.njit(inline="never", **_OPTIONS)(function)

    return cast(_Function, Part(function, decorate))


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a code generator into a function that kernels may call."""

    def decorate(function: Any) -> Any:
        from numba import extending

        return extending.intrinsic(function)

    return cast(Callable[..., Any], Part(function, decorate))


def compile_to_object(kernel: Kernel, kinds: tuple[Any, ...]) -> tuple[list[bytes], str]:
    """Object code of a kernel and of its entry, and the type of its result.

    The entry is a C function whose arguments are words, with the addresses of array objects among
    them; it takes these apart and calls numba's function, which writes its result to an address.
    ConfigurationError if numba is disabled; TypeError if the kernel raises or calls other code.
    """
    import numba

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise ConfigurationError(
            "field arithmetic is compiled by numba, and NUMBA_DISABLE_JIT forbids that; unset it"
        )
    compiler = numba.njit(**_OPTIONS)(kernel.py_func)
    compiler.compile(tuple(map(_type, kinds)))
    (made,) = compiler.overloads.values()
    text = made.library.get_llvm_str()
    outside = [n for n in re.findall(r'^declare[^@]*@"?([^"(]+)', text, re.M) if n[:5] != "llvm."]
    if outside or ".const.pickle" in text:
        raise TypeError(f"kernel {kernel.__name__} may not raise nor call {outside}.")
    entry = _entry(made.fndesc.llvm_func_name, kinds, str(made.signature.return_type))
    return [made.library._get_compiled_object(), entry], str(made.signature.return_type)


def _type(kind: Any) -> Any:
    """numba's type of an argument, without assumed alignment or read-only flag."""
    names = {"int": "int64", "float": "float64", "bool": "boolean"}
    if isinstance(kind, str):
        return getattr(types, names.get(kind, kind))
    if kind[0] == "tuple":
        return types.Tuple(tuple(map(_type, kind[1:])))
    item = getattr(types, names.get(kind[0], kind[0]))
    return types.Array(item, kind[1], kind[2], aligned=False)


def _entry(target: str, kinds: tuple[Any, ...], result: str) -> bytes:
    """Object code of a kernel's entry: it calls symbol `target` on the words of `kinds`."""
    module = ir.Module()
    simple = {ctypes.c_double: ir.DoubleType(), ctypes.c_float: ir.FloatType()}
    words = _words(kinds)
    given = [simple.get(w, ir.IntType(8 * ctypes.sizeof(w))) for w in words]
    function = ir.Function(module, ir.FunctionType(_I64, given), objects.ENTRY)
    builder = ir.IRBuilder(function.append_basic_block())
    places = [builder.alloca(_I64) for _ in range(2)]  # The result, and what is raised: nothing.
    builder.store(_I64(0), places[0])
    arguments = [builder.ptrtoint(place, _I64) for place in places]
    flat = iter(function.args)
    for kind in _leaves(kinds):
        word = next(flat)
        arguments += [word] if isinstance(kind, str) else _fields(builder, word, *kind[:2])
    signature = ir.FunctionType(_I32, [a.type for a in arguments])
    builder.call(ir.Function(module, signature, target), arguments)
    value = builder.load(places[0])
    builder.ret(value)
    return objects.assemble(str(module))


def _leaves(kinds: Any) -> list[Any]:
    """Return the kinds of arguments with tuples opened."""
    leaves: list[Any] = []
    for kind in kinds:
        is_tuple = not isinstance(kind, str) and kind[0] == "tuple"
        leaves += _leaves(kind[1:]) if is_tuple else [kind]
    return leaves


def _fields(builder: Any, array: Any, dtype: str, ndim: int) -> list[Any]:
    """Emitted values of numba's fields for an array, read from NumPy's array object.

    The object begins as `PyArrayObject_fields` of numpy's C interface says: after the head that all
    objects have stand the addresses of the data, the number of axes, the addresses of the shape and
    of the strides.
    """

    def word(address: Any, index: int) -> Any:
        place = builder.add(address, _I64(8 * index))
        return builder.load(builder.inttoptr(place, ir.PointerType(_I64)))

    fields = builder.add(array, _I64(_HEAD))
    data, shapes, strides = (word(fields, i) for i in (0, 2, 3))
    axes = range(ndim)
    shape = [word(shapes, i) for i in axes]
    size, item = _I64(1), _I64(np.dtype(dtype).itemsize)
    for length in shape:
        size = builder.mul(size, length)
    # Neither numba's own memory nor an object that owns the data.
    return [_I64(0), _I64(0), size, item, data, *shape, *(word(strides, i) for i in axes)]
