"""Asynchronous products by wgmma: descriptors from shared layouts, accumulators tied in place, waits that give them anew.

A descriptor's low word varies (address), its high word is constant (strides, swizzle). Whatever swizzle a buffer has is read off its
layout and proven against the hardware's formula; a layout that is none is our error.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import Lane, Tile
from mimw.codegen.lowering import Inflight, Lowering, layout_of, lowers, refuse
from mimw.codegen.machine import Imm, Inst, Operand, Reg, Vec
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower.mma import accumulator_type, mma_type, ptx_builder, words
from mimw.codegen.shared.shared_memory import engine_buffer, memdesc
from mimw.diagnostics import InternalError
from mimw.ir.core import Function, Value
from mimw.ir.layout import Layout, SharedLayout
from mimw.ir.types import F16, F32, I32, U32, DType, InflightType, MemDescType, TensorType


class Matrix:
    """An operand in shared memory: where its descriptors start, and their constant parts."""

    __slots__ = ("base", "high", "k_dim", "layout", "low", "mn_major", "size")

    def __init__(self, ctx: Lowering, value: Value, k_dim: int) -> None:
        t, layout = memdesc(ctx, value)
        self.layout = layout
        self.k_dim = k_dim
        self.size = t.dtype.itemsize
        self.mn_major = not layout.bases[k_dim] or layout.bases[k_dim][0] != 1
        span, lbo, sbo = _swizzle(layout, k_dim, self.size, self.mn_major)
        self.low = lbo // 16 << 16
        self.high = {128: 1, 64: 2, 32: 3}[span] << 30 | sbo // 16
        b = ctx.b
        address = engine_buffer(ctx, value, 16, ctx.b.loc).address
        start = b.shift(b.base(address), -4) if address.reg is not None else b.const(U32, 0)
        if in_cluster(ctx.function):
            # There the CTA's own addresses carry its rank in bits 24 and up, which would run into the leading byte offset.
            start = b.bit_and(start, 0x3FFF)
        self.base = b.plus(start, (address.off >> 4) + self.low)

    def descriptor(self, b: PtxBuilder, mn: int, k: int, moved: Lane | None) -> Reg:
        """The descriptor of the tile that starts at (mn, k), moved by a thread-independent number of 16-byte units."""
        coords = (mn, k) if self.k_dim == 1 else (k, mn)
        offset = self.layout.offset(coords) * self.size
        low = self.base if moved is None else b.add(self.base, moved)
        low = b.plus(low, offset // 16)
        reg = b.register(low)
        return b.pair64(reg, self.high)


def in_cluster(function: Function) -> bool:
    """Whether the kernel runs in clusters of more than one CTA."""
    return any(size > 1 for size in function.options.get("ctas_per_cga", ()))


def _swizzle(layout: SharedLayout, k_dim: int, size: int, mn_major: bool) -> tuple[int, int, int]:
    """(span, leading byte offset, stride byte offset) of a buffer; `InternalError` when it is not laid out for wgmma."""
    fast = 1 - k_dim if mn_major else k_dim
    slow = 1 - fast

    def at(f: int, s: int) -> int:
        coords = (f, s) if fast == 0 else (s, f)
        return layout.offset(coords) * size

    for span in (128, 64, 32):
        width = span // size
        if layout.shape_padded[fast] < width:
            continue
        mask = span // 16 - 1
        rows = min(8, layout.shape_padded[slow])
        if all(
            at(f, s) == _swizzled(s * span + f * size, mask) for f in (0, 16 // size, width - 1) for s in range(rows)
        ):
            step = at(0, 8) if layout.shape_padded[slow] > 8 else 8 * span
            leading = at(width, 0) if mn_major and layout.shape_padded[fast] > width else 16
            if step == 8 * span:
                return span, leading, step
    raise InternalError(f"{layout} is not laid out for wgmma")


def _swizzled(address: int, mask: int) -> int:
    return address ^ ((address >> 7) & mask) << 4


def operand_type(value: Value) -> DType:
    """The element type of a product's operand, tile or buffer."""
    t = value.type
    found = t.dtype if isinstance(t, MemDescType) else t.element if isinstance(t, TensorType) else None
    if not isinstance(found, DType):
        raise InternalError(f"a product of {t}")
    return found


