# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Types of operands: their NumPy dtypes, what a constant stands for in each, and 64-bit values made of two registers.

Types: b32 u32 i32 f32, b16 u16 i16 f16 bf16, b64 u64 i64 f64. Knows no instruction.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from mimw.sim.amdgcn.decode import Const
from mimw.sim.amdgcn.state import Array

DTYPES: dict[str, Any] = {
    "b32": np.uint32, "u32": np.uint32, "i32": np.int32, "f32": np.float32, "b16": np.uint16, "u16": np.uint16,
    "i16": np.int16, "f16": np.float16, "bf16": np.uint16, "b64": np.uint64, "u64": np.uint64, "i64": np.int64,
    "f64": np.float64,
}  # fmt: skip
FLOATS = {"f32": "<f", "f16": "<e", "f64": "<d"}
SHARED_APERTURE, PRIVATE_APERTURE = 0x7E00, 0x7D00


def size_of(kind: str) -> int:
    """Bytes of a type."""
    return np.dtype(DTYPES[kind]).itemsize


def constant_bits(op: Const, kind: str) -> int:
    """The bits that a constant stands for in an operand of type `kind`.

    Integers from -16 to 64 are inline constants, sign-extended; other integers are 32-bit literals: the upper half of an
    f64, the zero-extended lower half of another 64-bit operand. Floats take the operand's own format.
    """
    size = size_of(kind)
    if isinstance(op.value, float):
        code = FLOATS.get(kind, {2: "<e", 4: "<f", 8: "<d"}[size])
        return int.from_bytes(struct.pack(code, op.value), "little")
    if kind == "f64" and not -16 <= op.value <= 64:
        return (op.value & 0xFFFFFFFF) << 32
    return op.value & ((1 << 8 * size) - 1)


def join(low: Array, high: Array) -> Array:
    """Two uint32 arrays as one uint64 array."""
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def flush(value: Array, where: Array) -> Array:
    """Denormals of a float array become zeros of their sign in the waves of `where` ((n,) bool)."""
    tiny = np.finfo(value.dtype).tiny
    rows = where if value.ndim == 1 else where[:, None]
    return np.where(rows & (np.abs(value) < tiny), np.copysign(value.dtype.type(0), value), value)
