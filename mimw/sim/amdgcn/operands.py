# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""How an instruction's operands are read and written: typed closures over the machine's registers.

A decoder asks once per operand and gets a function of the executing waves. Vector operands come as (n, 64), scalar ones
broadcast as (n, 1), constants as (1, 1); the scalar unit's operands come as (n,). Types: b32 u32 i32 f32, b16 u16 i16 f16
bf16 (low half unless op_sel or a half is asked for), b64 u64 i64 f64. Owns sign modifiers, SDWA selection, DPP, op_sel,
clamp and omod; records what each instruction reads and writes, for the hazard check. Knows no instruction's meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mimw.sim.amdgcn.decode import M0, VCC, Const, DecodeError, Inst, Operand, Reg, Word
from mimw.sim.amdgcn.dpp import Dpp, dpp_of
from mimw.sim.amdgcn.errors import SimulationError, not_yet
from mimw.sim.amdgcn.state import LANES, SCALAR, Array, Ctx, slot_of
from mimw.sim.amdgcn.types import DTYPES, FLOATS, PRIVATE_APERTURE, SHARED_APERTURE, constant_bits, flush, join, size_of

if TYPE_CHECKING:
    from mimw.sim.amdgcn.sim import Sim

Getter = Callable[[Ctx], Array]
Setter = Callable[[Ctx, Array], None]

_UNSIGNED: dict[int, Any] = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_SELECT = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
}


