"""Builders of vector code, each in a kernel of a few instructions."""

import platform

import pytest
from llvmlite import ir as llvm
from numba import njit, types
from numba.extending import intrinsic

from securevfl.field.kernels import ir

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="registers are named as on x86-64"
)


@intrinsic
def _squares(context, x):
    """Return the sum of four squares of x, whose splat is hidden from the compiler."""

    def generate(cx, builder, _, args):
        vector = ir.opaque(builder, ir.splat(builder, args[0], 4))
        product = builder.mul(vector, vector)
        lanes = [builder.extract_element(product, llvm.Constant(ir.I32, i)) for i in range(4)]
        total = lanes[0]
        for lane in lanes[1:]:
            total = builder.add(total, lane)
        return total

    return types.int64(types.int64), generate


def test_an_opaque_vector_is_the_same_vector():
    squares = njit(lambda x: _squares(x))
    assert squares(7) == 4 * 49


def test_the_compiler_does_not_look_into_an_opaque_vector():
    squares = njit(lambda: _squares(7))
    assert squares() == 4 * 49
    (code,) = squares.inspect_llvm().values()
    assert "asm" in code
    assert "i64 196" not in code
