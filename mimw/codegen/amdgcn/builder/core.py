"""The lower half of the AMDGCN builder: instructions, value numbering, operands, packing. Knows the rules of encodings, no primitive.

**How values are held.** i1: lane masks; uniform ones are all ones or 0. Integers narrower than 32 bits: in 32-bit registers, extended by
their own signedness. Floats narrower than 32 bits: in the low bits of a 32-bit register, with *anything* above. 64-bit values: pairs. A
part of a packed 32-bit register: `Lane.part`. Values that are one in a warp are in scalar registers where the scalar unit makes them;
floats stay in vector registers, whatever their uniformity.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.codegen.amdgcn.builder.opcodes import COMMUTES, REVERSED, is_float, is_signed, register_class
from mimw.codegen.amdgcn.isa import Row, inline, resolve
from mimw.codegen.lane import CTA, LANE, Lane, Tile, bits_of, wrap_int
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.machine import Comment, Imm, Inst, Not, Operand, Reg, Symbol
from mimw.diagnostics import InternalError
from mimw.ir.types import I1, I32, I64, U32, Element
from mimw.target import Target

Source = Lane | Operand
"""What an instruction may be given: a lane, or an operand that is ready."""


def is_scalar(operand: Source | None) -> bool:
    """Whether an operand is a scalar register (a lane mask too)."""
    if isinstance(operand, Lane):
        operand = operand.reg
    if isinstance(operand, Not):
        operand = operand.reg
    return isinstance(operand, Reg) and operand.cls[0] in "sm"


def signed32(value: int) -> int:
    """The low 32 bits as a signed number."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def signed64(value: int) -> int:
    """The low 64 bits as a signed number."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


class Core(LaneBuilder):
    """Makes AMDGCN instructions at the end of `block`. `splits`: vector addresses that are known to be a scalar base plus a 32-bit vector
    offset (not negative), with what that offset and the element there stay below, in bytes; at most 2^31. `resource_tail`: `buffer` says."""

    takes_bases = True

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.entry = self.block
        self.splits: dict[Reg, tuple[Reg, Reg, int]] = {}
        self.resource_tail: Reg | None = None

    # ---------------------------------------------------------------------------------------------------- instructions

    def emit(
        self,
        opcode: str,
        operands: list[Operand],
        results: int = 0,
        guard: Lane | None = None,
        tied: Sequence[Operand | None] | None = None,
    ) -> None:
        """Append an instruction; `guard` is an i1 lane."""
        inst = Inst(opcode, operands, results, self.loc, tied_in=tied)
        if guard is not None:
            if guard.reg is None and not guard.off:
                return
            inst.guard = guard.reg
        self.block.insts.append(inst)

    def reg(self, cls: str) -> Reg:
        """A fresh register, named after the value being lowered."""
        return Reg(cls, self.hint)

    def pure(self, opcode: str, dtype: Element, operands: Sequence[Operand], uniform: int, cls: str) -> Lane:
        """The result of a pure instruction whose operands are legal: an earlier one with the same operands, if it is visible here."""
        key = (opcode, cls, *[_key(x) for x in operands])
        found = self._known.get(key)
        if found is not None:
            if self._touched:
                self._touched[-1].add(key)
            return found if found.dtype is dtype else Lane(dtype, found.reg, uniform=found.uniform)
        reg = Reg(cls, self.hint)
        row = resolve(opcode)
        tied = [None] if row.partial else None
        self.block.insts.append(Inst(opcode, [reg, *operands], 1, self.loc, tied_in=tied))
        lane = Lane(dtype, reg, uniform=uniform)
        self._known[key] = lane
        self._log.append(key)
        return lane

    def comment(self, text: str) -> None:
        """A line for the reader of the text."""
        self.block.insts.append(Comment(text))

    # -------------------------------------------------------------------------------------------- the two arithmetic units

    def salu(self, opcode: str, dtype: Element, *sources: Source) -> Lane:
        """The result of a scalar instruction (or pseudo) on uniform sources."""
        operands = [self.scalar(x) if isinstance(x, Lane) else x for x in sources]
        cls = register_class(dtype, scalar=True)
        if resolve(opcode).literals:
            operands = self._one_literal(operands)
        return self.pure(opcode, dtype, operands, CTA, cls)

    def valu(self, opcode: str, dtype: Element, *sources: Source, uniform: int = -1, cls: str = "") -> Lane:
        """The result of a vector instruction, its sources moved where the encoding wants them."""
        if uniform < 0:
            uniform = min((x.uniform for x in sources if isinstance(x, Lane)), default=CTA)
        opcode, operands = self.legal(opcode, sources)
        return self.pure(opcode, dtype, operands, uniform, cls or register_class(dtype, scalar=False))

    def valu_pair(self, opcode: str, dtype: Element, *sources: Source) -> tuple[Lane, Lane]:
        """(result, lane mask) of an instruction that has both: carries, wide products, scales of divisions."""
        uniform = min((x.uniform for x in sources if isinstance(x, Lane)), default=CTA)
        opcode, operands = self.legal(opcode, sources)
        key = (opcode, *[_key(x) for x in operands])

        def make() -> Lane:
            regs = [Reg(register_class(dtype, scalar=False), self.hint), Reg("mask", self.hint)]
            self.block.insts.append(Inst(opcode, [*regs, *operands], 2, self.loc))
            self.once((*key, "mask"), lambda: Lane(I1, regs[1], uniform=uniform))
            return Lane(dtype, regs[0], uniform=uniform)

        result = self.once(key, make)
        return Lane(dtype, result.reg, uniform=uniform), self.once((*key, "mask"), make)

    def legal(self, opcode: str, sources: Sequence[Source]) -> tuple[str, list[Operand]]:
        """(opcode, operands) that an encoding exists for: one scalar register or literal, literals first and in short encodings."""
        half = opcode.endswith("_f16") and not opcode.startswith(("v_pk", "v_cvt"))
        operands = [self.source(x, half) if isinstance(x, Lane) else x for x in sources]
        row = resolve(opcode)
        if len(operands) == 2 and _costs(operands[1]) and not _costs(operands[0]):
            if opcode in COMMUTES:
                operands.reverse()
            elif opcode in REVERSED and isinstance(operands[1], Imm):
                operands.reverse()
                opcode = REVERSED[opcode]
        slots = row.slots[row.num_results :]
        taken: Operand | None = next((o for o, s in zip(operands, slots, strict=False) if s.kind == "m"), None)
        for i, (operand, slot) in enumerate(zip(operands, slots, strict=False)):
            if slot.kind in "sSmMo#@" or operand is taken or not _costs(operand):
                continue
            if slot.kind == "v":
                operands[i] = self._to_vector(operand, slot.bits)
            elif taken is not None:
                same = _key(taken) == _key(operand) and not isinstance(operand, Imm)
                operands[i] = operand if same else self._to_vector(operand, slot.bits)
            elif isinstance(operand, Imm) and not (row.literals and i == 0 and slot.bits == 32):
                operands[i] = taken = self._to_scalar(operand, slot.bits)
            else:
                taken = operand
        if isinstance(operands[0], Imm) and row.encoding == "vop2" and not inline(operands[0]) and len(operands) > 1:
            operands[1] = self._in_vector(operands[1])
        return opcode, operands

    def _in_vector(self, operand: Operand) -> Operand:
        return self._to_vector(operand, 32) if isinstance(operand, Imm) or is_scalar(operand) else operand

    def _one_literal(self, operands: list[Operand]) -> list[Operand]:
        """Scalar instructions take one 32-bit literal."""
        out: list[Operand] = []
        seen: int | None = None
        for operand in operands:
            if isinstance(operand, Imm) and not inline(operand):
                if seen is not None and operand.value != seen:
                    operand = self._to_scalar(operand, 32)
                else:
                    seen = operand.value
            out.append(operand)
        return out

    # -------------------------------------------------------------------------------------------------------- operands

    def source(self, lane: Lane, half: bool = False) -> Operand:
        """The lane as a source: a register of either file, or a constant."""
        if lane.reg is None:
            return self.immediate(lane, half)
        if lane.part >= 0:
            return self._unpack(lane)
        return self._with_offset(lane) if lane.off else lane.reg

    def immediate(self, lane: Lane, half: bool = False) -> Imm:
        """A constant lane as instructions see it; `half`: for an instruction of f16."""
        dtype = lane.dtype
        if dtype is I1:
            return Imm(-lane.off)
        if is_float(dtype):
            bits = bits_of(dtype)
            if bits >= 32:
                return Imm(lane.off, f"f{bits}")
            return Imm(lane.off, "f16" if half else "int")
        return Imm(signed64(lane.off) if bits_of(dtype) == 64 else signed32(lane.off))

    def register(self, lane: Lane) -> Reg:
        """The lane in a register: where it is, or (constants) in a scalar one; floats in a vector one."""
        found = self.source(lane)
        if isinstance(found, Reg):
            return found
        assert isinstance(found, Imm)
        if lane.dtype is I1:
            return self.reg_of(self.pure("s_mov_b64", I1, [Imm(found.value)], CTA, "mask"))
        width = 64 if bits_of(lane.dtype) == 64 else 32
        return self._to_vector(found, width) if is_float(lane.dtype) else self._to_scalar(found, width)

    def vector(self, lane: Lane) -> Reg:
        """The lane in a vector register."""
        found = self.source(lane)
        if isinstance(found, Reg) and not is_scalar(found):
            return found
        return self._to_vector(found, 64 if bits_of(lane.dtype) == 64 else 32)

    def scalar(self, lane: Lane) -> Operand:
        """A uniform lane for the scalar unit: a scalar register or a constant as bits."""
        found = self.source(lane)
        if isinstance(found, Imm):
            return Imm(_bits(found))
        assert isinstance(found, Reg)
        return found if is_scalar(found) else self._first_lane(found)

    def scalar_register(self, lane: Lane) -> Reg:
        """As `scalar`, constants in a register too."""
        found = self.scalar(lane)
        if isinstance(found, Reg):
            return found
        assert isinstance(found, Imm)
        return self._to_scalar(found, 64 if bits_of(lane.dtype) == 64 else 32)

    def reg_of(self, lane: Lane) -> Reg:
        """The register of a lane that is one."""
        assert lane.reg is not None
        return lane.reg

    def _first_lane(self, reg: Reg) -> Reg:
        if reg.cls == "v32":
            return self.reg_of(self.pure("v_readfirstlane_b32", U32, [reg], CTA, "s32"))
        low, high = (self._first_lane(self.reg_of(x)) for x in self.words(Lane(I64, reg)))
        return self.reg_of(self.pure("p_pack", I64, [low, high], CTA, "s64"))

    def _to_vector(self, operand: Operand, bits: int) -> Reg:
        if isinstance(operand, Not):
            raise InternalError("a negated scalar where a vector register is needed", self.loc)
        if isinstance(operand, Imm):
            value = _bits(operand)
            if bits == 64:
                return self.reg_of(
                    self.pure("p_pack", I64, [Imm(signed32(value)), Imm(signed32(value >> 32))], CTA, "v64")
                )
            return self.reg_of(self.pure("v_mov_b32", I32, [Imm(signed32(value))], CTA, "v32"))
        name = "v_mov_b64" if bits == 64 else "v_mov_b32"
        return self.reg_of(self.pure(name, I64 if bits == 64 else I32, [operand], CTA, f"v{bits}"))

    def _to_scalar(self, operand: Imm, bits: int) -> Reg:
        value = _bits(operand)
        if bits == 64:
            if -16 <= signed64(value) <= 64:
                return self.reg_of(self.pure("s_mov_b64", I64, [Imm(signed64(value))], CTA, "s64"))
            return self.reg_of(self.pure("p_pack", I64, [Imm(signed32(value)), Imm(signed32(value >> 32))], CTA, "s64"))
        return self.reg_of(self.pure("s_mov_b32", I32, [Imm(signed32(value))], CTA, "s32"))

    def _with_offset(self, lane: Lane) -> Reg:
        reg = self.reg_of(lane)
        bare = Lane(lane.dtype, reg, uniform=lane.uniform)
        if bits_of(lane.dtype) == 32:
            off = Imm(signed32(lane.off))
            if is_scalar(reg):
                return self.reg_of(self.salu("s_add_i32", lane.dtype, bare, off))
            return self.reg_of(self.valu("v_add_u32", lane.dtype, off, bare))
        off = Imm(signed64(wrap_int(lane.off, I64)))
        if is_scalar(reg):
            operand: Operand = off if -(1 << 31) <= off.value < 1 << 31 else self._to_scalar(off, 64)
            return self.reg_of(self.pure("p_add_u64", lane.dtype, [reg, operand], CTA, "s64"))
        return self.reg_of(self.valu("v_lshl_add_u64", lane.dtype, bare, Imm(0), off))

    # ------------------------------------------------------------------------------------------ packed and wide registers

    def words(self, lane: Lane) -> tuple[Lane, Lane]:
        """The two halves of a 64-bit lane, as u32."""
        found = self.source(lane)
        if isinstance(found, Imm):
            value = _bits(found)
            return self.const(U32, value & 0xFFFFFFFF), self.const(U32, value >> 32 & 0xFFFFFFFF)
        file = "s32" if is_scalar(found) else "v32"
        low, high = (self.pure("p_part", U32, [found, Imm(i)], lane.uniform, file) for i in range(2))
        return low, high

    def wide(self, low: Lane, high: Lane, dtype: Element) -> Lane:
        """A 64-bit lane of two 32-bit ones."""
        if low.reg is None and high.reg is None:
            value = low.off & 0xFFFFFFFF | (high.off & 0xFFFFFFFF) << 32
            return Lane(dtype, None, value if is_float(dtype) else wrap_int(value, dtype), uniform=CTA)
        operands = [self.source(low), self.source(high)]
        cls = "s64" if all(isinstance(x, Imm) or is_scalar(x) for x in operands) else "v64"
        bits = [Imm(signed32(_bits(x))) if isinstance(x, Imm) else x for x in operands]
        return self.pure("p_pack", dtype, bits, min(low.uniform, high.uniform), cls)

    def tuple_of(self, lanes: Sequence[Lane]) -> Reg:
        """Lanes of 32 or 64 bits side by side in one vector tuple (one 32-bit lane: its register)."""
        if len(lanes) == 1:
            return self.vector(lanes[0])
        operands: list[Operand] = []
        total = 0
        for lane in lanes:
            found = self.source(lane)
            wide = bits_of(lane.dtype) == 64
            total += 64 if wide else 32
            if isinstance(found, Imm):
                value = _bits(found)
                operands += [Imm(signed32(value >> s)) for s in ((0, 32) if wide else (0,))]
            else:
                operands.append(found)
        return self.reg_of(self.pure("p_pack", U32, operands, LANE, f"v{total}"))

    def _unpack(self, lane: Lane) -> Reg:
        """One element of a packed register, held as its type is."""
        pack, bits = self.reg_of(lane), bits_of(lane.dtype)
        word = Lane(U32, pack, uniform=lane.uniform)
        at = lane.part * bits
        if is_float(lane.dtype) and at == 0:
            return pack
        if is_scalar(pack):
            name = "s_bfe_i32" if is_signed(lane.dtype) else "s_bfe_u32"
            return self.reg_of(self.salu(name, U32, word, Imm(bits << 16 | at)))
        if is_signed(lane.dtype):
            if at + bits == 32:
                return self.reg_of(self.valu("v_ashrrev_i32", U32, Imm(at), word))
            return self.reg_of(self.valu("v_bfe_i32", U32, word, Imm(at), Imm(bits)))
        if is_float(lane.dtype) or at + bits == 32:
            return self.reg_of(self.valu("v_lshrrev_b32", U32, Imm(at), word))
        return self.reg_of(self.valu("v_bfe_u32", U32, word, Imm(at), Imm(bits)))

    def pack(self, lanes: Tile) -> Reg | Imm:
        """Two 16-bit, four (or two) 8-bit elements as one 32-bit operand; two bytes have zeros above them."""
        first, bits = lanes[0], bits_of(lanes[0].dtype)
        whole = first.reg is not None and all(x.reg is first.reg and x.part == i for i, x in enumerate(lanes))
        if whole and bits * len(lanes) == 32:
            return self.reg_of(first)
        if all(x.reg is None for x in lanes):
            mask = (1 << bits) - 1
            return Imm(signed32(sum((x.off & mask) << (bits * i) for i, x in enumerate(lanes))))
        pieces = [self._piece(x, i * bits // 8) for i, x in enumerate(lanes) if x.reg is not None or x.off]
        if len(pieces) == 1:
            pieces *= 2
        while len(pieces) > 1:
            whole = len(pieces) & ~1
            pieces = [self._join(pieces[i], pieces[i + 1]) for i in range(0, whole, 2)] + pieces[whole:]
        return pieces[0][0]

    def _piece(self, lane: Lane, place: int) -> tuple[Reg | Imm, list[int]]:
        """(word, for each byte of the result the byte of the word that goes there, or 12: none)."""
        size = bits_of(lane.dtype) // 8
        picks = [12] * 4
        if lane.reg is None:
            value = lane.off & ((1 << 8 * size) - 1)
            for i in range(size):
                picks[place + i] = i
            return Imm(signed32(value)), picks
        first = size * lane.part if lane.part >= 0 else 0
        for i in range(size):
            picks[place + i] = first + i
        return lane.reg, picks

    def _join(self, a: tuple[Reg | Imm, list[int]], c: tuple[Reg | Imm, list[int]]) -> tuple[Reg | Imm, list[int]]:
        """Two words with the bytes that are wanted of them, as one word whose bytes are in place."""
        merged = [y + 4 if y != 12 else x for x, y in zip(a[1], c[1], strict=True)]
        selector = sum(x << 8 * i for i, x in enumerate(merged))
        places = [i if x != 12 else 12 for i, x in enumerate(merged)]
        if a[0] is c[0]:
            selector = sum((x - 4 if 4 <= x < 8 else x) << 8 * i for i, x in enumerate(merged))
        found = self.valu(
            "v_perm_b32", U32, self._in_register(c[0]), self._in_register(a[0]), Imm(selector), uniform=LANE
        )
        return self.reg_of(found), places

    def _in_register(self, operand: Reg | Imm) -> Reg | Imm:
        """The selector takes the constant bus, so the sources are vector registers or constants that cost nothing."""
        return self._to_vector(operand, 32) if _costs(operand) else operand

    def packed(self, lanes: Tile) -> Reg:
        """As `pack`, in a vector register."""
        found = self.pack(lanes)
        return self._to_vector(found, 32) if isinstance(found, Imm) or is_scalar(found) else found


def _costs(operand: Operand) -> bool:
    """Whether a source of a vector instruction takes the constant bus."""
    if isinstance(operand, Imm):
        return not inline(operand)
    return is_scalar(operand)


def _key(operand: Operand) -> object:
    if isinstance(operand, Imm):
        return (operand.value, operand.cls)
    if isinstance(operand, Symbol):
        return operand.name
    if isinstance(operand, Not):
        return ("not", operand.reg)
    return operand


def _bits(value: Imm) -> int:
    """The bits of a constant, as an integer."""
    return value.value


__all__ = ["Core", "Row", "Source", "is_scalar", "signed32", "signed64"]
