"""Matrix products: products and sums in float64, rounded once to the accumulator's type; integers exactly, wrapping.

f32 operands under "tf32" are first rounded to 10 mantissa bits, ties away from zero. Hardware sums otherwise: the
declaration's bound says by how much engines may differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase, Value
from mimw.ir.ops.mma import AsyncDotOp
from mimw.ir.types import F32, DType, InflightType, MemDescType, TensorType
from mimw.sim.agents import JobsWait
from mimw.sim.tile.in_flight import Product, all_but
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.memory import read_buffer
from mimw.sim.tile.numerics import Array, numpy_dtype, round_tf32, to_float
from mimw.sim.tile.registry import executes
from mimw.sim.tile.shared_memory import READ, Buffer, InflightTile, Use
from mimw.sim.tile.speeds import multiplications


def operand_dtype(v: Value) -> DType:
    """The element type of a product's operand, a tile or a memdesc."""
    t = v.type
    d = t.dtype if isinstance(t, MemDescType) else t.element if isinstance(t, TensorType) else None
    if not isinstance(d, DType):
        raise InternalError(f"a product of {t}")
    return d


def product(m: Machine, op: OpBase, sides: list[Any], acc: Array, out: DType, precision: str) -> Array:
    """acc + a @ b in type `out`; `sides` are what the op's first two operands are at run time."""
    factors: list[Array] = []
    for v, x in zip(op.operands[:2], sides, strict=True):
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
    sides = [m.env[v] for v in op.operands[:2]]
    m.set(op.results[0], product(m, op, sides, m.env[acc], operand_dtype(acc), op.attrs["precision"]))


@executes("mma.async_dot")
def _async_dot(m: Machine, op: AsyncDotOp) -> None:
    before, sides = m.env[op.acc], [m.env[op.a], m.env[op.b]]
    fresh = op.use_acc is not None and not bool(m.env[op.use_acc])
    t = op.result.type
    assert isinstance(t, InflightType) and isinstance(t.tensor.element, DType)
    element = t.tensor.element
    tile = m.env[op.result] = InflightTile(before.value if isinstance(before, InflightTile) else before)

    def multiply() -> None:
        acc = before.value if isinstance(before, InflightTile) else before
        tile.value = product(m, op, sides, np.zeros_like(acc) if fresh else acc, element, "tf32")

    # What the product reads stays as it is until the wait, so that the sum may be formed now: else it is an error, if any are looked for.
    if m.clock.watch:
        multiply()
    buffers = [m.env[v] for v in (op.a, op.b) if isinstance(m.env[v], Buffer)]
    uses = [Use(b, READ, "an asynchronous dot", "an async_dot_wait", op.loc, m.clock).begin() for b in buffers]
    products = m.in_flight.products
    job = m.scheduler.post(
        "product",
        op.loc,
        None if m.clock.watch else multiply,
        after=products[-1].job if products else None,
        size=multiplications(op),
    )
    products.append(Product(job, uses))


@executes("mma.async_dot_wait")
def _async_dot_wait(m: Machine, op: OpBase) -> None:
    products = m.in_flight.products
    count = all_but(len(products), op.attrs["pendings"])
    m.scheduler.block(JobsWait([p.job for p in products[:count]], "asynchronous dots", op.loc))
    for p in products[:count]:
        for use in p.uses:
            use.end()
    del products[:count]
    for v, r in zip(op.operands, op.results, strict=True):
        tile = m.env[v]
        if isinstance(r.type, TensorType):
            m.set(r, tile.value)
        else:
            m.env[r] = tile


@executes("mma.as_inflight")
def _as_inflight(m: Machine, op: OpBase) -> None:
    m.env[op.results[0]] = InflightTile(m.env[op.operands[0]])
