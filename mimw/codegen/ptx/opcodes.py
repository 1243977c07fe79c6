"""Which PTX instruction does a primitive of `LaneBuilder`, and in which registers values are held.

Tables and their lookups only: makes no instruction, knows no builder. What has no row here is a sequence in `builder.py`, or is not there.
"""

from __future__ import annotations

from mimw.codegen.lane import bits_of
from mimw.ir.types import F32, F64, I1, DType, Element

_CLASS = {8: "b16", 16: "b16", 32: "b32", 64: "b64"}

_INT_OPS = {
    "add": "add.{s}", "sub": "sub.{s}", "mul": "mul.lo.{s}", "mulhi": "mul.hi.{s}", "div": "div.{s}", "rem": "rem.{s}",
    "min": "min.{s}", "max": "max.{s}", "and": "and.{b}", "or": "or.{b}", "xor": "xor.{b}", "not": "not.{b}", "neg": "neg.{n}",
    "abs": "abs.{n}", "shl": "shl.{b}", "shr": "shr.{s}",
}  # fmt: skip
_ROUND = {
    "floor": "cvt.rmi.{f}.{f}", "ceil": "cvt.rpi.{f}.{f}", "rint": "cvt.rni.{f}.{f}", "trunc": "cvt.rzi.{f}.{f}",
}  # fmt: skip
FLOAT_OPS = {
    "add": "add.rn.{f}", "sub": "sub.rn.{f}", "mul": "mul.rn.{f}", "fma": "fma.rn.{f}", "neg": "neg.{f}", "abs": "abs.{f}",
    "min": "min.{f}", "max": "max.{f}", "minnan": "min.NaN.{f}", "maxnan": "max.NaN.{f}",
}  # fmt: skip
_F32_OPS = {
    **FLOAT_OPS, **_ROUND, "div_full": "div.full.f32", "div_rn": "div.rn.f32", "sqrt_rn": "sqrt.rn.f32",
    "sqrt_approx": "sqrt.approx.ftz.f32", "rsqrt_approx": "rsqrt.approx.ftz.f32", "ex2_approx": "ex2.approx.ftz.f32",
    "lg2_approx": "lg2.approx.ftz.f32", "rcp_approx": "rcp.approx.ftz.f32", "rcp_rn": "rcp.rn.f32",
}  # fmt: skip
_F64_OPS = {
    **{k: v for k, v in FLOAT_OPS.items() if not k.endswith("nan")},
    **_ROUND, "div_rn": "div.rn.f64", "div_rz": "div.rz.f64", "sqrt_rn": "sqrt.rn.f64", "rcp_rn": "rcp.rn.f64",
}  # fmt: skip
PACKED = frozenset(FLOAT_OPS)
"""What 16-bit floats do two at a time."""

NORMALISED = frozenset(("add", "sub", "mul", "shl", "neg", "not", "abs", "div"))
"""What may leave bits above an 8-bit integer in its 16-bit register: the result is extended again."""


def register_class(dtype: Element) -> str:
    """The register class that holds one value of a type."""
    if dtype is I1:
        return "pred"
    if dtype is F32:
        return "f32"
    if dtype is F64:
        return "f64"
    return _CLASS[bits_of(dtype)]


def suffixes(dtype: Element) -> tuple[str, str, str]:
    """PTX types of an integer: with its signedness, untyped, signed."""
    bits = max(16, bits_of(dtype))
    signed = isinstance(dtype, DType) and dtype.kind == "int"
    return (f"{'s' if signed else 'u'}{bits}", f"b{bits}", f"s{bits}")


def _opcode_table() -> dict[tuple[str, str], str]:
    from_float = {"f16": {**FLOAT_OPS, **_ROUND}, "bf16": FLOAT_OPS, "f32": _F32_OPS, "f64": _F64_OPS}
    table = {(prim, name): text.replace("{f}", name) for name, ops in from_float.items() for prim, text in ops.items()}
    for name in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"):
        bits, sign = max(16, int(name[1:])), "s" if name[0] == "i" else "u"
        for prim, text in _INT_OPS.items():
            table[prim, name] = text.format(s=f"{sign}{bits}", b=f"b{bits}", n=f"s{bits}")
    return table


OPCODES = {**_opcode_table(), ("subsat", "i32"): "sub.sat.s32"}
"""(primitive, type) -> opcode."""


def access_of(dtype: Element, count: int) -> tuple[str, int, str]:
    """(register class, number of registers, PTX type) of one access to `count` elements."""
    bits = bits_of(dtype)
    if bits >= 32 or count == 1:
        cls = register_class(dtype)
        if bits == 8:
            return cls, 1, "s8" if isinstance(dtype, DType) and dtype.kind == "int" else "u8"
        return cls, count, f"b{bits}" if cls[0] != "f" else cls
    if bits * count == 16:
        return "b32", 1, "u16"
    return "b32", bits * count // 32, "b32"


def type_name(dtype: Element) -> str:
    """The name by which `CONVERSIONS` knows a type: pointers are u64."""
    return dtype.name if isinstance(dtype, DType) else "u64"


def _conversion_table() -> dict[tuple[str, str, str], str]:
    """(how, source, destination) -> opcode, for what is one instruction on every target."""
    table: dict[tuple[str, str, str], str] = {}
    ints = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")

    def ptx(name: str) -> str:
        return name.replace("i", "s")

    for a in ints:
        held = ptx(a) if a[1:] != "8" else ptx(a)[0] + "16"
        for b in ints:
            # Narrow results are held extended; to a 16-bit register from 8 bits the source is already extended.
            narrow = ptx(b)
            table["int", a, b] = f"cvt.{narrow}.{held}"
        for f in ("f16", "f32", "f64"):
            table["rn", a, f] = f"cvt.rn.{f}.{held}"
            table["rz", a, f] = f"cvt.rz.{f}.{held}"
            if f != "f16":
                table["rzi", f, a] = f"cvt.rzi.{ptx(a)}.{f}"
    for how in ("rn", "rz"):
        table[how, "f32", "f16"] = f"cvt.{how}.f16.f32"
        table[how, "f32", "bf16"] = f"cvt.{how}.bf16.f32"
        table[how, "f64", "f32"] = f"cvt.{how}.f32.f64"
        table[how, "f64", "f16"] = f"cvt.{how}.f16.f64"
    table["exact", "f16", "f32"] = "cvt.f32.f16"
    table["exact", "f16", "f64"] = "cvt.f64.f16"
    table["exact", "f32", "f64"] = "cvt.f64.f32"
    return table


CONVERSIONS = _conversion_table()
