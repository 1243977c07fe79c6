# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Comparisons into predicates (setp, testp) and into registers (set)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx import floats, formats
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops import integer
from mimw.sim.ptx.ops.floating import lanes_of
from mimw.sim.ptx.ops.moves import second_result
from mimw.sim.ptx.registry import Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}


def _float_compare(op: str) -> Callable[[Array, Array], Array]:
    """Ordered comparisons are false on NaN (ne included), unordered ones true."""
    if op == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if op == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if op in _UNORDERED:
        base = _COMPARE[_UNORDERED[op]]
        return lambda a, b: base(a, b) | np.isnan(a) | np.isnan(b)
    base = _COMPARE[op]
    if op == "ne":
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    return base


def compare(op: str, kind: str, ftz: bool) -> Callable[[Array, Array], Array]:
    """The comparison `op` on operands as `Machine.rd` gives them for `kind` (f16 and bf16: decoded here)."""
    if not integer.is_float(kind):
        return _COMPARE[op]
    fn = _float_compare(op)
    if kind == "f32" and ftz:
        return lambda a, b: fn(floats.flush(a), floats.flush(b))
    if kind == "bf16":
        return lambda a, b: fn(formats.bf16_to_f32(a), formats.bf16_to_f32(b))
    return fn


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


@executes("setp")
def _setp(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind, op = mods[-1], mods[0]
    first, second = second_result(inst.operands[0])
    put, put2 = s.m.wr(first, "pred"), s.m.wr(second, "pred")  # type: ignore[arg-type]
    combine = next((_COMBINE[mod] for mod in mods[1:-1] if mod in _COMBINE), None)
    c = s.m.rd(inst.operands[3], "pred") if combine is not None and len(inst.operands) > 3 else None
    if kind in ("f16x2", "bf16x2"):
        return _setp_packed(s, inst, mods)
    fn = compare(op, kind, "ftz" in mods)
    a, b = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind)
    if combine is None and first is inst.operands[0]:
        return lambda x: put(x, fn(a(x), b(x)))

    def run(x: Ctx) -> None:
        out = fn(a(x), b(x))
        no = ~out
        if combine is not None and c is not None:
            extra = c(x)
            out, no = combine(out, extra), combine(no, extra)
        put(x, out)
        put2(x, no)

    return run


def _setp_packed(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = lanes_of(mods[-1])[0]
    first, second = second_result(inst.operands[0])
    put, put2 = s.m.wr(first, "pred"), s.m.wr(second, "pred")  # type: ignore[arg-type]
    if len(inst.operands) > 3:
        raise not_yet("setp on packed types with a third source")
    fn = _float_compare(mods[0])
    a, b = s.m.rd(inst.operands[1], "b32"), s.m.rd(inst.operands[2], "b32")

    def run(x: Ctx) -> None:
        va, vb = a(x), b(x)
        for shift, setter in ((0, put), (16, put2)):
            ea, eb = ((v >> np.uint32(shift)).astype(np.uint16) for v in (va, vb))
            setter(x, fn(formats.decode(kind, ea), formats.decode(kind, eb)))

    return run


@executes("set")
def _set(s: Sim, inst: Inst, mods: list[str]) -> Step:
    out_kind, kind = mods[-2], mods[-1]
    if kind in ("f16x2", "bf16x2") or out_kind not in ("u32", "s32", "f32", "u16", "s16"):
        raise not_yet(f"set.{out_kind}.{kind}")
    fn, combine = compare(mods[0], kind, "ftz" in mods), next((_COMBINE[m] for m in mods[1:-2] if m in _COMBINE), None)
    a, b, put = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind), s.m.wr(inst.operands[0], out_kind)
    c = s.m.rd(inst.operands[3], "pred") if combine is not None else None
    true = {"u32": np.uint32(0xFFFFFFFF), "s32": np.int32(-1), "f32": np.float32(1), "u16": np.uint16(0xFFFF)}.get(
        out_kind, np.int16(-1)
    )

    def run(x: Ctx) -> None:
        out = fn(a(x), b(x))
        if combine is not None and c is not None:
            out = combine(out, c(x))
        put(x, np.where(out, true, true.dtype.type(0)))

    return run
