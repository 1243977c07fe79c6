"""Each family assembles for every target; the numbers are checked by the run cases, on the same lowerings."""

from __future__ import annotations

from typing import Any

import pytest

from mimw.codegen.ptx.assemble import assemble
from mimw.codegen.shared.elementwise import COMPARISONS, F64_RULES, RULES
from mimw.ir.layout_factories import blocked
from mimw.ir.opdef import OPS, ElementwiseOp, elementwise
from mimw.ir.types import DTYPES, F64, I1, DType, PointerType, TensorType
from tests.codegen.ptx.lowering_kit import LOC, TARGETS, Kernel

_LAYOUT = blocked((256,), (0,), 1, 4)


def _loaded(k: Kernel, i: int) -> Any:
    return k.load(k.args[i], k.arange(256, _LAYOUT))


def _every_op(dtype: DType) -> Kernel:
    k = Kernel([("x", PointerType(dtype)), ("y", PointerType(dtype)), ("c", PointerType(I1))], num_warps=1)
    values = [_loaded(k, 0), _loaded(k, 1), _loaded(k, 0)]
    total = values[0]
    flags = k.op("arith.ne", values[0], values[1])
    for name in (*RULES, *COMPARISONS):
        cls = OPS[name].cls
        assert issubclass(cls, ElementwiseOp)
        if dtype.kind not in cls.row.kinds or (dtype is F64 and name.startswith("math.") and name not in F64_RULES):
            continue
        out = k.b.insert(elementwise(name, *values[: cls.row.arity], loc=LOC)).result
        if name in COMPARISONS:
            flags = k.op("arith.xor", flags, out)
        else:
            total = k.op("arith.select", flags, out, total)
    k.store(k.args[0], k.arange(256, _LAYOUT), total)
    k.store(k.args[2], k.arange(256, _LAYOUT), flags)
    return k


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if not d.is_fp8()])
def test_elementwise_ops_assemble(name: str, target: str) -> None:
    assemble(_every_op(DTYPES[name]).ptx(target), target)


@pytest.mark.parametrize("target", TARGETS)
def test_casts_between_all_types_assemble(target: str) -> None:
    """One kernel with every pair of types."""
    k = Kernel([(f"p_{n}", PointerType(d)) for n, d in DTYPES.items()], num_warps=1)
    offsets = k.arange(256, _LAYOUT)
    tiles = [k.load(p, offsets) for p in k.args]
    for tile in tiles:
        for p, dtype in zip(k.args, DTYPES.values(), strict=True):
            ways = ("rtne", "rtz") if dtype.kind == "float" else ("rtne",)
            for rounding in ways:
                k.store(
                    p, offsets, k.op("arith.cast", tile, dtype, rounding) if tile.type.element is not dtype else tile
                )
    assemble(k.ptx(target), target)


def test_8_bit_floats_use_instructions_where_there_are_some() -> None:
    def text(target: str) -> str:
        k = Kernel([("x", PointerType(DTYPES["f32"])), ("z", PointerType(DTYPES["f8e4m3"]))], num_warps=1)
        tile = _loaded(k, 0)
        k.store(k.args[1], k.arange(256, _LAYOUT), k.op("arith.cast", tile, DTYPES["f8e4m3"]))
        return k.ptx(target)

    assert "e4m3x2" in text("sm_89") and "e4m3x2" not in text("sm_80")


def test_tensor_types_keep_their_layout() -> None:
    k = _every_op(DTYPES["f32"])
    assert all(
        not isinstance(r.type, TensorType) or r.type.layout is not None for op in k.function.walk() for r in op.results
    )
