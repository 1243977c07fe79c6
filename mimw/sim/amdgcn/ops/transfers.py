# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""What loads, stores and atomics of all memories share: data sizes by suffix, results that arrive later, atomic functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.sim.amdgcn.decode import Reg
from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.floating import larger, smaller
from mimw.sim.amdgcn.ops.vector import Function
from mimw.sim.amdgcn.state import Array, Ctx, slot_of
from mimw.sim.amdgcn.types import join

_U32 = np.uint32


class Shape:
    """Bytes of an access a lane, registers of its data, sign extension, and which half a d16 form uses (None: whole)."""

    __slots__ = ("half", "regs", "signed", "width")

    def __init__(self, width: int, signed: bool = False, half: int | None = None) -> None:
        self.width, self.signed, self.half = width, signed, half
        self.regs = max(1, width // 4)


SHAPES: dict[str, Shape] = {
    "ubyte": Shape(1), "sbyte": Shape(1, True), "ushort": Shape(2), "sshort": Shape(2, True), "dword": Shape(4),
    "dwordx2": Shape(8), "dwordx3": Shape(12), "dwordx4": Shape(16), "dwordx8": Shape(32), "dwordx16": Shape(64),
    "ubyte_d16": Shape(1, False, 0), "ubyte_d16_hi": Shape(1, False, 1), "sbyte_d16": Shape(1, True, 0),
    "sbyte_d16_hi": Shape(1, True, 1), "short_d16": Shape(2, False, 0), "short_d16_hi": Shape(2, False, 1),
    "byte": Shape(1), "byte_d16_hi": Shape(1, False, 1), "short": Shape(2), "u8": Shape(1), "i8": Shape(1, True),
    "u16": Shape(2), "i16": Shape(2, True), "b8": Shape(1), "b16": Shape(2), "b32": Shape(4), "b64": Shape(8),
    "b96": Shape(12), "b128": Shape(16), "u8_d16": Shape(1, False, 0), "u8_d16_hi": Shape(1, False, 1),
    "i8_d16": Shape(1, True, 0), "i8_d16_hi": Shape(1, True, 1), "u16_d16": Shape(2, False, 0),
    "u16_d16_hi": Shape(2, False, 1), "b8_d16_hi": Shape(1, False, 1), "b16_d16_hi": Shape(2, False, 1),
}  # fmt: skip


def arriving(d: Operands, index: int, shape: Shape, kind: str) -> Callable[[Ctx, Array], None]:
    """Write loaded words to operand `index` and let the instruction own them until it is waited for."""
    op = d.op(index)
    if not isinstance(op, Reg) or op.file == "s" or op.count != shape.regs:
        raise d.fault(f"{op!r} is not {shape.regs} vector registers")
    slots = tuple(range(slot_of(op), slot_of(op) + shape.regs))
    d.writes.update(slots)
    if shape.half is not None:
        d.reads.update(slots)
    sim, inst, m = d.sim, d.inst, d.m

    def put(x: Ctx, words: Array) -> None:
        sim.waits.claim(x, kind, slots)
        if shape.width < 4:
            words = extended(words, shape, m.vector[slots[0]][x.sel])
        for slot, word in zip(slots, words, strict=True):
            m.write_vector(x, slot, word)
        sim.waits.issue(x, kind, inst, slots, sim.time)

    return put


def extended(words: Array, shape: Shape, old: Array) -> Array:
    """A byte or 16-bit value extended to 32 bits, or put into a half of the old register."""
    value = words[0]
    bits = 8 * shape.width
    if shape.signed:
        up = _U32(32 - bits)
        value = ((value << up).view(np.int32) >> np.int32(up)).view(_U32)
    if shape.half is None:
        return value[None]
    low = value & _U32(0xFFFF)
    return (old & _U32(0xFFFF) | low << _U32(16) if shape.half else old & _U32(0xFFFF0000) | low)[None]


def leaving(d: Operands, index: int, shape: Shape) -> Getter:
    """The data words of a store, (words, n, 64)."""
    get = d.words(d.op(index), shape.regs)
    return (lambda x: get(x) >> _U32(16)) if shape.half else get


# --- atomics


def _wrap_inc(old: Array, data: Array) -> Array:
    return np.where(old >= data, old.dtype.type(0), old + old.dtype.type(1))


def _wrap_dec(old: Array, data: Array) -> Array:
    return np.where((old == 0) | (old > data), data, old - old.dtype.type(1))


_ATOMIC: dict[str, Function] = {
    "swap": lambda old, data: data, "wrxchg": lambda old, data: data, "add": lambda old, data: old + data,
    "sub": lambda old, data: old - data, "rsub": lambda old, data: data - old, "smin": np.minimum, "umin": np.minimum,
    "smax": np.maximum, "umax": np.maximum, "and": lambda old, data: old & data, "or": lambda old, data: old | data,
    "xor": lambda old, data: old ^ data, "inc": _wrap_inc, "dec": _wrap_dec,
}  # fmt: skip
_ATOMIC_FLOAT: dict[str, Function] = {"add": lambda old, data: old + data, "min": smaller, "max": larger}


def atomic_function(name: str, kind: str) -> Function | None:
    """`name` of an atomic on values of `kind` (u32, i32, f32, u64, i64, f64, pk_f16, pk_bf16), or None."""
    if kind == "pk_bf16":
        return _add_bf16 if name == "add" else None
    if kind[0] == "f" or kind == "pk_f16":
        return _ATOMIC_FLOAT.get(name)
    if name in ("min", "max"):
        return np.minimum if name == "min" else np.maximum
    return _ATOMIC.get(name)


def _add_bf16(old: Array, data: Array) -> Array:
    a, b = ((v.astype(_U32) << _U32(16)).view(np.float32) for v in (old, data))
    bits = (a + b).view(_U32)
    rounded = (bits + _U32(0x7FFF) + ((bits >> _U32(16)) & _U32(1))) >> _U32(16)
    return np.where(np.isnan(a + b), _U32(0x7FC0), rounded).astype(np.uint16)


def viewed(words: Array, kind: str) -> Array:
    """(words, k) uint32 as an array of `kind`, the last axis first: (k,) or (k, 2) for packed pairs."""
    if kind in ("u64", "i64", "f64"):
        return join(words[0], words[1]).view({"u64": np.uint64, "i64": np.int64, "f64": np.float64}[kind])
    if kind.startswith("pk_"):
        return np.ascontiguousarray(words[0])[:, None].view(np.float16 if kind == "pk_f16" else np.uint16)
    return np.ascontiguousarray(words[0]).view({"u32": _U32, "i32": np.int32, "f32": np.float32}[kind])


def unviewed(value: Array) -> Array:
    """The reverse of `viewed`: bytes a lane, (k, bytes)."""
    value = np.ascontiguousarray(value)
    return value.view(np.uint8).reshape(len(value), -1)


def run_atomic(data: Array, at: Array, width: int, fn: Callable[[Array, Array], Array]) -> tuple[Array, bool]:
    """Apply `fn(old bytes as words, which lanes)` in lane order at byte positions `at` of `data`.

    Returns the old words, (k, words), and whether memory changed.

    Lanes that meet at one place take turns: each round handles the first lane left at every place.
    """
    old = np.zeros((len(at), width // 4), _U32)
    rest, changed = np.arange(len(at)), False
    span = np.arange(width)
    while len(rest):
        _, first = np.unique(at[rest], return_index=True)
        now = rest[np.sort(first)]
        places = at[now][:, None] + span
        words = np.ascontiguousarray(data[places]).view(_U32)
        old[now] = words
        new = fn(words, now)
        changed = changed or bool((new != words.view(np.uint8).reshape(new.shape)).any())
        data[places] = new
        rest = np.setdiff1d(rest, now, assume_unique=True)
    return old, changed


def atomic_step(name: str, kind: str, values: Array, compare: Array | None) -> Callable[[Array, Array], Array]:
    """The function for `run_atomic`: new bytes from the old words and the lanes' operands ((words, k) uint32)."""
    fn = atomic_function(name, kind)

    def update(words: Array, now: Array) -> Array:
        old, new = viewed(words.T, kind), viewed(values[:, now], kind)
        if compare is not None:
            wanted = viewed(compare[:, now], kind)
            return unviewed(np.where(old == wanted, new, old))
        assert fn is not None
        return unviewed(fn(old, new))

    return update
