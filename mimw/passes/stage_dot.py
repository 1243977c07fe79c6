"""Turns `mma.dot` into what the target can do: wgmma, mma.sync or fma, with operands staged in shared memory. Rewrites into explicit IR.

- **wgmma** (sm_90a, whole warp groups, M >= 64, K a multiple of the instruction's): B, and A when it comes from memory, go into a swizzled
  buffer (`memory.local_alloc`, `memory.local_trans` for a transposed use), then `mma.async_dot` and `mma.async_dot_wait`. An A that is computed
  (the P of attention) stays in registers, one that TMA copied is taken where it lies (but f32, which a store rounds to tf32). MN-major buffers
  exist for 16-bit types only; for others the store into the buffer transposes.
- **mma.sync**: operands that come from memory go through a buffer and `memory.local_load`, so that ldmatrix applies; others stay tiles and inference
  converts them. fp8 without fp8 instructions is cast to f16, which is exact.
- **v_mfma** (CDNA): as mma.sync; f32 is multiplied in f32 ("ieee") or rounded to tf32 before. Accumulators are f32, i32 or f64.
- **fma**: f32 with precision "ieee" and whatever has no instruction: `mma.dot` on two memdescs.

**Padding.** A buffer's type keeps the logical shape; its `SharedLayout` covers the instruction's multiples (`layout.shape_padded`). For wgmma only rows of M
and N are padded: what lies there reaches holes of the accumulator only, so the bytes may hold anything. Holes along K must read as zero: wgmma is not
used then, and the lowering of a `mma.dot` on tiles zeroes the registers of both operands whose k is at or above K.

Fences and barriers come later (`sync_insertion`), layouts too (`layout_inference`).
"""

from __future__ import annotations

from mimw.diagnostics import Loc
from mimw.ir.core import Block, Module, OpBase, Value
from mimw.ir.ops.arith import CastOp
from mimw.ir.ops.async_copy import TmaLoadOp
from mimw.ir.ops.memory import LoadOp, LocalAllocOp, LocalLoadOp, LocalStoreOp, LocalTransOp
from mimw.ir.ops.mma import AsyncDotOp, AsyncDotWaitOp, DotOp
from mimw.ir.ops.tensor import TransOp
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import F16, F32, F64, I32, DType, MemDescType, TensorType
from mimw.passes.facts import Facts, compute
from mimw.passes.tasks import TaskMap
from mimw.target import Target

NAME = "stage-dot"


def run(module: Module, target: Target) -> None:
    """Rewrite every dot of tiles."""
    dots = [op for op in module.function.walk() if isinstance(op, DotOp) and isinstance(op.a.type, TensorType)]
    if not dots:
        return
    stager = _Stager(target, module.function.num_warps, compute(module.function))
    tasks = TaskMap(module.function)
    for dot in dots:
        stager.num_warps = tasks.warps_of(dot)
        how = stager.stage(dot)
        module.remark("dot", dot.loc, how)
    for load in dict.fromkeys(stager.read):
        for user in list(load.results[0].users):
            if isinstance(user, TransOp) and not user.result.users:
                user.erase()
        if not load.results[0].users:
            load.erase()


def _tile(v: Value) -> tuple[tuple[int, ...], DType]:
    t = v.type
    assert isinstance(t, TensorType) and isinstance(t.element, DType)
    return t.shape, t.element


def _is_fp8(t: DType) -> bool:
    return t.kind == "float" and t.bits == 8


def instruction_k(dtype: DType) -> int:
    """K of one wgmma or mma.sync instruction for operands of this type (f64: 4)."""
    return 4 if dtype.bits == 64 else 256 // dtype.bits


def wgmma_obstacle(dot: DotOp, target: Target, num_warps: int) -> str:
    """Why a dot is not done by wgmma; empty when it is."""
    (m, k), a = _tile(dot.a)
    (_, n), b = _tile(dot.b)
    _, acc = _tile(dot.acc)
    if not target.has("wgmma"):
        return f"{target.name} has no wgmma"
    if num_warps % 4:
        return f"{num_warps} warps are not whole warp groups"
    if m < 64 or n < 8:
        return f"{m}x{n} is smaller than the instruction's 64x8"
    if k % instruction_k(a):
        return f"K = {k} is not a multiple of {instruction_k(a)}"
    if a.bits != b.bits or not _wgmma_types(a, b, acc, dot.precision):
        return f"there is none for {a} x {b} -> {acc} ({dot.precision})"
    return ""


def _wgmma_types(a: DType, b: DType, acc: DType, precision: str) -> bool:
    return not (a.fnuz or b.fnuz) and _product_types(a, b, acc, precision)


