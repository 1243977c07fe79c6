"""What layout inference chooses, and that its checker accepts it."""

from __future__ import annotations

import pytest

from mimw.ir.conversion import plan_conversion
from mimw.ir.core import Module, OpBase, Value
from mimw.ir.layout import Layout
from mimw.ir.ops.control import BreakOp, ForOp, IfOp, YieldOp
from mimw.ir.ops.mma import DotOp
from mimw.ir.types import BF16, F8E4M3, F16, F32, I32, TensorType
from mimw.ir.verifier import verify
from mimw.passes import canonicalize, facts, fusion, pipeline, shapes_through_memory, stage_dot
from mimw.passes.layout_inference import check, infer
from mimw.target import get_target
from tests.passes.build import Kernel, matmul, pointer, scalar


def laid_out(module: Module, target: str = "sm_90a") -> Module:
    """Through all passes up to and with layout inference; checked."""
    t = get_target(target)
    for each in (canonicalize, fusion, shapes_through_memory, stage_dot, infer, check):
        each.run(module, t)
    verify(module)
    return module


def find(module: Module, name: str) -> list[OpBase]:
    """All ops of a name."""
    return [op for op in module.function.walk() if op.name == name]


def layout_of(v: Value) -> Layout:
    t = v.type
    assert isinstance(t, TensorType) and t.layout is not None
    return t.layout


def width(module: Module, op: OpBase) -> int:
    """Elements per access of a load or store."""
    ptr = op.operands[0]
    t = ptr.type
    assert isinstance(t, TensorType)
    mask = next((v for v in op.operands[1:] if v.type.element.name == "i1"), None)  # type: ignore[union-attr]
    bits = t.element.pointee.bits  # type: ignore[union-attr]
    return facts.vector_width(facts.compute(module.function), ptr, mask, layout_of(ptr), bits)


def vector_add(n: int, num_warps: int = 4, masked: bool = True) -> Module:
    k = Kernel(pointer("x", F32), pointer("y", F32), pointer("o", F32), scalar("n", 16), num_warps=num_warps)
    x, y, o, size = k.args
    first = k.mul(k.pid(), k.const(n, I32))  # type: ignore[operator]
    offs = k.add(k.splat(first, n), k.arange(n))  # type: ignore[operator]
    mask = k.lt(offs, k.splat(size, n)) if masked else None  # type: ignore[operator]
    a, b = k.load(k.ptr(x, offs), mask), k.load(k.ptr(y, offs), mask)
    k.store(k.ptr(o, offs), k.add(a, b), mask)  # type: ignore[operator]
    return k.finish()


def test_vector_add_is_vectorised() -> None:
    module = laid_out(vector_add(1024))
    accesses = find(module, "memory.load") + find(module, "memory.store")
    assert [width(module, op) for op in accesses] == [4, 4, 4]
    assert layout_of(find(module, "memory.load")[0].results[0]).num_regs == 8
    assert not find(module, "tensor.convert_layout")


@pytest.mark.parametrize("column_major", [False, True])
def test_two_dimensional_copy_follows_memory(column_major: bool) -> None:
    k = Kernel(pointer("x", F16), pointer("o", F16), scalar("s", 16))
    x, o, s = k.args
    offs = k.grid(64, 64, 1, s) if column_major else k.grid(64, 64, s, 1)
    k.store(k.ptr(o, offs), k.load(k.ptr(x, offs)))
    module = laid_out(k.finish())
    (load,), (store,) = find(module, "memory.load"), find(module, "memory.store")
    assert width(module, load) == 8 and width(module, store) == 8
    assert layout_of(load.results[0]).contiguity(0 if column_major else 1) == 8


def test_transposing_copy_converts_once() -> None:
    k = Kernel(pointer("x", F32), pointer("o", F32), scalar("s", 16))
    x, o, s = k.args
    v = k.load(k.ptr(x, k.grid(64, 64, s, 1)))
    k.store(k.ptr(o, k.grid(64, 64, 1, s)), v)
    module = laid_out(k.finish())
    (convert,) = find(module, "tensor.convert_layout")
    assert "memory.load" in convert.attrs["reason"] and "memory.store" in convert.attrs["reason"]
    assert width(module, find(module, "memory.load")[0]) == width(module, find(module, "memory.store")[0]) == 4


