"""What every primitive of the PTX builder stands on: instructions, lanes as operands, packs, memory operands.

How values are held: i1 in predicates; 8-bit integers in 16-bit registers, sign- or zero-extended (every operation restores that);
8-bit floats in 16-bit registers, zero-extended; 16-bit types in 16-bit registers; f32 and f64 in their own; pointers in 64 bits.
Packed: two 16-bit or four 8-bit elements in a 32-bit register. Knows no primitive.
"""

from __future__ import annotations

from mimw.codegen.lane import CTA, LANE, Lane, Tile, bits_of, wrap_int
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.machine import Addr, Comment, Imm, Inst, Operand, Reg, Vec
from mimw.codegen.ptx.opcodes import register_class
from mimw.ir.types import I1, I32, I64, U16, U32, DType, Element


class Core(LaneBuilder):
    """Appends PTX instructions to `block`."""

    # ---------------------------------------------------------------------------------------------------- instructions

    def emit(
        self,
        opcode: str,
        operands: list[Operand],
        results: int = 0,
        guard: Lane | None = None,
        tied: list[Operand] | None = None,
    ) -> None:
        """Append an instruction; `guard` is an i1 lane."""
        inst = Inst(opcode, operands, results, self.loc, tied_in=tied)
        if guard is not None:
            if guard.reg is None and not guard.off:
                return
            inst.guard = self.register(guard) if guard.reg is not None else None
        self.block.insts.append(inst)

    def reg(self, cls: str) -> Reg:
        """A fresh register, named after the value being lowered."""
        return Reg(cls, self.hint)

    def pure(self, opcode: str, dtype: Element, operands: list[Reg | Imm], uniform: int, cls: str = "") -> Lane:
        """The result of a pure instruction: an earlier one with the same operands, if it is visible here."""
        key = (opcode, *[(x.value, x.cls) if isinstance(x, Imm) else x for x in operands])
        found = self._known.get(key)
        if found is not None:
            if self._touched:
                self._touched[-1].add(key)
            return found if found.dtype is dtype else Lane(dtype, found.reg, uniform=found.uniform)
        reg = Reg(cls or register_class(dtype), self.hint)
        self.block.insts.append(Inst(opcode, [reg, *operands], 1, self.loc))
        lane = Lane(dtype, reg, uniform=uniform)
        self._known[key] = lane
        self._log.append(key)
        return lane

    def comment(self, text: str) -> None:
        """A line for the reader of the text."""
        self.block.insts.append(Comment(text))

    # -------------------------------------------------------------------------------------------------------- operands

    def operand(self, lane: Lane) -> Reg | Imm:
        """The lane as an operand: an immediate where one is allowed (not for predicates and narrow floats), else a register."""
        if lane.reg is None:
            dtype = lane.dtype
            if isinstance(dtype, DType) and dtype.kind == "float":
                if dtype.bits < 32:
                    return self.register(lane)
                return Imm(lane.off, "f32" if dtype.bits == 32 else "f64")
            if dtype is I1:
                return self.register(lane)
            return Imm(lane.off)
        if lane.part >= 0:
            return self._unpack(lane)
        return self._with_offset(lane) if lane.off else lane.reg

    def register(self, lane: Lane) -> Reg:
        """The lane in a register of its own."""
        if lane.reg is not None:
            if lane.part >= 0:
                return self._unpack(lane)
            return self._with_offset(lane) if lane.off else lane.reg
        cls = register_class(lane.dtype)
        kind = cls if cls in ("f32", "f64") else "int"
        value = -lane.off if cls == "pred" else lane.off
        found = self.pure(f"mov.{cls}", lane.dtype, [Imm(value, kind)], CTA, cls)
        assert found.reg is not None
        return found.reg

    def fresh(self, lane: Lane) -> Reg:
        """The lane copied into a register that nobody else has (for results that are written in place)."""
        cls = register_class(lane.dtype)
        reg = Reg(cls, self.hint)
        source = (
            self.operand(lane)
            if cls not in ("pred", "b16") or lane.reg is not None
            else Imm(-lane.off if cls == "pred" else lane.off)
        )
        self.block.insts.append(Inst(f"mov.{cls}", [reg, source], 1, self.loc))
        return reg

    def _with_offset(self, lane: Lane) -> Reg:
        assert lane.reg is not None
        name = "add.s32" if bits_of(lane.dtype) == 32 else "add.s64"
        off = wrap_int(lane.off, I32 if bits_of(lane.dtype) == 32 else I64)
        found = self.pure(name, lane.dtype, [lane.reg, Imm(off)], lane.uniform)
        assert found.reg is not None
        return found.reg

    def _unpack(self, lane: Lane) -> Reg:
        pack, part = lane.reg, lane.part
        assert pack is not None
        if bits_of(lane.dtype) == 16:
            key = ("half", pack, part)
            if key not in self._known:
                lo, hi = Reg("b16", self.hint), Reg("b16", self.hint)
                self.block.insts.append(Inst("mov.b32", [Vec([lo, hi]), pack], 1, self.loc))
                for i, half in enumerate((lo, hi)):
                    self.once(("half", pack, i), lambda half=half: Lane(U16, half))
            found = self.once(key, lambda: Lane(U16, None)).reg
            assert found is not None
            return found
        signed = isinstance(lane.dtype, DType) and lane.dtype.kind == "int"
        selector = (0x8880 if signed else 0x4440) | part * (0x1111 if signed else 1)
        wide = self.pure("prmt.b32", U32, [pack, Imm(0), Imm(selector)], lane.uniform)
        narrow = self.pure("cvt.u16.u32", U16, [self.register(wide)], lane.uniform)
        assert narrow.reg is not None
        return narrow.reg

    def pack(self, lanes: Tile) -> Reg | Imm:
        """Two 16-bit, four (or two) 8-bit elements as one 32-bit operand."""
        first = lanes[0]
        count = len(lanes)
        bits = bits_of(first.dtype)
        if (
            first.part == 0
            and first.reg is not None
            and all(x.reg is first.reg and x.part == i for i, x in enumerate(lanes))
        ):
            return first.reg
        if all(x.reg is None for x in lanes):
            mask = (1 << bits) - 1
            return Imm(sum((x.off & mask) << (bits * i) for i, x in enumerate(lanes)))
        regs = [self.register(x) for x in lanes]
        if bits == 16:
            return self._pair(regs[0], regs[1])
        if count == 2:
            return self.reg_of(self.pure("prmt.b32", U32, [self._pair(regs[0], regs[1]), Imm(0), Imm(0x4420)], LANE))
        even, odd = self._pair(regs[0], regs[2]), self._pair(regs[1], regs[3])
        return self.reg_of(self.pure("prmt.b32", U32, [even, odd, Imm(0x6240)], LANE))

    def packed(self, lanes: Tile) -> Reg:
        """As `pack`, in a register."""
        found = self.pack(lanes)
        return found if isinstance(found, Reg) else self.register(Lane(U32, None, found.value))

    def _pair(self, lo: Reg, hi: Reg) -> Reg:
        def make() -> Lane:
            reg = Reg("b32", self.hint)
            self.block.insts.append(Inst("mov.b32", [reg, Vec([lo, hi])], 1, self.loc))
            return Lane(U32, reg)

        return self.reg_of(self.once(("pair", lo, hi), make))

    def reg_of(self, lane: Lane) -> Reg:
        """The register of a lane that is one."""
        assert lane.reg is not None
        return lane.reg

    def address(self, space: str, lane: Lane) -> Addr:
        """A memory operand: register plus immediate."""
        if lane.reg is None:
            return Addr(self.register(lane))
        off = wrap_int(lane.off, I32 if space == "shared" else I64)
        if not -(1 << 31) <= off < 1 << 31:  # the immediate of an address is a signed 32-bit number
            return Addr(self.register(lane))
        return Addr(lane.reg, off)

    def const_zero(self, dtype: Element) -> Lane:
        """Zero of any type."""
        return Lane(dtype, None, 0, uniform=CTA)
