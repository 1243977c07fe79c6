"""Kernels of the MIMW layer as tile IR with layouts and offsets, for tests of their lowerings: no pass is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mimw.codegen.ptx.emit import emit_text
from mimw.ir.core import Region, Value
from mimw.ir.layout import Layout
from mimw.ir.layout_shapes import expand, slice_
from mimw.ir.ops.control import ForOp
from mimw.ir.ops.task import PartitionOp, TaskSpec
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.tma import box_plan
from mimw.ir.types import BF16, I32, BarrierType, DType, MemDescType, TensorDescType, Type
from mimw.passes.facts import compute
from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target
from tests.codegen.ptx.lowering_kit import LOC, Kernel


class MimwKernel(Kernel):
    """A kernel with buffers, barriers and tasks; shared memory is allotted in the order of allocation."""

    def __init__(
        self, arguments: list[tuple[str, Type]], num_warps: int = 4, cluster: tuple[int, int, int] = (1, 1, 1)
    ):
        super().__init__(arguments, num_warps)
        self.bytes = 0
        if cluster != (1, 1, 1):
            self.function.options["ctas_per_cga"] = cluster

    def barriers(self, count: int, arrive: int = 1, per_thread: bool = False) -> Value:
        """An array of mbarriers."""
        at = self._take(8 * max(1, count), 16)
        return self.op("barrier.alloc", BarrierType(count, arrive), per_thread=per_thread, offset=at)

    def buffer(self, shape: tuple[int, ...], dtype: DType, layout: SharedLayout, slots: int = 0) -> Value:
        """A buffer, or a ring of them."""
        size = -(-layout.size * dtype.itemsize // 1024) * 1024
        whole = (slots, *shape) if slots else shape
        at = self._take(size * max(1, slots), 1024)
        return self.op("memory.local_alloc", None, MemDescType(whole, dtype, "shared", layout), offset=at)

    def _take(self, size: int, align: int) -> int:
        at = -(-self.bytes // align) * align
        self.bytes = at + size
        return at

    def i32(self, value: int) -> Value:
        """A constant."""
        return self.const(value, I32)

    def arith(self, name: str, a: Value, b: Value | int) -> Value:
        """An integer operation."""
        return self.op(f"arith.{name}", a, self.const(b, a.type) if isinstance(b, int) else b)

    def view(self, ring: Value, slot: Value) -> Value:
        """One slot of a ring of buffers or barriers."""
        name = "barrier.view" if isinstance(ring.type, BarrierType) else "memory.local_view"
        return self.op(name, ring, slot)

    @contextmanager
    def loop(self, upper: Value | int, inits: list[Value]) -> Iterator[Any]:
        """for i in range(upper): yields an object with `i`, `args`, `next` (set it) and, afterwards, `outs`."""
        limit = self.i32(upper) if isinstance(upper, int) else upper
        op = ForOp(self.i32(0), limit, self.i32(1), inits, loc=LOC)
        block = op.body.block
        found = _Loop(block.add_arg(I32, "i"), [block.add_arg(v.type, v.name) for v in inits])
        with self.b.at(block):
            yield found
            self.op("control.yield", found.next)
        self.b.insert(op)
        found.outs = list(op.results)

    def tasks(self, default: Callable[[], None], *others: tuple[TaskSpec, Callable[[], None]], total: int = 0) -> None:
        """Side by side: the default task and others (their first warps given)."""
        specs = [
            TaskSpec("default", self.num_warps, others[0][0].num_regs and self.registers, 0),
            *(s for s, _ in others),
        ]
        regions = [Region() for _ in specs]
        for region, make in zip(regions, (default, *(m for _, m in others)), strict=True):
            with self.b.at(region.block):
                make()
                self.op("control.yield", [])
        self.b.insert(PartitionOp(tuple(map(str, specs)), regions, loc=LOC))
        last = max(s.start_warp + s.num_warps for s in specs)
        self.function.options["total_warps"] = total or last
        self.function.options["task_sync_ids"] = tuple(range(1, len(specs) + 1))

    registers = 0

    def offsets(self, shape: tuple[int, ...], layout: Layout, pitch: int) -> Value:
        """row * pitch + column as a tile."""
        m, n = shape
        rows = self.op("tensor.arange", 0, m, layout=slice_(layout, 1)[0])
        cols = self.op("tensor.arange", 0, n, layout=slice_(layout, 0)[0])
        rows = self.op("arith.mul", rows, self.const(pitch, rows.type))
        wide: list[Value] = []
        for v, axis in ((rows, 1), (cols, 0)):
            one = self.op("tensor.expand_dims", v, axis, layout=expand(v.type.layout, axis))
            wide.append(self.op("tensor.broadcast", one, shape, layout=layout))
        return self.op("arith.add", *wide)

    def store_tile(self, ptr: Value, tile: Value, pitch: int) -> None:
        """Write a tile to global memory, row-major."""
        t: Any = tile.type
        self.store(ptr, self.offsets(t.shape, t.layout, pitch), tile)

    def text(self, target: str = "sm_90a") -> str:
        """The PTX."""
        module = self.module()
        return emit_text(module, get_target(target), compute(module.function))

    def simulate(self, args: list[Any], grid: tuple[int, int, int] = (1, 1, 1), seed: int = 0) -> str:
        """Run in the PTX simulator; descriptors are (array, desc type) pairs. Gives the text."""
        text = self.text()
        run_ptx(text, None, grid, [_argument(a) for a in args], shared_bytes=self.bytes, seed=seed)
        return text


class _Loop:
    def __init__(self, i: Value, args: list[Value]) -> None:
        self.i = i
        self.args = args
        self.next: list[Value] = list(args)
        self.outs: list[Value] = []


def descriptor(shape: tuple[int, ...], dtype: DType = BF16, span: int | None = None) -> TensorDescType:
    """A descriptor of blocks that lie swizzled in shared memory (span 0: row-major)."""
    return TensorDescType(shape, dtype, swizzled(shape, dtype, span))


def swizzled(shape: tuple[int, ...], dtype: DType = BF16, span: int | None = None) -> SharedLayout:
    """The layout of a block; by default with the longest span that fits."""
    if span is None:
        span = next(s for s in (128, 64, 32, 0) if not s or shape[-1] * dtype.itemsize % s == 0)
    return SharedLayout.swizzled(shape, None, dtype.itemsize, span) if span else SharedLayout.row_major(shape)


def _argument(arg: Any) -> Any:
    if not isinstance(arg, tuple):
        return arg
    array, t = arg
    plan = box_plan(t.layout, t.block_shape, t.dtype.itemsize)
    assert isinstance(array, np.ndarray)
    return tensor_map.encode(
        array,
        t.dtype.name,
        array.shape[::-1],
        array.strides[-2::-1],
        plan.box[::-1],
        [1] * array.ndim,
        plan.swizzle,
        "zero",
    )