def softmax(rows: int, cols: int) -> Module:
    k = Kernel(pointer("x", BF16), pointer("o", BF16), scalar("s", 16))
    x, o, s = k.args
    offs = k.grid(rows, cols, s)
    v = k.cast(k.load(k.ptr(x, offs)), F32)
    top = k.broadcast(k.expand(k.reduce(v, 1), 1), rows, cols)
    e = k.b.elementwise("math.exp", k.sub(v, top))  # type: ignore[operator]
    total = k.broadcast(k.expand(k.reduce(e, 1, "arith.add"), 1), rows, cols)
    k.store(k.ptr(o, offs), k.cast(k.div(e, total), BF16))  # type: ignore[operator]
    return k.finish()


@pytest.mark.parametrize("cols", [64, 256, 1024])
def test_softmax_rows_stay_in_their_warp(cols: int) -> None:
    module = laid_out(softmax(8, cols))
    assert not find(module, "tensor.convert_layout")
    for op in find(module, "tensor.reduce"):
        assert all(v[1] == 0 for v in layout_of(op.operands[0]).warp)
    assert width(module, find(module, "memory.load")[0]) == min(8, 8 * cols // 128)


def test_one_row_uses_all_warps() -> None:
    module = laid_out(softmax(1, 4096))
    assert all(v[1] for v in layout_of(find(module, "tensor.reduce")[0].operands[0]).warp)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_matmul_converts_only_after_the_narrowing_cast(target: str) -> None:
    module = laid_out(matmul(), target)
    (convert,) = find(module, "tensor.convert_layout")
    assert convert.operands[0].type.element is BF16  # type: ignore[union-attr]
    assert convert.parent is module.function.block
    assert width(module, find(module, "memory.store")[0]) == 8


def test_matmul_f32_is_stored_from_the_accumulator() -> None:
    module = laid_out(matmul(out=F32))
    assert not find(module, "tensor.convert_layout")


def test_wgmma_operands_keep_the_order_of_memory() -> None:
    for turned in (False, True):
        module = laid_out(matmul(b_turned=turned))
        (dot,) = find(module, "mma.async_dot")
        b = dot.operands[1].type
        assert b.layout.bases[0 if turned else 1][0] == 1  # type: ignore[union-attr]
        assert len(find(module, "memory.local_trans")) == turned


def test_eight_bit_operands_are_k_major() -> None:
    module = laid_out(matmul(dtype=F8E4M3, out=F16))
    (dot,) = find(module, "mma.async_dot")
    a, b = (v.type for v in dot.operands[:2])
    assert a.layout.bases[1][0] == 1 and b.layout.bases[0][0] == 1  # type: ignore[union-attr]


def chained(dtype: object = BF16) -> Module:
    """Two products, the first one's result being operand A of the second."""
    k = Kernel(pointer("a", dtype), pointer("b", dtype), pointer("c", dtype), pointer("o", F32))  # type: ignore[arg-type]
    a, b, c, o = k.args
    zero = k.const(0.0, TensorType((128, 64), F32))
    va, vb = k.load(k.ptr(a, k.grid(128, 64, 64))), k.load(k.ptr(b, k.grid(64, 64, 1, 64)))
    p = k.op(DotOp(va, vb, zero, loc=k.loc))
    vc = k.load(k.ptr(c, k.grid(64, 64, 1, 64)))
    q = k.op(DotOp(k.cast(p, dtype), vc, zero, loc=k.loc))  # type: ignore[arg-type]
    k.store(k.ptr(o, k.grid(128, 64, 64)), q)
    return k.finish()


def kinds(module: Module) -> list[str]:
    """How each conversion would be done."""
    out = []
    for op in find(module, "tensor.convert_layout"):
        src, dst = op.operands[0].type, op.results[0].type
        assert isinstance(src, TensorType) and isinstance(dst, TensorType)
        assert src.layout is not None and dst.layout is not None
        out.append(plan_conversion(src.layout, dst.layout, src.shape, src.element.bits).kind)  # type: ignore[union-attr]
    return out


def test_a_16_bit_product_feeds_the_next_by_renaming() -> None:
    assert kinds(laid_out(chained(), "sm_90a")) in ([], ["rename"])


def test_a_small_tile_is_turned_inside_its_warp() -> None:
    k = Kernel(pointer("x", F32), pointer("o", F32), num_warps=1)
    x, o = k.args
    v = k.reduce(k.load(k.ptr(x, k.grid(32, 32, 32))), 1)
    w = k.reduce(k.load(k.ptr(x, k.grid(32, 32, 1, 32))), 1)
    k.store(k.ptr(o, k.arange(32)), k.add(v, w))  # type: ignore[operator]
    assert "shuffle" in kinds(laid_out(k.finish(), "sm_90a"))


def test_an_accumulator_reaches_memory_through_shared_memory() -> None:
    assert kinds(laid_out(matmul(), "sm_90a")) == ["shared"]


def test_a_bias_is_loaded_where_it_is_needed() -> None:
    """A vector that is added to an accumulator is loaded in the accumulator's slice, or converted as a vector, never as a tile."""
    k = Kernel(pointer("a", BF16), pointer("b", BF16), pointer("v", F32), pointer("o", F32))
    a, b, v, o = k.args
    acc = k.const(0.0, TensorType((128, 64), F32))
    va, vb = k.load(k.ptr(a, k.grid(128, 64, 64))), k.load(k.ptr(b, k.grid(64, 64, 64)))
    d = k.op(DotOp(va, vb, acc, loc=k.loc))
    bias = k.load(k.ptr(v, k.arange(64)))
    d = k.add(d, k.broadcast(k.expand(bias, 0), 128, 64))  # type: ignore[operator]
    k.store(k.ptr(o, k.grid(128, 64, 64)), d)
    module = laid_out(k.finish())
    for op in find(module, "tensor.convert_layout"):
        assert op.operands[0].type.rank == 1  # type: ignore[union-attr]


def test_loop_with_an_exit_carries_one_layout() -> None:
    k = Kernel(pointer("x", F32), pointer("o", F32), scalar("n"))
    x, o, n = k.args
    init = k.load(k.ptr(x, k.arange(512)))
    loop = ForOp(k.const(0, I32), n, k.const(1, I32), [init], loc=k.loc)
    body = loop.body.block
    i, v = body.add_arg(I32), body.add_arg(init.type)
    with k.b.at(body):
        w = k.add(v, v)  # type: ignore[operator]
        cond = k.gt(k.reduce(w, 0), k.const(100.0, F32))  # type: ignore[operator]
        branch = IfOp(cond, loc=k.loc)
        with k.b.at(branch.then.block):
            k.op(BreakOp([v], loc=k.loc))
        with k.b.at(branch.orelse.block):
            k.op(YieldOp([], loc=k.loc))
        k.b.insert(branch)
        k.op(YieldOp([w], loc=k.loc))
    del i
    k.b.insert(loop)
    k.store(k.ptr(o, k.arange(512)), loop.outs[0])
    module = laid_out(k.finish())
    assert not find(module, "tensor.convert_layout")


SIZES = [1, 3, 31, 33, 96, 127, 176, 192, 1000]


def up(n: int) -> int:
    return 1 << (n - 1).bit_length()


def registers(module: Module) -> int:
    """The most registers a thread holds of one tile."""
    tiles = (r.type for op in module.function.walk() for r in op.results)
    return max(t.layout.num_regs for t in tiles if isinstance(t, TensorType) and t.layout is not None)


@pytest.mark.parametrize("n", SIZES)
def test_odd_sizes_cost_no_more_than_the_next_power_of_two(n: int) -> None:
    assert registers(laid_out(vector_add(n))) <= registers(laid_out(vector_add(up(n))))


@pytest.mark.parametrize("rows", SIZES[:6])
@pytest.mark.parametrize("cols", [3, 33, 96, 192])
def test_odd_tiles_cost_no_more_than_the_next_power_of_two(rows: int, cols: int) -> None:
    assert registers(laid_out(softmax(rows, cols))) <= registers(laid_out(softmax(up(rows), up(cols))))


@pytest.mark.parametrize("num_warps", [1, 2, 8, 16])
def test_any_number_of_warps(num_warps: int) -> None:
    for target in ("sm_80", "sm_90a"):
        pipeline.run(matmul(num_warps=num_warps), get_target(target))
    pipeline.run(vector_add(100, num_warps), get_target("sm_80"))