@lowers("mma.async_dot", target="nvidia")
def lower_async_dot(ctx: Lowering, op: Any) -> None:
    """fence, the instructions over M, N and K, commit."""
    b = ptx_builder(ctx)
    target = ctx.target
    if not target.has("wgmma"):
        raise refuse(op, target, "it has no wgmma")
    if op.max_imprecise and op.max_imprecise < op.b.type.shape[0] and op.b.type.dtype.is_fp8():
        raise refuse(
            op,
            target,
            f"max_num_imprecise_acc={op.max_imprecise} with wgmma",
            "leave it out, or use tiles of 16-bit floats",
        )
    for kind in (operand_type(op.a), operand_type(op.b)):
        if kind.fnuz:
            raise refuse(
                op, target, f"wgmma does not take {kind}", "ml.dot does; or convert to ml.float8e4nv or ml.float16"
            )
    out = op.result.type
    assert isinstance(out, InflightType)
    layout = out.tensor.layout
    dtype = out.tensor.element
    if layout is None or not isinstance(dtype, DType):
        raise InternalError("an asynchronous product without a layout", op.loc)
    acc = list(ctx.inflight[op.acc].lanes) if isinstance(op.acc.type, InflightType) else list(ctx.tile(op.acc))
    use_acc = ctx.scalar(op.use_acc) if op.use_acc is not None else None
    if use_acc is not None and use_acc.reg is None:
        if not use_acc.off:
            acc = [b.const_zero(dtype)] * len(acc)
        use_acc = None
    right = Matrix(ctx, op.b, 0)
    left = Matrix(ctx, op.a, 1) if isinstance(op.a.type, MemDescType) else None
    fragments = _a_fragments(ctx, op.a) if left is None else None
    b_type = operand_type(op.b)
    a_type = operand_type(op.a)
    issue = _Issue(ctx, op, layout, dtype, a_type, b_type)
    issue.use_acc = use_acc
    if not isinstance(op.acc.type, InflightType):
        acc = _own_registers(b, op, acc)
    b.emit("wgmma.fence.sync.aligned", [])
    result = issue.run(acc, left, fragments, right)
    b.emit("wgmma.commit_group.sync.aligned", [])
    ctx.inflight[op.result] = Inflight(result)


def _own_registers(b: PtxBuilder, op: Any, acc: list[Lane]) -> list[Lane]:
    """The accumulator in registers that nobody else reads, written before the fence. A number that is zero everywhere stays a constant."""
    if all(x.reg is None and x.off == 0 for x in acc):
        return acc
    dtype = acc[0].dtype
    maker = op.acc.defining_op
    alone = len(op.acc.users) == 1 and (maker.parent if maker is not None else op.acc.owner) is op.parent
    if (
        alone
        and (maker is None or maker.name == "mma.async_dot_wait")
        and all(x.reg is not None and not x.off for x in acc)
    ):
        return acc
    if dtype is F16:
        words_ = [b.fresh(Lane(U32, b.packed(acc[i : i + 2]))) for i in range(0, len(acc), 2)]
        return [half for reg in words_ for half in b.halves(reg, dtype)]
    return [Lane(dtype, b.fresh(x)) for x in acc]


