"""Which AMDGCN instruction does a primitive of `LaneBuilder`, and in which registers values are held.

Tables and their lookups only: makes no instruction, knows no builder. What has no row here is a sequence in a `builder_*` file.
"""

from __future__ import annotations

from mimw.codegen.lane import bits_of
from mimw.ir.types import I1, DType, Element, PointerType

SCALAR_INT = {
    "add": "s_add_i32", "sub": "s_sub_i32", "mul": "s_mul_i32", "and": "s_and_b32", "or": "s_or_b32", "xor": "s_xor_b32",
    "not": "s_not_b32", "shl": "s_lshl_b32",
}  # fmt: skip
"""(primitive) -> instruction on 32-bit integers of either sign."""

VECTOR_INT = {
    "add": "v_add_u32", "sub": "v_sub_u32", "mul": "v_mul_lo_u32", "and": "v_and_b32", "or": "v_or_b32", "xor": "v_xor_b32",
    "not": "v_not_b32", "shl": "v_lshlrev_b32",
}  # fmt: skip

SIGNED = {
    "min": ("s_min_i32", "v_min_i32"), "max": ("s_max_i32", "v_max_i32"), "mulhi": ("s_mul_hi_i32", "v_mul_hi_i32"),
    "shr": ("s_ashr_i32", "v_ashrrev_i32"),
}  # fmt: skip
UNSIGNED = {
    "min": ("s_min_u32", "v_min_u32"), "max": ("s_max_u32", "v_max_u32"), "mulhi": ("s_mul_hi_u32", "v_mul_hi_u32"),
    "shr": ("s_lshr_b32", "v_lshrrev_b32"),
}  # fmt: skip

FLOAT = {
    "f16": {
        "add": "v_add_f16", "sub": "v_sub_f16", "mul": "v_mul_f16", "fma": "v_fma_f16", "min": "v_min_f16", "max": "v_max_f16",
        "floor": "v_floor_f16", "ceil": "v_ceil_f16", "rint": "v_rndne_f16", "trunc": "v_trunc_f16",
    },
    "f32": {
        "add": "v_add_f32", "sub": "v_sub_f32", "mul": "v_mul_f32", "fma": "v_fma_f32", "min": "v_min_f32", "max": "v_max_f32",
        "floor": "v_floor_f32", "ceil": "v_ceil_f32", "rint": "v_rndne_f32", "trunc": "v_trunc_f32",
        "sqrt_approx": "v_sqrt_f32", "rsqrt_approx": "v_rsq_f32", "ex2_approx": "v_exp_f32", "lg2_approx": "v_log_f32",
        "rcp_approx": "v_rcp_f32",
    },
    "f64": {
        "add": "v_add_f64", "mul": "v_mul_f64", "fma": "v_fma_f64", "min": "v_min_f64", "max": "v_max_f64",
        "floor": "v_floor_f64", "ceil": "v_ceil_f64", "rint": "v_rndne_f64", "trunc": "v_trunc_f64",
    },
}  # fmt: skip
"""type -> primitive -> instruction."""

SEQUENCES = {
    "f16": frozenset(("neg", "abs", "minnan", "maxnan")),
    "bf16": frozenset(("neg", "abs")),
    "f32": frozenset(("neg", "abs", "minnan", "maxnan", "div_rn", "div_full", "sqrt_rn", "rcp_rn")),
    "f64": frozenset(("neg", "abs", "sub", "div_rn", "div_rz", "sqrt_rn", "rcp_rn")),
}
"""type -> primitives that are sequences of instructions."""

PACKED = {
    "add": "v_pk_add_f16",
    "mul": "v_pk_mul_f16",
    "fma": "v_pk_fma_f16",
    "min": "v_pk_min_f16",
    "max": "v_pk_max_f16",
}
"""What f16 does two at a time; sub, neg and abs are made of these and of bit operations."""

COMMUTES = frozenset((
    "v_add_u32", "v_and_b32", "v_or_b32", "v_xor_b32", "v_add_f32", "v_mul_f32", "v_min_f32", "v_max_f32", "v_add_f16", "v_mul_f16",
    "v_min_f16", "v_max_f16", "v_min_i32", "v_max_i32", "v_min_u32", "v_max_u32", "v_mul_lo_u32", "v_mul_hi_u32", "v_mul_hi_i32",
))  # fmt: skip
"""Two-source instructions whose sources may change places."""

REVERSED = {"v_sub_u32": "v_subrev_u32", "v_sub_f32": "v_subrev_f32", "v_sub_f16": "v_subrev_f16"}
"""The same with the sources the other way round."""

NORMALISED = frozenset(("add", "sub", "mul", "shl", "neg", "not", "abs", "div", "rem"))
"""What may leave bits above a narrow integer: the result is extended again."""

CONVERSIONS: dict[tuple[str, str, str], str] = {
    ("rn", "i32", "f32"): "v_cvt_f32_i32", ("rn", "u32", "f32"): "v_cvt_f32_u32",
    ("rn", "i16", "f32"): "v_cvt_f32_i32", ("rn", "u16", "f32"): "v_cvt_f32_u32",
    ("rn", "i8", "f32"): "v_cvt_f32_i32", ("rn", "u8", "f32"): "v_cvt_f32_u32",
    ("rn", "i32", "f64"): "v_cvt_f64_i32", ("rn", "u32", "f64"): "v_cvt_f64_u32",
    ("rn", "i16", "f64"): "v_cvt_f64_i32", ("rn", "u16", "f64"): "v_cvt_f64_u32",
    ("rn", "i8", "f64"): "v_cvt_f64_i32", ("rn", "u8", "f64"): "v_cvt_f64_u32",
    ("rzi", "f32", "i32"): "v_cvt_i32_f32", ("rzi", "f32", "u32"): "v_cvt_u32_f32",
    ("rzi", "f64", "i32"): "v_cvt_i32_f64", ("rzi", "f64", "u32"): "v_cvt_u32_f64",
    ("rn", "f32", "f16"): "v_cvt_f16_f32", ("rn", "f64", "f32"): "v_cvt_f32_f64",
    ("exact", "f16", "f32"): "v_cvt_f32_f16", ("exact", "f32", "f64"): "v_cvt_f64_f32",
}  # fmt: skip
"""(how, source, destination) -> the one instruction."""

LOADS = {1: "ubyte", 2: "ushort", 4: "dword", 8: "dwordx2", 12: "dwordx3", 16: "dwordx4"}
STORES = {**LOADS, 1: "byte", 2: "short"}
SHARED = {1: "u8", 2: "u16", 4: "b32", 8: "b64", 12: "b96", 16: "b128"}


def width(dtype: Element) -> int:
    """Bits of the register that holds one value: 32 or 64."""
    return 64 if bits_of(dtype) == 64 else 32


def register_class(dtype: Element, scalar: bool) -> str:
    """The register class that holds one value of a type."""
    return "mask" if dtype is I1 else f"{'s' if scalar else 'v'}{width(dtype)}"


def is_signed(dtype: Element) -> bool:
    """Whether values are sign-extended in their registers."""
    return isinstance(dtype, DType) and dtype.kind == "int"


def is_float(dtype: Element) -> bool:
    """Whether the type is a float of any width."""
    return isinstance(dtype, DType) and dtype.kind == "float"


def lives_in_scalars(dtype: Element) -> bool:
    """Whether uniform values of the type are computed by the scalar unit: integers, pointers and masks."""
    return isinstance(dtype, PointerType) or dtype.kind != "float"
