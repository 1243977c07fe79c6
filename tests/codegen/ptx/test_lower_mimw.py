"""Tasks, barriers and TMA in PTX: what the text says, that ptxas takes it without complaint, that the simulator agrees with NumPy."""

from __future__ import annotations

from mimw.codegen.ptx.assemble import assemble
from mimw.ir.core import Value
from mimw.ir.layout_factories import wgmma_accumulator
from mimw.ir.ops.task import TaskSpec
from mimw.ir.types import BF16, F32, I32, PointerType, TensorType
from tests.codegen.ptx.mimw_kit import MimwKernel, descriptor, swizzled


def product_ring(m: int = 64, n: int = 64, bk: int = 64, stages: int = 3, registers: int = 0, pending: int = 0) -> MimwKernel:
    """C = A @ B for one tile: a producer warp with TMA, the default task with wgmma."""
    a_desc, b_desc = descriptor((m, bk)), descriptor((bk, n))
    k = MimwKernel([("a", a_desc), ("b", b_desc), ("c", PointerType(F32)), ("trips", I32)])
    k.registers = registers and 232
    a, b, c, trips = k.args
    full, empty = k.barriers(stages), k.barriers(stages)
    a_ring = k.buffer((m, bk), BF16, swizzled((m, bk)), stages)
    b_ring = k.buffer((bk, n), BF16, swizzled((bk, n)), stages)
    acc_type = TensorType((m, n), F32, wgmma_accumulator((m, n), 4))

    def at(i: Value) -> tuple[Value, Value]:
        return k.arith("rem", i, stages), k.arith("and", k.arith("div", i, stages), 1)

    def consumer() -> None:
        acc = k.op("mma.as_inflight", k.const(0.0, acc_type))
        with k.loop(trips, [acc]) as loop:
            slot, phase = at(loop.i)
            k.op("barrier.wait", k.view(full, slot), phase)
            first = k.op("arith.gt", loop.i, k.i32(0))
            made = k.op("mma.async_dot", k.view(a_ring, slot), k.view(b_ring, slot), loop.args[0], use_acc=first)
            done = k.op("mma.async_dot_wait", [made], pending)
            if pending:
                previous = k.arith("sub", loop.i, 1)
                k.op("barrier.arrive", k.view(empty, k.arith("rem", previous, stages)), k.op("arith.ge", previous, k.i32(0)))
            else:
                k.op("barrier.arrive", k.view(empty, slot))
                done = k.op("mma.as_inflight", done)
            loop.next = [done]
        tile = k.op("mma.async_dot_wait", loop.outs, 0)
        k.store_tile(c, tile, n)

    def producer() -> None:
        with k.loop(trips, []) as loop:
            slot, phase = at(loop.i)
            k.op("barrier.wait", k.view(empty, slot), k.arith("xor", phase, 1))
            bar = k.view(full, slot)
            k.op("barrier.expect", bar, bytes=(m + n) * bk * 2)
            here = k.arith("mul", loop.i, bk)
            k.op("async_copy.tma_load", a, k.view(a_ring, slot), bar, None, None, [k.i32(0), here])
            k.op("async_copy.tma_load", b, k.view(b_ring, slot), bar, None, None, [here, k.i32(0)], eviction="evict_last")

    k.tasks(consumer, (TaskSpec("producer", 1, registers, 4), producer), total=8 if registers else 5)
    return k


def test_text() -> None:
    k = product_ring(registers=40, pending=1)
    text = k.text()
    print(text)
    done = assemble(text, "sm_90a")
    assert not done.warnings and not done.spill_stores, done.warnings
