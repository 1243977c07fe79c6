"""Layout conversions and buffers between random layouts: the PTX simulator must give back every element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimw.codegen.ptx.emit import emit_text
from mimw.ir.conversion import plan_conversion
from mimw.ir.core import Value
from mimw.ir.layout import Dims, Layout
from mimw.ir.layout_factories import blocked, mma_accumulator, mma_operand_a, mma_operand_b, wgmma_accumulator
from mimw.ir.layout_shapes import expand
from mimw.ir.ops.memory import LocalAllocOp, LocalLoadOp
from mimw.ir.ops.tensor import ConvertLayoutOp
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import BF16, F32, F64, I1, I8, I32, DType, MemDescType, PointerType, TensorType
from mimw.passes import facts, shared_allocation
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target
from tests.codegen.ptx.lowering_kit import LOC, Kernel
from tests.ir.layout_strategies import dims_strategy, layout_on


def _offsets(k: Kernel, shape: tuple[int, ...], layout: Layout) -> Value:
    """Row-major element offsets of a tile, made of one arange a dimension by slices of the layout."""
    total: Any = None
    stride = 1
    for d in reversed(range(len(shape))):
        thin = _along(layout, d)
        line = k.op("tensor.arange", 0, shape[d], layout=thin)
        line = k.op("arith.mul", line, k.const(stride, line.type))
        for axis in range(len(shape)):
            if axis != d:
                line = _expand(k, line, axis)
        line = _broadcast(k, line, shape, layout)
        total = line if total is None else k.op("arith.add", total, line)
        stride *= shape[d]
    return total


def _along(layout: Layout, d: int) -> Layout:
    """The layout of one dimension; registers that differ in others hold copies."""

    def cut(vectors: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
        return [(v[d],) for v in vectors]

    return Layout.get([layout.dims[d]], cut(layout.reg), cut(layout.lane), cut(layout.warp))


def _expand(k: Kernel, line: Value, axis: int) -> Value:
    assert isinstance(line.type, TensorType) and line.type.layout is not None
    return k.op("tensor.expand_dims", line, axis, layout=expand(line.type.layout, axis))


def _broadcast(k: Kernel, line: Value, shape: tuple[int, ...], layout: Layout) -> Value:
    assert isinstance(line.type, TensorType)
    return line if line.type.layout is layout else k.op("tensor.broadcast", line, shape, layout=layout)


def _finish(k: Kernel, target: str) -> tuple[str, int]:
    module = k.module()
    machine = get_target(target)
    shared_allocation.run(module, machine)
    text = emit_text(module, machine, facts.compute(module.function))
    return text, int(module.function.options["shared_bytes"])


def _source(dtype: DType, count: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(count)
    kind = "uint8" if dtype is I1 else f"uint{dtype.bits}"
    return rng.integers(0, 2 if dtype is I1 else 1 << 7, count).astype(kind)


def _through(
    dtype: DType, shape: tuple[int, ...], src: Layout, dst: Layout, buffer: SharedLayout | None, target: str
) -> None:
    k = Kernel([("x", PointerType(dtype)), ("z", PointerType(dtype))], num_warps=src.num_warps)
    x, z = k.args
    tile = k.load(x, _offsets(k, shape, src))
    if buffer is None:
        moved = k.b.insert(ConvertLayoutOp(tile, TensorType(shape, dtype, dst), loc=LOC)).result
    else:
        memory = k.b.insert(LocalAllocOp(tile, MemDescType(shape, dtype, "shared", buffer), loc=LOC)).result
        k.op("barrier.cta_sync")
        moved = k.b.insert(LocalLoadOp(memory, loc=LOC)).result
        moved.type = TensorType(shape, dtype, dst)
    k.store(z, _offsets(k, shape, dst), moved)
    text, shared = _finish(k, target)
    data = _source(dtype, int(np.prod(shape)))
    out = np.full_like(data, 255)
    run_ptx(text, None, (1, 1, 1), [data, out], shared_bytes=shared)
    assert (out == data).all()


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[tuple[int, ...], Layout, Layout]:
    dims = draw(dims_strategy(max_rank=2, max_bits=7))
    warps = draw(st.integers(0, 2))
    other: Dims = tuple((a + draw(st.integers(0, 1)), 1) if o == 1 else (a, o) for a, o in dims)
    src = draw(layout_on(dims, lanes=5, warps=warps))
    dst = draw(layout_on(other, lanes=5, warps=warps))
    shape = tuple(draw(st.integers(1, min(p, q))) for p, q in zip(src.shape_padded, dst.shape_padded, strict=True))
    return shape, src, dst


@settings(max_examples=60)
@given(pair=_pairs(), dtype=st.sampled_from([F32, BF16, I8, F64, I1, I32]))
def test_conversions_between_random_layouts(pair: tuple[tuple[int, ...], Layout, Layout], dtype: DType) -> None:
    shape, src, dst = pair
    _through(dtype, shape, src, dst, None, "sm_80")


@settings(max_examples=40)
@given(pair=_pairs(), dtype=st.sampled_from([F32, BF16, I8, F64, I1]), pad=st.sampled_from([0, 1, 4]))
def test_buffers_between_random_layouts(pair: tuple[tuple[int, ...], Layout, Layout], dtype: DType, pad: int) -> None:
    shape, src, dst = pair
    order = tuple(reversed(range(len(shape))))
    _through(dtype, shape, src, dst, SharedLayout.padded(shape, order, pad), "sm_80")


@pytest.mark.parametrize("kind", ["rename", "shuffle", "shared"])
def test_every_kind_of_conversion_runs(kind: str) -> None:
    shape = (64, 64)
    pairs = {
        "rename": (blocked(shape, (1, 0), 4, 4), blocked(shape, (1, 0), 4, 4)),
        "shuffle": (blocked((64,), (0,), 1, 1), blocked((64,), (0,), 1, 2)),
        "shared": (mma_accumulator(shape, 2, 2), blocked(shape, (1, 0), 4, 4)),
    }
    src, dst = pairs[kind]
    shape = src.shape_padded
    assert plan_conversion(src, dst, shape, 32).kind == kind
    _through(F32, shape, src, dst, None, "sm_80")


@pytest.mark.parametrize("fast", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "span", "make"),
    [
        (BF16, 128, mma_operand_a),
        (BF16, 64, mma_operand_b),
        (BF16, 32, mma_operand_a),
        (I8, 64, mma_operand_a),
        (F32, 128, mma_operand_b),
    ],
    ids=["bf16-128-a", "bf16-64-b", "bf16-32-a", "i8-64-a", "f32-128-b"],
)
def test_operands_come_from_swizzled_buffers(dtype: DType, span: int, make: Any, fast: int) -> None:
    shape = (64, 64)
    dst = make(shape, dtype.bits, 2, 2)
    buffer = SharedLayout.swizzled(shape, (fast, 1 - fast), dtype.itemsize, span)
    _through(dtype, shape, blocked(shape, (1, 0), 4, 4), dst, buffer, "sm_80")


def test_ldmatrix_serves_16_bit_operands_both_ways() -> None:
    shape = (64, 64)
    for fast, word in ((1, "ldmatrix.sync.aligned.m8n8.x4.shared"), (0, "ldmatrix.sync.aligned.m8n8.x4.trans.shared")):
        k = Kernel([("x", PointerType(BF16)), ("z", PointerType(BF16))])
        src, dst = blocked(shape, (1, 0), 4, 4), mma_operand_a(shape, 16, 2, 2)
        tile = k.load(k.args[0], _offsets(k, shape, src))
        buffer = MemDescType(shape, BF16, "shared", SharedLayout.swizzled(shape, (fast, 1 - fast), 2, 128))
        memory = k.b.insert(LocalAllocOp(tile, buffer, loc=LOC)).result
        k.op("barrier.cta_sync")
        load = k.b.insert(LocalLoadOp(memory, loc=LOC)).result
        load.type = TensorType(shape, BF16, dst)
        k.store(k.args[1], _offsets(k, shape, dst), load)
        text, _ = _finish(k, "sm_80")
        assert word in text and "ld.shared" not in text


def test_a_wgmma_accumulator_with_an_odd_number_of_columns_converts() -> None:
    shape = (64, 96)
    _through(BF16, shape, wgmma_accumulator(shape, 4), blocked(shape, (1, 0), 4, 8), None, "sm_90a")