def _product_types(a: DType, b: DType, acc: DType, precision: str) -> bool:
    if a.kind == "float" and a.bits == 16:
        return a is b and (acc is F32 or (a is F16 and acc is F16))
    if a is F32:
        return b is F32 and acc is F32 and precision == "tf32"
    if _is_fp8(a):
        return _is_fp8(b) and acc is F32
    return a.bits == 8 and a.kind != "float" and b.kind != "float" and acc is I32


def _mma_types(a: DType, b: DType, acc: DType, precision: str) -> bool:
    if a is F64:
        return b is F64 and acc is F64
    return _wgmma_types(a, b, acc, precision)


def _mfma_types(a: DType, b: DType, acc: DType) -> bool:
    """Integers are signed in v_mfma; a sum in f16 is made in f32."""
    if a.bits == 8 and a.kind != "float":
        return a.kind == "int" and b.kind == "int" and b.bits == 8 and acc is I32
    if a.bits >= 32:
        return a is b and a.kind == "float" and acc is a
    return _product_types(a, b, acc, "")


class _Stager:
    """One run: remembers the buffers it made, so that a tile used by two products is staged once."""

    __slots__ = ("buffers", "facts", "num_warps", "read", "target")

    def __init__(self, target: Target, num_warps: int, facts: Facts) -> None:
        self.target = target
        self.num_warps = num_warps
        self.facts = facts
        self.buffers: dict[tuple[Value, SharedLayout], Value] = {}
        self.read: list[OpBase] = []

    def stage(self, dot: DotOp) -> str:
        """Rewrite one dot; a sentence that says how and why."""
        _, a = _tile(dot.a)
        _, b = _tile(dot.b)
        if (_is_fp8(a) or _is_fp8(b)) and not self._has_fp8(dot):
            for i in (0, 1):
                _cast_operand(dot, i, F16)
            return f"fp8 operands are cast to f16, as {self.target.name} has no product of {a} and {b}; " + self.stage(
                dot
            )
        obstacle = wgmma_obstacle(dot, self.target, self.num_warps)
        if not obstacle:
            return self._wgmma(dot)
        _, acc = _tile(dot.acc)
        if self.target.has("mma_sync") and _mma_types(a, b, acc, dot.precision):
            self._mma_sync(dot)
            return f"mma.sync: {obstacle}"
        if self.target.has("mfma") and _mfma_types(a, b, acc):
            self._mma_sync(dot)
            return "v_mfma"
        self._fma(dot)
        return f"fma: no matrix instruction for {a} x {b} -> {acc} ({dot.precision})"

    def _has_fp8(self, dot: DotOp) -> bool:
        _, a = _tile(dot.a)
        _, b = _tile(dot.b)
        if not (_is_fp8(a) and _is_fp8(b)):
            return False
        if self.target.has("mfma"):
            return all(self.target.has("fp8_fnuz" if t.fnuz else "fp8_ocp") for t in (a, b))
        if a.fnuz or b.fnuz:
            return False
        return self.target.has("fp8_mma_sync") or not wgmma_obstacle(dot, self.target, self.num_warps)

    # ------------------------------------------------------------------------------------------------------------- wgmma

    def _wgmma(self, dot: DotOp) -> str:
        (m, k), a = _tile(dot.a)
        n = _tile(dot.b)[0][1]
        in_registers = from_product(dot.a)
        left = dot.a if in_registers else self._buffer(dot, dot.a, 1, (_up(m, 64), k), a.bits == 16)
        right = self._buffer(dot, dot.b, 0, (k, _up(n, 8)), a.bits == 16)
        block = _block(dot)
        issue = AsyncDotOp(left, right, dot.acc, dot.max_imprecise, loc=dot.loc)
        wait = AsyncDotWaitOp([issue.result], 0, loc=dot.loc)
        block.insert_before(dot, issue)
        block.insert_before(dot, wait)
        wait.outs[0].name = dot.result.name
        dot.result.replace_by(wait.outs[0])
        dot.erase()
        return "wgmma" + (", operand A in registers" if in_registers else "")

    def _buffer(self, dot: OpBase, operand: Value, k_dim: int, padded: tuple[int, int], any_major: bool) -> Value:
        """The operand in a swizzled buffer, as a memdesc of its shape. `k_dim`: which dimension is K."""
        base, turned = _untransposed(operand)
        fast = self._fast_dim(base)
        k_in_base = 1 - k_dim if turned else k_dim
        block = _copied_block(base)
        if block is not None and (any_major or k_in_base == 1):
            return self._view(base, block, turned, operand)
        if not any_major:
            fast = k_in_base
        extent = (padded[1], padded[0]) if turned else padded
        layout = _swizzled(extent, fast, _tile(base)[1].itemsize)
        return self._alloc(base, layout, turned, operand, dot)

    def _alloc(self, base: Value, layout: SharedLayout, turned: bool, operand: Value, dot: OpBase) -> Value:
        buffer = self.buffers.get((base, layout))
        loc = _loc_of(base, operand)
        if buffer is None:
            shape, dtype = _tile(base)
            op = LocalAllocOp(base, MemDescType(shape, dtype, "shared", layout), loc=loc)
            _insert_buffer(base, op, dot)
            buffer = op.result
            buffer.name = base.name
            self.buffers[(base, layout)] = buffer
        if not turned:
            return buffer
        shape, dtype = _tile(operand)
        view = MemDescType(shape, dtype, "shared", turned_layout(layout), _tile(base)[0])
        trans = LocalTransOp(buffer, (1, 0), view, loc=loc)
        maker = buffer.defining_op
        assert maker is not None and maker.parent is not None
        maker.parent.insert_after(maker, trans)
        return trans.result

    def _view(self, base: Value, block: Value, turned: bool, operand: Value) -> Value:
        """The buffer that TMA filled, as an operand; the read of it goes away when only products took it."""
        load = base.defining_op
        assert load is not None and load.parent is not None
        if turned:
            shape, dtype = _tile(operand)
            view = MemDescType(shape, dtype, "shared", None, _tile(base)[0])
            trans = LocalTransOp(block, (1, 0), view, loc=load.loc)
            load.parent.insert_after(load, trans)
            block = trans.result
        self.read.append(load)
        return block

    def _fast_dim(self, base: Value) -> int:
        """The dimension along which the tile's source in memory is contiguous; the last one when there is none."""
        load = _load_behind(base)
        if load is None:
            return 1
        fact = self.facts.of(load.ptr)
        return 0 if fact.contiguity[0] > fact.contiguity[1] else 1

    # ---------------------------------------------------------------------------------------------------------- mma.sync

    def _mma_sync(self, dot: DotOp) -> None:
        for i in (0, 1):
            operand = dot.operands[i]
            base, turned = _untransposed(operand)
            if _load_behind(base) is None:
                continue
            shape, dtype = _tile(base)
            fast = self._fast_dim(base)
            if self.target.has("mfma") and (
                dtype.bits == 8 or (dtype.bits == 16 and not self.target.has("ds_read_tr"))
            ):
                fast = i if turned else 1 - i  # lanes read along K: the store turns the tile, where it has to
            layout = _for_ldmatrix(shape, fast, dtype.itemsize)
            if self.target.has("ds_read_tr") and dtype.bits == 16 and fast != (i if turned else 1 - i):
                layout = _for_turning_reads(layout, 1 - fast)
            buffer = self._alloc(base, layout, turned, operand, dot)
            load = LocalLoadOp(buffer, loc=dot.loc)
            _block(dot).insert_before(dot, load)
            load.result.name = operand.name
            dot.set_operand(i, load.result)
            _erase_unused(operand)

    # --------------------------------------------------------------------------------------------------------------- fma

    def _fma(self, dot: DotOp) -> None:
        for i in (0, 1):
            operand = dot.operands[i]
            base, turned = _untransposed(operand)
            shape, dtype = _tile(base)
            layout = SharedLayout.padded(shape, _order(self._fast_dim(base)), max(1, 16 // dtype.itemsize))
            dot.set_operand(i, self._alloc(base, layout, turned, operand, dot))
            _erase_unused(operand)


def _block(op: OpBase) -> Block:
    block = op.parent
    assert block is not None
    return block


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _order(fast: int) -> tuple[int, int]:
    return (fast, 1 - fast)


def _swizzled(extent: tuple[int, int], fast: int, size: int) -> SharedLayout:
    """The widest swizzle whose span divides the fast dimension; that dimension is filled up to a whole 32-byte span."""
    row = extent[fast] * size
    span = next((s for s in (128, 64, 32) if row % s == 0), 32)
    whole = _up(extent[fast], span // size)
    shape = (whole, extent[1]) if fast == 0 else (extent[0], whole)
    return SharedLayout.swizzled(shape, _order(fast), size, span)


def _for_ldmatrix(shape: tuple[int, ...], fast: int, size: int) -> SharedLayout:
    """Swizzled when the rows are whole spans, else rows kept apart by 16 bytes: eight rows then lie in different banks."""
    row = shape[fast] * size
    for span in (128, 64, 32):
        if row % span == 0:
            return SharedLayout.swizzled(shape, _order(fast), size, span)
    return SharedLayout.padded(shape, _order(fast), max(1, 16 // size))


def _for_turning_reads(layout: SharedLayout, slow: int) -> SharedLayout:
    """The 128-byte swizzle of 16-bit elements with other steps: ds_read_b64_tr_b16 takes 32 bytes of each of four rows at a time, which then
    fill all banks once. Any eight rows still lie apart by 16 bytes."""
    row, bits = 128 // 2, layout.dims[slow][0]
    if not bits or not layout.bases[slow][0] & row:
        return layout
    steps = (32 // 2, 64 // 2, 16 // 2)
    bases = list(layout.bases)
    bases[slow] = tuple((row << b) ^ steps[b] if b < 3 else base for b, base in enumerate(bases[slow]))
    return SharedLayout.get(layout.dims, bases, layout.strides, layout.size)


def turned_layout(layout: SharedLayout) -> SharedLayout:
    """The layout of the transposed view of a two-dimensional buffer."""
    return SharedLayout.get(layout.dims[::-1], layout.bases[::-1], layout.strides[::-1], layout.size)


def _untransposed(v: Value) -> tuple[Value, bool]:
    """The value behind transpositions, and whether their number is odd."""
    turned = False
    op = v.defining_op
    while isinstance(op, TransOp) and tuple(op.order) == (1, 0):
        v, turned = op.src, not turned
        op = v.defining_op
    return v, turned


def _load_behind(v: Value) -> LoadOp | None:
    """The load that a tile comes from, through casts and other elementwise ops on one tile."""
    op = v.defining_op
    while op is not None and not isinstance(op, LoadOp):
        tiles = [w for w in op.operands if isinstance(w.type, TensorType)]
        if op.spec.layout != "elementwise" or not tiles:
            return None
        sources = [w for w in tiles if not _is_constant(w)]
        if len(sources) != 1:
            return None
        op = sources[0].defining_op
    return op


def _copied_block(base: Value) -> Value | None:
    """The buffer that a tile was read from, when TMA alone fills it, in rows that a product can take (whole 32-byte spans). It is filled
    again only where the tile is read again, so that the product may look at the buffer itself."""
    load = base.defining_op
    if not isinstance(load, LocalLoadOp) or not isinstance(load.src.defining_op, LocalAllocOp):
        return None
    if any(isinstance(user, LocalStoreOp) for user in load.src.users):
        return None
    copies = [user for user in load.src.users if isinstance(user, TmaLoadOp)]
    shape, dtype = _tile(base)
    alone = len(copies) == 1 and copies[0].parent is load.parent and load.src.defining_op.src is None
    return load.src if alone and dtype.bits < 32 and shape[1] * dtype.itemsize % 32 == 0 else None


def _is_constant(v: Value) -> bool:
    op = v.defining_op
    return op is not None and op.name in ("arith.constant", "tensor.splat")


def from_product(v: Value) -> bool:
    """Whether a tile is computed from the accumulator of another product by elementwise ops: then it lies well for operand A."""
    todo, seen = [v], {v}
    while todo:
        op = todo.pop().defining_op
        if op is None:
            continue
        if op.name in ("mma.dot", "mma.async_dot_wait"):
            return True
        if op.spec.layout == "elementwise" or op.name == "tensor.convert_layout":
            for w in op.operands:
                if isinstance(w.type, TensorType) and w not in seen:
                    seen.add(w)
                    todo.append(w)
    return False


def _loc_of(base: Value, operand: Value) -> Loc:
    op = base.defining_op or operand.defining_op
    if op is not None:
        return op.loc
    return operand.users[0].loc


def _insert_buffer(base: Value, op: OpBase, dot: OpBase) -> None:
    """Before the product when its source is made in the same block (so that all loads come first), else where the source is made."""
    home = base.owner.parent if isinstance(base.owner, OpBase) else base.owner
    if home is dot.parent:
        _block(dot).insert_before(dot, op)
        return
    maker = base.defining_op
    if maker is not None:
        _block(maker).insert_after(maker, op)
        return
    block = base.owner
    assert isinstance(block, Block)
    block.insert_before(block.ops[0], op)


def _cast_operand(dot: DotOp, index: int, dtype: DType) -> None:
    v = dot.operands[index]
    if _tile(v)[1] is dtype:
        return
    maker = v.defining_op
    if isinstance(maker, TransOp):  # below the transposition, so that the buffer is made of the cast tile
        cast = CastOp(maker.src, dtype, loc=dot.loc)
        turned = TransOp(cast.result, maker.order, loc=maker.loc)
        _block(maker).insert_before(maker, cast)
        _block(maker).insert_before(maker, turned)
        dot.set_operand(index, turned.result)
        _erase_unused(v)
        return
    cast = CastOp(v, dtype, loc=dot.loc)
    _block(dot).insert_before(dot, cast)
    dot.set_operand(index, cast.result)


def _erase_unused(v: Value) -> None:
    """A transposition that only the dot took goes away."""
    op = v.defining_op
    while isinstance(op, TransOp) and not op.result.users:
        src = op.src
        op.erase()
        op = src.defining_op
