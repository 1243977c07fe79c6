"""Which type an expression has: promotion, literals, broadcasting, casts. Checked on the IR."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mimw.language as ml
from mimw.diagnostics import Loc
from mimw.ir.builder import Builder, building
from mimw.ir.core import Block, Value
from mimw.ir.types import BF16, DTYPES, F16, F32, F64, I1, I8, I16, I32, I64, U8, U16, U32, U64, DType, TensorType
from mimw.language import promotion

LOC = Loc("test.py", 1)
INTS = [d for d in DTYPES.values() if d.kind in ("int", "uint")]
COMPUTING = [d for d in DTYPES.values() if not d.is_fp8() and d is not I1]


class Scratch:
    """A block to build in, with tiles of any type."""

    def __init__(self) -> None:
        self.block = Block()
        self.builder = Builder(self.block, LOC)

    def tile(self, d: DType, shape: tuple[int, ...] = (8,)) -> ml.tensor:
        return ml.tensor(self.block.add_arg(TensorType(shape, d) if shape else d))


def result(make: Any, *dtypes: DType, shape: tuple[int, ...] = (8,)) -> ml.tensor:
    """What a function of tiles gives."""
    s = Scratch()
    with building(s.builder):
        return make(*(s.tile(d, shape) for d in dtypes))


PROMOTIONS = [
    (I32, I64, I64),
    (I8, I32, I32),
    (I32, U32, U32),
    (U8, I16, I16),
    (U16, I16, U16),
    (I1, I8, I8),
    (I1, I1, I32),
    (F16, BF16, F32),
    (F16, F32, F32),
    (BF16, BF16, BF16),
    (F16, F16, F16),
    (F16, I32, F16),
    (BF16, I64, F32),
    (F32, I64, F32),
    (F32, F64, F64),
]


@pytest.mark.parametrize(("a", "b", "want"), PROMOTIONS)
def test_addition_promotes(a: DType, b: DType, want: DType) -> None:
    assert result(lambda x, y: x + y, a, b).dtype is want
    assert result(lambda x, y: y + x, a, b).dtype is want


LITERALS = [
    (I32, 1, I32),
    (I8, 100, I8),
    (F16, 1, F16),
    (F16, 1.5, F16),
    (BF16, 2.5, BF16),
    (I32, 1.5, F32),
    (I64, True, I64),
    (I1, 1, I32),
    (F64, 1.5, F64),
    (U8, 255, U8),
]


@pytest.mark.parametrize(("d", "literal", "want"), LITERALS)
def test_a_literal_takes_the_type_of_the_tile(d: DType, literal: Any, want: DType) -> None:
    assert result(lambda x: x + literal, d).dtype is want
    assert result(lambda x: literal + x, d).dtype is want


@pytest.mark.parametrize(("d", "literal"), [(I8, 128), (U8, -1), (I32, 2**31), (U32, -5), (I16, 70000)])
def test_a_literal_that_does_not_fit_is_refused(d: DType, literal: int) -> None:
    with pytest.raises(ml_error()) as caught:
        result(lambda x: x + literal, d)
    assert caught.value.code == "literal-range"
    assert caught.value.loc == LOC


def ml_error() -> Any:
    from mimw.diagnostics import CompilationError

    return CompilationError


def test_division() -> None:
    assert result(lambda x, y: x / y, I32, I32).dtype is F32
    assert result(lambda x, y: x / y, F16, F16).dtype is F32
    assert result(lambda x, y: x / y, F64, I32).dtype is F64
    assert result(lambda x, y: x // y, I64, I32).dtype is I64
    assert result(lambda x, y: x % y, F32, F32).value.defining_op.name == "arith.rem"  # type: ignore[union-attr]
    assert result(lambda x: x // 2, I32).value.defining_op.name == "arith.div"  # type: ignore[union-attr]


def test_bits_and_shifts() -> None:
    assert result(lambda x, y: x & y, I1, I1).dtype is I1
    assert result(lambda x: x & True, I1).dtype is I1
    assert result(lambda x, y: x | y, I1, I32).dtype is I32
    assert result(lambda x: x >> 1, U32).dtype is U32
    assert result(lambda x: 1 << x, I32).dtype is I32
    assert result(lambda x: ~x, I1).dtype is I1


@given(st.sampled_from(COMPUTING), st.sampled_from(COMPUTING))
def test_comparisons_give_i1_and_both_sides_one_type(a: DType, b: DType) -> None:
    out = result(lambda x, y: x < y, a, b)
    assert out.dtype is I1
    op = out.value.defining_op
    assert op is not None and op.operands[0].type is op.operands[1].type


@given(st.sampled_from(list(DTYPES.values())), st.sampled_from(list(DTYPES.values())))
def test_promotion_is_commutative(a: DType, b: DType) -> None:
    assert promotion.promote(a, b) is promotion.promote(b, a)


@given(st.sampled_from(INTS), st.sampled_from(INTS))
def test_promotion_keeps_the_wider_width(a: DType, b: DType) -> None:
    out = promotion.promote(a, b)
    assert out.bits == max(a.bits, b.bits)
    assert out in (a, b)


SHAPES = st.lists(st.sampled_from([1, 3, 4]), min_size=0, max_size=3).map(tuple)


@given(SHAPES, SHAPES)
def test_broadcasting_is_that_of_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    import numpy as np

    s = Scratch()
    with building(s.builder):
        x, y = s.tile(F32, a), s.tile(F32, b)
        try:
            want = np.broadcast_shapes(a, b)
        except ValueError:
            with pytest.raises(ml_error()) as caught:
                x + y
            assert caught.value.code == "shape-mismatch"
        else:
            assert (x + y).shape == want


def test_pointer_arithmetic() -> None:
    s = Scratch()
    with building(s.builder):
        p = ml.tensor(s.block.add_arg(ml.pointer_type(F32)))
        i = s.tile(I32, (4,))
        assert str((p + i).type) == "tensor<4xptr<f32>>"
        assert str((i + p).type) == "tensor<4xptr<f32>>"
        assert str((p + i[:, None] + i[None, :]).type) == "tensor<4x4xptr<f32>>"
        assert str((p - 1).type) == "ptr<f32>"
        assert (p == p).dtype is I1
        assert str(p.dtype) == "ptr<f32>"


@pytest.mark.parametrize("d", [F16, BF16, I8, I16, U8, I1])
def test_extrema_of_narrow_types_are_32_bit(d: DType) -> None:
    out = result(lambda x: ml.max(x, 0), d)
    assert out.dtype is (F32 if d.is_floating() else U32 if d.kind == "uint" else I32)


@pytest.mark.parametrize(("d", "want"), [(I8, I32), (U16, U32), (I1, I32), (F16, F16), (I64, I64), (U64, U64)])
def test_sums(d: DType, want: DType) -> None:
    assert result(lambda x: ml.sum(x, 0), d).dtype is want
    assert result(lambda x: ml.cumsum(x, 0), d).dtype is want
    assert result(lambda x: x.sum(0, dtype=F64), d).dtype is F64


def test_reductions_over_all_axes_and_kept_dims() -> None:
    assert result(lambda x: ml.sum(x), F32, shape=(4, 8)).shape == ()
    assert result(lambda x: ml.sum(x, keep_dims=True), F32, shape=(4, 8)).shape == (1, 1)
    assert result(lambda x: ml.sum(x, -1, keep_dims=True), F32, shape=(4, 8)).shape == (4, 1)
    assert result(lambda x: ml.argmax(x, 1), F32, shape=(4, 8)).shape == (4,)
    assert result(lambda x: ml.argmin(x, None), F32, shape=(4, 8)).dtype is I32
    assert result(lambda x: ml.softmax(x, 1), F32, shape=(4, 8)).shape == (4, 8)


def test_shapes() -> None:
    assert result(lambda x: x.T, F32, shape=(4, 8)).shape == (8, 4)
    assert result(lambda x: ml.permute(x, 2, 0, 1), F32, shape=(2, 3, 4)).shape == (4, 2, 3)
    assert result(lambda x: ml.trans(x), F32, shape=(2, 3, 4)).shape == (2, 4, 3)
    assert result(lambda x: x.reshape(2, 4), F32).shape == (2, 4)
    assert result(lambda x: ml.ravel(x), F32, shape=(3, 5)).shape == (15,)
    assert result(lambda x, y: ml.join(x, y), F32, F32).shape == (8, 2)
    assert result(lambda x, y: ml.interleave(x, y), F32, F32).shape == (16,)
    assert result(lambda x, y: ml.interleave(x, y), F32, F32, shape=(3, 4)).shape == (3, 8)
    assert result(lambda x, y: ml.cat(x, y, dim=1), F32, F32, shape=(3, 4)).shape == (3, 8)
    assert result(lambda x: ml.expand_dims(x, (0, -1)), F32).shape == (1, 8, 1)
    assert result(lambda x: ml.broadcast_to(x, 4, 8), F32).shape == (4, 8)
    assert [t.shape for t in result(lambda x: ml.split(x), F32, shape=(8, 2))] == [(8,), (8,)]  # type: ignore[attr-defined]
    assert [t.shape for t in result(lambda x: ml.split(x), F32, shape=(2,))] == [(), ()]  # type: ignore[attr-defined]


DOTS = [
    (F16, F16, {}, F32),
    (F16, F16, {"out_dtype": F16}, F16),
    (BF16, BF16, {}, F32),
    (F32, F32, {}, F32),
    (F64, F64, {}, F64),
    (I8, I8, {}, I32),
    (ml.float8e5, ml.float8e4nv, {}, F32),
]


@pytest.mark.parametrize(("a", "b", "options", "want"), DOTS)
def test_dot_types(a: DType, b: DType, options: dict[str, Any], want: DType) -> None:
    out = result(lambda x, y: ml.dot(x, y, **options), a, b, shape=(16, 16))
    assert out.dtype is want


def test_dot_precision() -> None:
    def precision(**options: Any) -> Any:
        return result(lambda x, y: ml.dot(x, y, **options), F32, F32, shape=(16, 16)).value.defining_op.attrs[
            "precision"
        ]  # type: ignore[union-attr]

    assert precision() == "tf32"
    assert precision(input_precision="ieee") == "ieee"
    assert precision(allow_tf32=False) == "ieee"
    with pytest.raises(ml_error()) as caught:
        precision(input_precision="bf16x3")
    assert caught.value.code == "not-yet"


def test_other_is_cast_to_the_loaded_type() -> None:
    s = Scratch()
    with building(s.builder):
        p = ml.tensor(s.block.add_arg(ml.pointer_type(F16))) + ml.arange(0, 8)
        loaded = ml.load(p, mask=ml.arange(0, 8) < 3, other=-float("inf"))
        op = loaded.value.defining_op
        assert op is not None and op.operands[2].type is loaded.type
        assert loaded.dtype is F16


def test_where_and_extrema() -> None:
    assert result(lambda m, x: ml.where(m, x, 0), I1, F16).dtype is F16
    assert result(lambda m, x, y: ml.where(m, x, y), I1, F16, F32).dtype is F32
    assert result(lambda x: ml.maximum(x, 0), F32).value.defining_op.name == "arith.maxnum"  # type: ignore[union-attr]
    nan = ml.PropagateNan.ALL
    assert result(lambda x: ml.maximum(x, 0, propagate_nan=nan), F32).value.defining_op.name == "arith.maximum"  # type: ignore[union-attr]
    assert result(lambda x: ml.minimum(x, 0, propagate_nan=nan), I32).value.defining_op.name == "arith.minnum"  # type: ignore[union-attr]


def test_constants_stay_constants() -> None:
    s = Scratch()
    with building(s.builder):
        assert ml.cdiv(10, 4) == 3
        assert ml.next_power_of_2(100) == 128
        assert s.block.ops == []


def test_mathematics_of_integers_is_f32_and_fp8_is_refused() -> None:
    assert result(ml.exp, I32).dtype is F32
    assert result(ml.exp, BF16).dtype is BF16
    assert result(ml.floor, I32).dtype is I32
    with pytest.raises(ml_error()) as caught:
        result(ml.exp, ml.float8e5)
    assert caught.value.code == "fp8-arithmetic"


def test_functions_outside_a_kernel_say_so() -> None:
    with pytest.raises(ml_error()) as caught:
        ml.program_id(0)
    assert caught.value.code == "outside-kernel"


def test_names_that_are_not_there_yet() -> None:
    stand_in = ml.dot_scaled
    s = Scratch()
    with building(s.builder), pytest.raises(ml_error()) as caught:
        stand_in(1, 2)
    assert caught.value.code == "not-yet"
    with pytest.raises(AttributeError):
        ml.no_such_name  # noqa: B018


def test_every_value_is_a_value() -> None:
    assert isinstance(result(lambda x: x + 1, I32).value, Value)