def _a_fragments(ctx: Lowering, value: Value) -> dict[tuple[int, int], list[Reg]]:
    """Operand A from registers: 4 words for each (64-row band, K step)."""
    b = ptx_builder(ctx)
    t = value.type
    assert isinstance(t, TensorType) and isinstance(t.element, DType)
    layout = layout_of(value)
    depth = 256 // t.element.bits
    tile: Tile = ctx.tile(value)
    if t.element is F32:
        tile = b.round_to_tf32(tile)
    groups: dict[tuple[int, int], list[Lane]] = {}
    for r, (m, k) in enumerate(layout.reg_coords()):
        groups.setdefault((m // 64, k // depth), []).append(tile[r])
    return {at: words(b, lanes) for at, lanes in groups.items()}


class _Issue:
    """All instructions of one product."""

    def __init__(self, ctx: Lowering, op: Any, layout: Layout, dtype: DType, a_type: DType, b_type: DType) -> None:
        self.ctx = ctx
        self.b = ptx_builder(ctx)
        self.layout = layout
        self.dtype = dtype
        self.use_acc: Lane | None = None
        self.depth = 256 // b_type.bits
        self.k = op.b.type.shape[0]
        self.n = op.b.type.shape[1]
        self.types = f"{accumulator_type(dtype)}.{mma_type(a_type)}.{mma_type(b_type)}"
        self.integer = b_type.kind != "float"
        self.flags = 0 if self.integer else 2 if b_type.bits == 16 else 1
        if self.k % self.depth:
            raise InternalError(f"wgmma of K = {self.k}", op.loc)

    def run(
        self, acc: list[Lane], left: Matrix | None, fragments: dict[tuple[int, int], list[Reg]] | None, right: Matrix
    ) -> list[Lane]:
        """The accumulator's lanes after all of it."""
        layout = self.layout
        group_m = [v[0] for v in layout.warp[2:]]
        group_n = [v[1] for v in layout.warp[2:]]
        moved_a = self._moved(group_m, left) if left is not None else None
        moved_b = self._moved(group_n, right)
        columns: dict[int, dict[int, list[int]]] = {}
        for r, (m, n) in enumerate(layout.reg_coords()):
            columns.setdefault(m // 64, {}).setdefault(n // 8, []).append(r)
        out = list(acc)
        for band, by_column in sorted(columns.items()):
            own = layout.shape_padded[1] // (1 << sum(1 for x in group_n if x))
            needed = min(own, (self.n + 7) // 8 * 8)
            start = 0
            while start < needed:
                width = self._width(needed - start)
                registers = [r for c in range(start // 8, (start + width) // 8) for r in by_column[c]]
                lanes = self._chain(
                    band, start, width, [acc[r] for r in registers], left, fragments, right, moved_a, moved_b
                )
                for r, lane in zip(registers, lanes, strict=True):
                    out[r] = lane
                start += width
        return out

    def _width(self, rest: int) -> int:
        """N of the next instruction."""
        width = min(256, rest)
        return width // 16 * 16 if self.integer and width > 24 else width

    def _moved(self, bases: list[int], matrix: Matrix) -> Lane | None:
        """What the warp group adds to descriptors, in 16-byte units."""
        if not any(bases):
            return None
        b, ctx = self.b, self.ctx
        warp = b.uniform_warp_id()
        total: Lane | None = None
        for bit, x in enumerate(bases):
            if not x:
                continue
            coords = (x, 0) if matrix.k_dim == 1 else (0, x)
            units = matrix.layout.offset(coords) * matrix.size // 16
            part = b.bit_and(b.shift(Lane(U32, warp.reg, uniform=warp.uniform), -(bit + 2)), 1)
            part = b.times(part, units)
            total = part if total is None else b.add(total, part)
        del ctx
        return total

    def _chain(
        self,
        band: int,
        start: int,
        width: int,
        acc: list[Lane],
        left: Matrix | None,
        fragments: dict[tuple[int, int], list[Reg]] | None,
        right: Matrix,
        moved_a: Lane | None,
        moved_b: Lane | None,
    ) -> list[Lane]:
        """The instructions over K of one accumulator."""
        b, dtype = self.b, self.dtype
        half = dtype is F16
        fresh = all(x.reg is None and x.off == 0 for x in acc)
        held: list[Operand]
        if half:
            held = [b.word(acc[i : i + 2]) for i in range(0, len(acc), 2)]
        else:
            held = [Imm(x.off, "f32" if dtype is F32 else "int") if x.reg is None else b.register(x) for x in acc]
        opcode = f"wgmma.mma_async.sync.aligned.m64n{width}k{self.depth}.{self.types}"
        cls = "f32" if dtype is F32 else "b32"
        regs: list[Reg] = []
        for k in range(0, self.k, self.depth):
            regs = [Reg(cls, b.hint) for _ in held]
            first: Operand
            if left is not None:
                first = left.descriptor(b, band * 64, k, moved_a)
            else:
                assert fragments is not None
                first = Vec([*fragments[band, k // self.depth]])
            clear = fresh and k == 0
            operands: list[Operand] = [
                Vec([*regs]),
                first,
                right.descriptor(b, start, k, moved_b),
                self._accumulate(k, clear),
            ]
            if self.flags:
                operands += [Imm(1), Imm(1)]
            if self.flags == 2:
                if left is not None:
                    operands.append(Imm(1 if left.mn_major else 0))
                operands.append(Imm(1 if right.mn_major else 0))
            tied = None if clear else [Vec(list(held))]
            b.block.insts.append(Inst(opcode, operands, 1, b.loc, tied_in=tied))
            held = [*regs]
        if half:
            return [x for reg in regs for x in b.halves(reg, dtype)]
        return [Lane(dtype, reg) for reg in regs]

    def _accumulate(self, k: int, clear: bool) -> Operand:
        """scale-d: whether the instruction adds to the accumulator."""
        if k == 0 and not clear and self.use_acc is not None:
            return self.b.register(self.use_acc)
        return Imm(0 if clear else 1)


@lowers("mma.async_dot_wait", target="nvidia")
def lower_async_dot_wait(ctx: Lowering, op: Any) -> None:
    """Wait; every accumulator is given anew, so that no read can move above."""
    b = ptx_builder(ctx)
    tied: list[Operand] = []
    anew: list[Operand] = []
    results: list[list[Lane]] = []
    for value in op.srcs:
        lanes = ctx.inflight[value].lanes
        fresh: dict[Reg, Reg] = {}
        for lane in lanes:
            if lane.reg is not None and lane.reg not in fresh:
                fresh[lane.reg] = Reg(lane.reg.cls, b.hint or lane.reg.hint)
        tied.append(Vec([*fresh]))
        anew.append(Vec([*fresh.values()]))
        results.append([x if x.reg is None else Lane(x.dtype, fresh[x.reg], x.off, x.part, x.uniform) for x in lanes])
    b.block.insts.append(
        Inst("wgmma.wait_group.sync.aligned", [Imm(op.pendings)], 0, b.loc, tied_in=tied, redefined=anew)
    )
    for out, lanes in zip(op.outs, results, strict=True):
        if isinstance(out.type, InflightType):
            ctx.inflight[out] = Inflight(lanes)
        else:
            ctx.set(out, lanes)


@lowers("mma.as_inflight", target="nvidia")
def lower_as_inflight(ctx: Lowering, op: Any) -> None:
    """The same registers. Constants get registers of their own here, before the loop's branch: written on its edges, they would
    count as touched while a product is in flight, and ptxas would serialise (C7515)."""
    b = ptx_builder(ctx)
    ctx.inflight[op.result] = Inflight([_own_register(b, x) for x in ctx.tile(op.src)])


def _own_register(b: PtxBuilder, lane: Lane) -> Lane:
    """A constant 32-bit lane in a register that nothing else shares; other lanes as they are."""
    if lane.reg is not None or lane.dtype not in (F32, I32):
        return lane
    cls = "f32" if lane.dtype is F32 else "b32"
    reg = Reg(cls, b.hint)
    b.emit(f"mov.{cls}", [reg, Imm(lane.off, "f32" if lane.dtype is F32 else "int")], 1)
    return Lane(lane.dtype, reg)


@lowers("barrier.fence_async_shared", target="nvidia")
def lower_fence_async_shared(ctx: Lowering, op: Any) -> None:
    """Generic writes before, the async proxy after."""
    if not ctx.target.has("wgmma") and not ctx.target.has("tma"):
        raise refuse(op, ctx.target, "it has no async proxy")
    ptx_builder(ctx).emit("fence.proxy.async.shared::cta", [])
