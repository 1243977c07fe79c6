"""Matrix products: products and sums in float64, rounded once to the accumulator's type; integers exactly, wrapping.

f32 operands under "tf32" are first rounded to 10 mantissa bits, ties away from zero. Hardware sums otherwise: the
declaration's bound says by how much engines may differ.
"""

from __future__ import annotations

import numpy as np

from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase, Value
from mimw.ir.types import F32, DType, InflightType, MemDescType, TensorType
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.memory import read_buffer
from mimw.sim.tile.numerics import Array, numpy_dtype, round_tf32, to_float
from mimw.sim.tile.registry import executes
from mimw.sim.tile.shared_memory import Buffer, InflightTile


def operand_dtype(v: Value) -> DType:
    """The element type of a product's operand, a tile or a memdesc."""
    t = v.type
    d = t.dtype if isinstance(t, MemDescType) else t.element if isinstance(t, TensorType) else None
    if not isinstance(d, DType):
        raise InternalError(f"a product of {t}")
    return d


def product(m: Machine, op: OpBase, acc: Array, out: DType, precision: str) -> Array:
    """acc + a @ b for the op's first two operands, in type `out`."""
    factors: list[Array] = []
    for v in op.operands[:2]:
        x = m.env[v]
        x = read_buffer(m, op, x) if isinstance(x, Buffer) else x
        if operand_dtype(v) is F32 and precision == "tf32":
            x = round_tf32(x)
        factors.append(x)
    a, b = factors
    if out.kind != "float" and (a.itemsize > 1 or b.itemsize > 1):
        raise InternalError(f"a product of {a.dtype} and {b.dtype}", op.loc)
    if out.kind == "float":
        total = a.astype(np.float64) @ b.astype(np.float64) + acc.astype(np.float64)
        return to_float(total, out)
    # Sums of products of 8-bit numbers are exact in float64, and there matmul is fast.
    total = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64) + acc.astype(np.int64)
    return total.astype(numpy_dtype(out))


@executes("mma.dot")
def _dot(m: Machine, op: OpBase) -> None:
    acc = op.operands[2]
    m.set(op.results[0], product(m, op, m.env[acc], operand_dtype(acc), op.attrs["precision"]))


@executes("mma.async_dot")
def _async_dot(m: Machine, op: OpBase) -> None:
    acc = m.env[op.operands[2]]
    if isinstance(acc, InflightTile):
        acc = acc.value
    t = op.results[0].type
    assert isinstance(t, InflightType) and isinstance(t.tensor.element, DType)
    m.env[op.results[0]] = InflightTile(product(m, op, acc, t.tensor.element, "tf32"))
    m.shared.products.append([m.env[v] for v in op.operands[:2] if isinstance(m.env[v], Buffer)])


@executes("mma.async_dot_wait")
def _async_dot_wait(m: Machine, op: OpBase) -> None:
    m.shared.wait_products(op.attrs["pendings"])
    for v, r in zip(op.operands, op.results, strict=True):
        tile = m.env[v]
        if isinstance(r.type, TensorType):
            m.set(r, tile.value)
        else:
            m.env[r] = tile


@executes("mma.as_inflight")
def _as_inflight(m: Machine, op: OpBase) -> None:
    m.env[op.results[0]] = InflightTile(m.env[op.operands[0]])