class Operands:
    """The operands of one instruction on one machine. `reads` and `writes` hold slot numbers as they are asked for."""

    def __init__(self, sim: Sim, inst: Inst) -> None:
        self.sim, self.inst, self.m = sim, inst, sim.m
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.sdwa = inst.encoding == "sdwa"
        self.dpp: Dpp | None = dpp_of(inst) if inst.encoding in ("dpp", "e64_dpp") else None

    def op(self, index: int) -> Operand:
        """Operand number `index`."""
        if index >= len(self.inst.operands):
            raise DecodeError(f"`{self.inst.text}` has {len(self.inst.operands)} operands")
        return self.inst.operands[index]

    def vector_slot(self, index: int) -> int:
        """The slot of operand `index`, which must be a vector register."""
        op = self.op(index)
        if not isinstance(op, Reg) or op.file == "s":
            raise DecodeError(f"`{self.inst.text}`: {op!r} is no vector register")
        return slot_of(op)

    # -- vector sources ------------------------------------------------------------------------------------------

    def src(self, index: int, kind: str, position: int = 0, half: int | None = None) -> Getter:
        """Source operand `index` as `kind`. `position` counts sources (0, 1, 2): it picks SDWA, DPP and op_sel parts.

        `half` (0 low, 1 high) overrides op_sel for 16-bit types.
        """
        op = self.op(index)
        size = size_of(kind)
        if size == 8:
            return self._finish(self._words64(op, kind), op, kind, 8)
        if self.sdwa:
            return self._finish(self._sdwa_bits(op, kind, position), op, kind, size)
        raw = self.bits32(op, kind)
        if self.dpp is not None and position == 0:
            raw = self._through_dpp(op, self.dpp)
        if size == 4:
            return self._finish(raw, op, kind, 4)
        if half is None:
            half = self.inst.bits("op_sel", 4, 0)[position]
        shift = np.uint32(16 * half)
        low: Getter = (
            (lambda x: raw(x).astype(np.uint16)) if not half else lambda x: (raw(x) >> shift).astype(np.uint16)
        )
        return self._finish(low, op, kind, 2)

    def bits32(self, op: Operand, kind: str = "b32") -> Getter:
        """The 32 bits of an operand, without modifiers."""
        m = self.m
        if isinstance(op, Reg):
            self._note(self.reads, op, 1)
            if op.file == "s":
                number = op.first
                return lambda x: m.read_scalar(x, number)[:, None]
            slot = slot_of(op)
            row, bad = m.vector[slot], m.bad

            def read(x: Ctx) -> Array:
                if bad[slot] & x.bits:
                    m.check_read(x, slot, x.mask)
                return row[x.sel]

            return read
        if isinstance(op, Const):
            value = np.array([[constant_bits(op, kind) & 0xFFFFFFFF]], np.uint32)
            return lambda x: value
        return self._named_bits(op)

    def _named_bits(self, op: Word) -> Getter:
        m = self.m
        if op.text in ("scc", "src_scc"):
            return lambda x: m.scc[x.sel].astype(np.uint32)[:, None]
        if op.text in ("vccz", "src_vccz"):
            return lambda x: (~m.read_mask(x, VCC).any(axis=1)).astype(np.uint32)[:, None]
        if op.text in ("execz", "src_execz"):
            return lambda x: (~m.exec[x.sel].any(axis=1)).astype(np.uint32)[:, None]
        if op.text == "null":
            zero = np.zeros((1, 1), np.uint32)
            return lambda x: zero
        raise not_yet(f"operand {op.text}")

    def _through_dpp(self, op: Operand, dpp: Dpp) -> Getter:
        """Read across lanes. Only lanes that are on and valid are looked at; the others give 0."""
        if not isinstance(op, Reg) or op.file == "s":
            raise DecodeError(f"DPP of {op!r} in `{self.inst.text}`")
        m, slot = self.m, slot_of(op)

        def read(x: Ctx) -> Array:
            seen = dpp.valid & m.exec[x.sel][:, dpp.source]
            wanted = np.zeros((x.n, LANES), np.bool_)
            wants = x.active() & seen
            rows, lanes = np.nonzero(wants)
            wanted[rows, dpp.source[lanes]] = True
            if m.bad[slot] & x.bits:
                m.check_read(x, slot, wanted)
            return np.where(seen, m.vector[slot][x.sel][:, dpp.source], np.uint32(0))

        return read

    def dpp_mask(self, x: Ctx) -> Array | None:
        """The lanes that a DPP instruction writes, None for all."""
        dpp = self.dpp
        assert dpp is not None
        mask = x.active() & dpp.takes_part
        if not dpp.zero_fill:
            mask = mask & dpp.valid & x.active()[:, dpp.source]
        return None if mask.all() else mask

    def _sdwa_bits(self, op: Operand, kind: str, position: int) -> Getter:
        raw = self.bits32(op, kind)
        select = self.inst.mods.get(f"src{position}_sel", "DWORD")
        unsigned = _UNSIGNED[size_of(kind)]
        if select == "DWORD":
            return lambda x: raw(x).astype(unsigned)
        shift, width = _SELECT[str(select)]
        mask = np.uint32((1 << width) - 1)
        if isinstance(op, Reg) and op.sext:
            up = np.uint32(32 - width)
            down = np.uint32(shift)
            return lambda x: (((raw(x) >> down) << up).view(np.int32) >> np.int32(up)).view(np.uint32).astype(unsigned)
        return lambda x: ((raw(x) >> np.uint32(shift)) & mask).astype(unsigned)

    def _words64(self, op: Operand, kind: str) -> Getter:
        m = self.m
        if isinstance(op, Const):
            value = np.array([[constant_bits(op, kind)]], np.uint64)
            return lambda x: value
        if isinstance(op, Word):
            return self._named64(op)
        self._note(self.reads, op, 2)
        if op.file == "s":
            low_at = op.first
            return lambda x: join(m.read_scalar(x, low_at), m.read_scalar(x, low_at + 1))[:, None]
        slot = slot_of(op)
        return lambda x: join(m.read_vector(x, slot), m.read_vector(x, slot + 1))

    def _named64(self, op: Word) -> Getter:
        apertures = {"src_shared_base": SHARED_APERTURE << 32, "src_private_base": PRIVATE_APERTURE << 32,
                     "src_shared_limit": SHARED_APERTURE << 32 | 0xFFFFFFFF,
                     "src_private_limit": PRIVATE_APERTURE << 32 | 0xFFFFFFFF, "null": 0}  # fmt: skip
        if op.text not in apertures:
            raise not_yet(f"operand {op.text}")
        value = np.array([[apertures[op.text]]], np.uint64)
        return lambda x: value

    def _finish(self, raw: Getter, op: Operand, kind: str, size: int) -> Getter:
        """Apply sign modifiers to the bits and view them as `kind`; flush f32 denormals where MODE says so."""
        unsigned, dtype = _UNSIGNED[size], DTYPES[kind]
        sign = unsigned(1 << (8 * size - 1))
        get = raw
        if op.absolute:
            get = _absolute(get, unsigned(~sign))
        if op.neg:
            get = _negated(get, sign)
        if dtype is unsigned:
            return get
        if kind == "f32":
            return self._flushing(lambda x: np.ascontiguousarray(get(x)).view(np.float32), np.uint32(0x10))
        if kind in ("f16", "f64"):
            return self._flushing(lambda x: np.ascontiguousarray(get(x)).view(dtype), np.uint32(0x40))
        return lambda x: np.ascontiguousarray(get(x)).view(dtype)

    def _flushing(self, get: Getter, bit: np.uint32) -> Getter:
        """Input denormals become zero where the MODE register's denormal bit is off (never in a mode that keeps all)."""
        m, sim = self.m, self.sim

        def read(x: Ctx) -> Array:
            value = get(x)
            if not sim.flushes:
                return value
            return flush(value, (m.float_mode[x.sel] & bit) == 0)

        return read

    # -- vector results ------------------------------------------------------------------------------------------

    def dst(self, index: int, kind: str, keep_high: bool = False) -> Setter:
        """Result operand `index` of type `kind`, with clamp, omod, SDWA placement and op_sel.

        16-bit results clear the upper half (gfx9), unless `keep_high`, or unless op_sel puts them into the upper half.
        """
        op = self.op(index)
        if not isinstance(op, Reg) or op.file == "s":
            raise DecodeError(f"`{self.inst.text}`: {op!r} is no vector register")
        m, slot, size = self.m, slot_of(op), size_of(kind)
        self._note(self.writes, op, 2 if size == 8 else 1)
        shape = self._shaping(kind)
        if size == 8:

            def put64(x: Ctx, v: Array) -> None:
                bits = np.ascontiguousarray(shape(x, v)).view(np.uint64)
                m.write_vector(x, slot, bits.astype(np.uint32))
                m.write_vector(x, slot + 1, (bits >> np.uint64(32)).astype(np.uint32))

            return put64
        if self.sdwa:
            return self._sdwa_dst(op, slot, size, shape)
        if size == 4:
            return lambda x, v: m.write_vector(x, slot, np.ascontiguousarray(shape(x, v)).view(np.uint32))
        return self._half_dst(op, slot, shape, keep_high)

    def _half_dst(self, op: Reg, slot: int, shape: Callable[[Ctx, Array], Array], keep_high: bool) -> Setter:
        m = self.m
        sources = len(self.inst.operands) - 1
        given = self.inst.mods.get("op_sel")
        high = given[sources] if isinstance(given, list) and len(given) > sources else 0
        if not high and not keep_high:
            return lambda x, v: m.write_vector(x, slot, _half_bits(shape(x, v)).astype(np.uint32))
        self._note(self.reads, op, 1)
        shift = np.uint32(16 if high else 0)
        kept = np.uint32(0xFFFF if high else 0xFFFF0000)

        def put(x: Ctx, v: Array) -> None:
            # The other half is kept whatever it is: no check that it was written.
            old = m.vector[slot][x.sel] & kept
            m.write_vector(x, slot, old | _half_bits(shape(x, v)).astype(np.uint32) << shift)

        return put

    def _sdwa_dst(self, op: Reg, slot: int, size: int, shape: Callable[[Ctx, Array], Array]) -> Setter:
        m, unsigned = self.m, _UNSIGNED[size]
        select, unused = self.inst.mods.get("dst_sel", "DWORD"), self.inst.mods.get("dst_unused", "UNUSED_PAD")
        if select == "DWORD":
            return lambda x, v: m.write_vector(
                x, slot, np.ascontiguousarray(shape(x, v)).view(unsigned).astype(np.uint32)
            )
        shift, width = _SELECT[str(select)]
        field = np.uint32(((1 << width) - 1) << shift)

        def put(x: Ctx, v: Array) -> None:
            bits = np.ascontiguousarray(shape(x, v)).view(unsigned).astype(np.uint32) << np.uint32(shift) & field
            if unused == "UNUSED_PRESERVE":
                bits = bits | m.vector[slot][x.sel] & ~field
            elif unused == "UNUSED_SEXT":
                up = np.uint32(32 - shift - width)
                bits = ((bits << up).view(np.int32) >> np.int32(up)).view(np.uint32)
            m.write_vector(x, slot, bits)

        if unused == "UNUSED_PRESERVE":
            self._note(self.reads, op, 1)
        return put

    def _shaping(self, kind: str) -> Callable[[Ctx, Array], Array]:
        """omod, then clamp, of a floating-point result; clamp of integers is the instruction's own business."""
        scale = {"mul:2": 2.0, "mul:4": 4.0, "div:2": 0.5}.get(
            next((f"{k}:{v}" for k, v in self.inst.mods.items() if k in ("mul", "div")), "")
        )
        clamp = self.inst.flag("clamp")
        if kind not in FLOATS:
            return lambda x, v: v
        m, sim = self.m, self.sim
        out_bit = np.uint32(0x20 if kind == "f32" else 0x80)
        dtype = DTYPES[kind]

        def shape(x: Ctx, v: Array) -> Array:
            v = np.asarray(v, dtype)
            if scale is not None:
                v = v * dtype(scale)
            if clamp:
                v = np.where(v > 0, np.minimum(v, dtype(1)), dtype(0))
            if sim.flushes:
                v = flush(v, (m.float_mode[x.sel] & out_bit) == 0)
            return v

        if scale is None and not clamp:
            return lambda x, v: shape(x, v) if sim.flushes else np.asarray(v, dtype)
        return shape

    # -- lane masks ----------------------------------------------------------------------------------------------

    def mask_src(self, op: Operand) -> Getter:
        """A pair of scalar registers (or a constant) as one bool a lane, (n, 64)."""
        m = self.m
        if isinstance(op, Reg) and op.file == "s":
            self._note(self.reads, op, 2)
            return lambda x: m.read_mask(x, op.first)
        if isinstance(op, Const):
            bits = np.array([constant_bits(op, "b64")], np.uint64).view(np.uint8)
            value = np.unpackbits(bits, bitorder="little").view(np.bool_)[None, :]
            return lambda x: value
        raise DecodeError(f"`{self.inst.text}`: {op!r} is no lane mask")

    def mask_dst(self, op: Operand) -> Setter:
        """Write one bool a lane; lanes that are off get 0 (as v_cmp and carries do)."""
        m = self.m
        if not isinstance(op, Reg) or op.file != "s":
            raise DecodeError(f"`{self.inst.text}`: {op!r} is no lane mask")
        self._note(self.writes, op, 2)

        def put(x: Ctx, v: Array) -> None:
            full = x.full(v)
            m.write_mask(x, op.first, full if x.mask is None else full & x.mask)

        return put

    # -- groups of registers -------------------------------------------------------------------------------------

    def words(self, op: Operand, count: int, all_lanes: bool = False) -> Getter:
        """`count` registers as (count, n, 64) uint32 (SGPRs broadcast); `all_lanes`: checked whatever EXEC is."""
        m = self.m
        if isinstance(op, Const):
            value = np.full((count, 1, 1), constant_bits(op, "b32"), np.uint32)
            return lambda x: value
        if not isinstance(op, Reg):
            raise DecodeError(f"`{self.inst.text}`: {op!r} is no register")
        if op.count != count and not (op.count == 1 and count == 1):
            raise DecodeError(f"`{self.inst.text}`: {op!r} is not {count} registers")
        self._note(self.reads, op, count)
        if op.file == "s":
            return lambda x: np.stack([m.read_scalar(x, op.first + k) for k in range(count)])[:, :, None]
        slot = slot_of(op)
        if all_lanes:
            return lambda x: m.read_all_lanes(x, slot, count)

        def read(x: Ctx) -> Array:
            for k in range(slot, slot + count):
                if m.bad[k] & x.bits:
                    m.check_read(x, k, x.mask)
            return m.vector[slot : slot + count, x.sel]

        return read

    def words_dst(self, op: Operand, count: int) -> Setter:
        """Write (count, n, 64) uint32 in the lanes that are on."""
        m = self.m
        if not isinstance(op, Reg) or op.file == "s" or op.count != count:
            raise DecodeError(f"`{self.inst.text}`: {op!r} is not {count} vector registers")
        self._note(self.writes, op, count)
        slot = slot_of(op)

        def put(x: Ctx, values: Array) -> None:
            for k in range(count):
                m.write_vector(x, slot + k, values[k])

        return put

    # -- the scalar unit -----------------------------------------------------------------------------------------

    def scalar(self, index: int, kind: str) -> Getter:
        """A source of the scalar unit, (n,) or (1,), as b32, u32, i32, b64, u64, i64 or f32."""
        op = self.op(index)
        get = self._words64(op, kind) if size_of(kind) == 8 else self.bits32(op, kind)
        dtype = DTYPES[kind]
        return lambda x: np.ascontiguousarray(get(x)[:, 0]).view(dtype)

    def scalar_dst(self, index: int, kind: str) -> Setter:
        """A result of the scalar unit, (n,) or (1,)."""
        op, m = self.op(index), self.m
        if isinstance(op, Word) and op.text == "null":
            return lambda x, v: None
        if not isinstance(op, Reg) or op.file != "s":
            raise DecodeError(f"`{self.inst.text}`: {op!r} is no scalar register")
        number, size = op.first, size_of(kind)
        self._note(self.writes, op, size // 4)
        if size == 4:
            return lambda x, v: m.write_scalar(x, number, np.ascontiguousarray(v).view(np.uint32))
        if number == 126:

            def put_exec(x: Ctx, v: Array) -> None:
                bits = np.ascontiguousarray(np.broadcast_to(v.view(np.uint64), x.n)).view(np.uint8).reshape(x.n, 8)
                m.write_exec(x, np.unpackbits(bits, axis=1, bitorder="little").view(np.bool_))

            return put_exec

        def put(x: Ctx, v: Array) -> None:
            bits = np.ascontiguousarray(v).view(np.uint64)
            m.write_scalar(x, number, bits.astype(np.uint32))
            m.write_scalar(x, number + 1, (bits >> np.uint64(32)).astype(np.uint32))

        return put

    def scalar_words(self, op: Operand, count: int) -> Getter:
        """`count` scalar registers as (count, n) uint32."""
        m = self.m
        if not isinstance(op, Reg) or op.file != "s" or op.count != count:
            raise DecodeError(f"`{self.inst.text}`: {op!r} is not {count} scalar registers")
        self._note(self.reads, op, count)
        return lambda x: np.stack([m.read_scalar(x, op.first + k) for k in range(count)])

    def m0(self) -> Getter:
        """M0, (n,) uint32."""
        self.reads.add(SCALAR + M0)
        return lambda x: self.m.read_scalar(x, M0)

    def fault(self, message: str, kind: str = "program") -> SimulationError:
        """An error at this instruction."""
        return SimulationError(message, kind, self.inst)

    @staticmethod
    def _note(where: set[int], op: Reg, count: int) -> None:
        first = slot_of(op)
        where.update(range(first, first + max(count, 1)))


def _absolute(get: Getter, mask: Any) -> Getter:
    return lambda x: get(x) & mask


def _negated(get: Getter, sign: Any) -> Getter:
    return lambda x: get(x) ^ sign


def _half_bits(v: Array) -> Array:
    return np.ascontiguousarray(v).view(np.uint16)
