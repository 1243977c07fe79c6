"""Arithmetic: the elementwise table, constants, casts.

Signedness is in the type: `div` of u32 is unsigned. Run-time integer `div` and `rem` truncate toward zero (C, PTX). Integer
arithmetic wraps. Shift counts at or above the width give 0 (or the sign, for `shr` of a signed value), as in PTX.
"""

from __future__ import annotations

from typing import Any

from mimw.ir.core import Value
from mimw.ir.opdef import Op, attr, attr_default, declare_elementwise, op, operand, result
from mimw.ir.types import DType, PointerType, TensorType, Type, element_of, like

INT = ("int", "uint")
INTB = ("int", "uint", "bool")
NUM = ("int", "uint", "float")
FLOAT = ("float",)
ANY = ("int", "uint", "float", "bool", "pointer")

declare_elementwise("arith.add", 2, "same", NUM, "Sum; integers wrap, floats round to nearest even.")
declare_elementwise("arith.sub", 2, "same", NUM, "Difference.")
declare_elementwise("arith.mul", 2, "same", NUM, "Product; the low half for integers.")
declare_elementwise("arith.mulhi", 2, "same", INT, "High half of the double-width integer product.")
declare_elementwise(
    "arith.div",
    2,
    "same",
    NUM,
    "Quotient. Integers truncate toward zero; f32 is `div.full` (2 ulp), f64 exact.",
    ulp=2.0,
)
declare_elementwise("arith.div_rn", 2, "same", FLOAT, "Correctly rounded quotient.")
declare_elementwise(
    "arith.rem", 2, "same", NUM, "Remainder with the sign of the dividend (C fmod for floats).", ulp=0.0
)
declare_elementwise("arith.minnum", 2, "same", (*NUM, "bool"), "Smaller value; a NaN operand loses.", ulp=0.0)
declare_elementwise("arith.maxnum", 2, "same", (*NUM, "bool"), "Larger value; a NaN operand loses.", ulp=0.0)
declare_elementwise("arith.minimum", 2, "same", FLOAT, "Smaller value; NaN if either is NaN.", ulp=0.0)
declare_elementwise("arith.maximum", 2, "same", FLOAT, "Larger value; NaN if either is NaN.", ulp=0.0)
declare_elementwise("arith.and", 2, "same", INTB, "Bitwise and.")
declare_elementwise("arith.or", 2, "same", INTB, "Bitwise or.")
declare_elementwise("arith.xor", 2, "same", INTB, "Bitwise exclusive or.")
declare_elementwise("arith.shl", 2, "same", INT, "Shift left; 0 when the count reaches the width.")
declare_elementwise("arith.shr", 2, "same", INT, "Shift right; arithmetic for signed types.")
declare_elementwise("arith.neg", 1, "same", NUM, "Negation; flips the sign bit of floats.", ulp=0.0)
declare_elementwise("arith.not", 1, "same", INTB, "Bitwise complement; logical for i1.")
declare_elementwise("arith.abs", 1, "same", NUM, "Absolute value; the smallest integer stays itself.", ulp=0.0)
declare_elementwise("arith.fma", 3, "same", FLOAT, "a*b+c with one rounding.")
declare_elementwise("arith.eq", 2, "compare", ANY, "Equal (false when a NaN takes part).")
declare_elementwise("arith.ne", 2, "compare", ANY, "Not equal (true when a NaN takes part).")
declare_elementwise("arith.lt", 2, "compare", ANY, "Less (false with NaN).")
declare_elementwise("arith.le", 2, "compare", ANY, "Less or equal (false with NaN).")
declare_elementwise("arith.gt", 2, "compare", ANY, "Greater (false with NaN).")
declare_elementwise("arith.ge", 2, "compare", ANY, "Greater or equal (false with NaN).")
declare_elementwise(
    "arith.select", 3, "select", ANY, "The second operand where the first is true, else the third.", ulp=0.0
)


@op("arith.constant", layout="elementwise")
class ConstantOp(Op):
    """A constant: one number everywhere. `value` is a Python int, float or bool that `type`'s element can hold (ints wrap)."""

    value: int | float | bool = attr()
    type: Type = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        return [self.type]


@op("arith.cast", layout="elementwise", ulp=0.5)
class CastOp(Op):
    """Convert elements to `dtype`, rounding floats to nearest even.

    int to int truncates or extends (by the source's signedness); float to int truncates toward zero and saturates (PTX cvt.rzi);
    anything to i1 is `!= 0`; to a narrower float `rounding` is "rtne" or "rtz"; fp8 saturates to the largest finite value when
    `saturate` (NaN stays NaN), as PTX's ``satfinite``; else what overflows (with "rtz": infinities only) is infinity in f8e5m2 and NaN in the
    others. f8e4m3fnuz and f8e5m2fnuz have no -0: it becomes 0. Pointers convert to and from i64/u64.
    """

    src: Value = operand()
    dtype: DType | PointerType = attr()
    rounding: str = attr_default(default="rtne", choices=("rtne", "rtz"))
    saturate: bool = attr_default(default=True)
    result: Value = result()

    def infer(self) -> list[Type]:
        return [like(self.src.type, self.dtype)]


@op("arith.bitcast", layout="elementwise")
class BitcastOp(Op):
    """Reinterpret the bits of each element as `dtype` of the same width; or a pointer as a pointer to `dtype`'s pointee."""

    src: Value = operand()
    dtype: DType | PointerType = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        src: Any = element_of(self.src.type)
        dst = self.dtype
        if isinstance(src, PointerType) != isinstance(dst, PointerType):
            raise ValueError(f"bitcast from {src} to {dst}")
        if isinstance(src, DType) and isinstance(dst, DType) and src.bits != dst.bits:
            raise ValueError(f"bitcast from {src} to {dst}: widths differ")
        return [like(self.src.type, dst)]


@op("arith.hint", layout="elementwise")
class HintOp(Op):
    """The value itself, with facts the user vouches for: multiples of `divisor`, runs of `contiguity`, runs of equal `constancy`.

    One entry per dimension (a scalar has one).
    """

    src: Value = operand()
    divisor: tuple[int, ...] = attr_default(default=())
    contiguity: tuple[int, ...] = attr_default(default=())
    constancy: tuple[int, ...] = attr_default(default=())
    result: Value = result()

    def infer(self) -> list[Type]:
        return [self.src.type]


def tensor_type(v: Value) -> TensorType:
    """The type of a value that must be a tensor; ValueError otherwise."""
    if not isinstance(v.type, TensorType):
        raise ValueError(f"a tensor is needed, not {v.type}")
    return v.type
