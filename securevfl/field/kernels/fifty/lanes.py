"""Numbers modulo p = 2^50 - 2^14 + 1 in 64-bit lanes: since 2^50 = c = 2^14 - 1, shifts reduce."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from securevfl.field.kernels.ir import I32, I64, every, smaller
from securevfl.field.kernels.primes import P50

BITS, SHIFT = 50, 14
DOUBLE = ir.DoubleType()
# Doubles from 2^52 to 2^53 have a unit of 1: x + MAGIC holds the integer x in its last bits, for
# |x| < 2^51.
MAGIC = 1.5 * 2.0**52
MAGIC_BITS = 0x4338 << 48


def fold(builder: Any, x: Any) -> Any:
    """Emit a number equal to x < 2^64 mod p and below 2^50 + 2^28."""
    lanes = x.type.count
    high = builder.lshr(x, every(I64, lanes, BITS))
    low = builder.and_(x, every(I64, lanes, 2**BITS - 1))
    return builder.add(low, builder.sub(builder.shl(high, every(I64, lanes, SHIFT)), high))


def finish(builder: Any, x: Any) -> Any:
    """Emitted vector x mod p for x < 2^64: one fold leaves less than 2p, then one subtraction."""
    r = fold(builder, x)
    less = builder.sub(r, every(I64, r.type.count, P50))
    if r.type.count == 8:
        return smaller(builder, r, less)
    # 256 bits have no unsigned minimum of 64-bit lanes, but select by the sign.
    return builder.select(builder.icmp_signed("<", less, every(I64, less.type.count, 0)), r, less)


def times_2_50(builder: Any, x: Any) -> Any:
    """Emit a number equal to 2^50 x mod p, between -2^51 and 2^51, for 0 <= x < 2^51.

    2^50 x = 2^14 x - x, and with x = 2^36 u + v the first part is 2^50 u + 2^14 v.
    """
    lanes = x.type.count
    u = builder.lshr(x, every(I64, lanes, BITS - SHIFT))
    v = builder.and_(x, every(I64, lanes, 2 ** (BITS - SHIFT) - 1))
    u = builder.sub(builder.shl(u, every(I64, lanes, SHIFT)), u)
    return builder.sub(builder.add(builder.shl(v, every(I64, lanes, SHIFT)), u), x)


def centred_bits(builder: Any, x: Any) -> Any:
    """Emitted bits of the doubles x - p where x > (p - 1)/2, else x; exact for x < 2^51."""
    lanes = x.type.count
    above = builder.icmp_signed(">", x, every(I64, lanes, (P50 - 1) // 2))
    signed = builder.sub(x, builder.select(above, every(I64, lanes, P50), every(I64, lanes, 0)))
    return builder.bitcast(doubles(builder, signed), x.type)


def doubles(builder: Any, x: Any) -> Any:
    """Emit signed integers below 2^51 in magnitude as doubles."""
    lanes = x.type.count
    shifted = builder.add(x, every(I64, lanes, MAGIC_BITS))
    real = builder.bitcast(shifted, ir.VectorType(DOUBLE, lanes))
    return builder.fsub(real, every(DOUBLE, lanes, MAGIC))


def integers(builder: Any, x: Any) -> Any:
    """Emit doubles that are integers below 2^51 in magnitude as signed 64-bit lanes."""
    lanes = x.type.count
    shifted = builder.fadd(x, every(DOUBLE, lanes, MAGIC))
    bits = builder.bitcast(shifted, ir.VectorType(I64, lanes))
    return builder.sub(bits, every(I64, lanes, MAGIC_BITS))


def at(builder: Any, address: Any, step: Any, index: int) -> Any:
    """Emitted address `index` steps after `address`."""
    return builder.add(address, builder.mul(step, ir.Constant(I64, index)))


def write(builder: Any, target: Any, offset: int, value: Any, around: bool) -> None:
    """Emit a store of vector `value` at `target` + bytes; with `around`, aligned, past caches."""
    place = builder.inttoptr(
        builder.add(target, ir.Constant(I64, offset)), ir.PointerType(value.type)
    )
    if not around:
        builder.store(value, place, align=8)
        return
    written = builder.store(value, place, align=8 * value.type.count)
    written.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))
