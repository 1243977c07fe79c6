"""`LaneBuilder` for PTX: the per-lane primitives as PTX instructions. How values are held is said in `builder_core`.

bf16 sums and products before sm_90 are fused multiply-adds by one (exact: the product with 1, and the sum with -0, are).
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.codegen.lane import CTA, LANE, WARP, Lane, Tile, bits_of, wrap_int
from mimw.codegen.machine import Addr, Imm, Inst, Operand, Reg, Sink, Special, Symbol, Vec
from mimw.codegen.ptx import builder_memory
from mimw.codegen.ptx.builder_core import Core
from mimw.codegen.ptx.opcodes import (
    CONVERSIONS,
    FLOAT_OPS,
    NORMALISED,
    OPCODES,
    PACKED,
    register_class,
    suffixes,
    type_name,
)
from mimw.diagnostics import InternalError
from mimw.ir.types import BF16, F16, F32, F64, I1, I32, U16, U32, U64, DType, Element, TensorDescType
from mimw.target import Target

FORMAT, PRINT_BUFFER = "_format_", "_print_values"
"""Names of the variables that printing needs: formats are numbered, the buffer of arguments is one a thread."""


class PtxBuilder(Core):
    """Makes PTX instructions at the end of `block`."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.params: list[tuple[str, Element | TensorDescType]] = []
        self.warp: Lane | None = None  # of the CTA, where the kernel's entry has found it already
        self.formats: dict[str, str] = {}
        self.print_bytes = 0
        self.has_bf16 = target.has("bf16_arith")

    # ------------------------------------------------------------------------------------------------------ arithmetic

    def supports(self, prim: str, dtype: DType) -> bool:
        if prim == "compare":
            return dtype.bits >= 16 and (dtype is not BF16 or self.has_bf16)
        return dtype.kind != "float" or (prim, dtype.name) in OPCODES

    def emit_op(self, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
        uniform = min(a.uniform for a in args)
        if dtype is I1:
            return self.pure(f"{prim}.pred", I1, [self.register(a) for a in args], uniform)
        name = dtype.name if isinstance(dtype, DType) else "u64"
        opcode = OPCODES.get((prim, name))
        if opcode is None:
            raise InternalError(f"PTX has no {prim} of {dtype}", self.loc)
        if dtype is BF16 and not self.has_bf16 and prim in ("add", "sub", "mul"):
            return self._bf16_by_fma(prim, args, uniform)
        if prim in ("shl", "shr"):
            operands = [self.operand(args[0]), self._count(args[1])]
        else:
            operands = [self.operand(a) for a in args]
        if isinstance(operands[0], Imm):
            operands[0] = self.register(args[0])
        if isinstance(dtype, DType) and dtype.bits == 8:
            return self._byte_op(prim, dtype, opcode, operands, uniform)
        return self.pure(opcode, dtype, operands, uniform)

    def _byte_op(self, prim: str, dtype: DType, opcode: str, operands: list[Reg | Imm], uniform: int) -> Lane:
        signed = dtype.kind == "int"
        if prim == "mulhi":
            low = self.pure(opcode.replace("hi", "lo"), dtype, operands, uniform)
            return self.pure("shr.s16" if signed else "shr.u16", dtype, [self.reg_of(low), Imm(8)], uniform)
        found = self.pure(opcode, dtype, operands, uniform)
        if prim not in NORMALISED:
            return found
        return self.pure("cvt.s16.s8" if signed else "cvt.u16.u8", dtype, [self.reg_of(found)], uniform)

    def _count(self, lane: Lane) -> Reg | Imm:
        """A shift count as u32; counts at or above the width stay there."""
        bits = bits_of(lane.dtype)
        if lane.reg is None:
            return Imm(min(lane.off & ((1 << bits) - 1), 64))
        if bits == 32:
            return self.operand(lane)
        if bits < 32:
            return self.reg_of(self.pure("cvt.u32.u16", U32, [self.register(lane)], lane.uniform))
        low = self.pure("min.u64", lane.dtype, [self.register(lane), Imm(64)], lane.uniform)
        return self.reg_of(self.pure("cvt.u32.u64", U32, [self.reg_of(low)], lane.uniform))

    def _bf16_by_fma(self, prim: str, args: tuple[Lane, ...], uniform: int) -> Lane:
        a, b = (self.register(x) for x in args)
        one, minus_one, minus_zero = (self.register(Lane(BF16, None, x)) for x in (0x3F80, 0xBF80, 0x8000))
        operands: list[Reg | Imm] = [*{"add": [a, one, b], "sub": [b, minus_one, a], "mul": [a, b, minus_zero]}[prim]]
        return self.pure("fma.rn.bf16", BF16, operands, uniform)

    def packs(self, prim: str, dtype: DType) -> bool:
        return prim in PACKED and (dtype is F16 or dtype is BF16)

    def packed_op(self, prim: str, dtype: DType, args: Sequence[tuple[Lane, Lane]]) -> tuple[Lane, Lane]:
        uniform = min(min(a.uniform, b.uniform) for a, b in args)
        regs: list[Reg | Imm] = [*(self.packed(pair) for pair in args)]
        opcode = FLOAT_OPS[prim].replace("{f}", dtype.name + "x2")
        if dtype is BF16 and not self.has_bf16 and prim in ("add", "sub", "mul"):
            one, minus_one, minus_zero = (self.register(Lane(U32, None, x * 0x10001)) for x in (0x3F80, 0xBF80, 0x8000))
            by_fma: dict[str, list[Reg | Imm]] = {
                "add": [regs[0], one, regs[-1]],
                "sub": [regs[-1], minus_one, regs[0]],
                "mul": [*regs, minus_zero],
            }
            regs = by_fma[prim]
            opcode = "fma.rn.bf16x2"
        return self.halves(self.reg_of(self.pure(opcode, U32, regs, uniform)), dtype, uniform)

    def halves(self, pack: Reg, dtype: Element, uniform: int = LANE) -> tuple[Lane, Lane]:
        """The two 16-bit elements of a packed register."""
        return Lane(dtype, pack, 0, 0, uniform), Lane(dtype, pack, 0, 1, uniform)

    def emit_compare(self, how: str, a: Lane, b: Lane) -> Lane:
        dtype = a.dtype
        uniform = min(a.uniform, b.uniform)
        if dtype is I1:
            return self._compare_bool(how, a, b)
        if isinstance(dtype, DType) and dtype.kind == "float":
            name = "neu" if how == "ne" else how
            suffix = dtype.name
        else:
            name, suffix = how, suffixes(dtype)[0]
        x, y = self.operand(a), self.operand(b)
        if isinstance(x, Imm):
            x = self.register(a)
        return self.pure(f"setp.{name}.{suffix}", I1, [x, y], uniform)

    def _compare_bool(self, how: str, a: Lane, b: Lane) -> Lane:
        if how in ("gt", "ge"):
            a, b = b, a
        if how in ("eq", "ne"):
            different = self.op("xor", I1, a, b)
            return different if how == "ne" else self.invert(different)
        return self.op("and" if how in ("lt", "gt") else "or", I1, self.invert(a), b)

    def emit_select(self, cond: Lane, a: Lane, b: Lane) -> Lane:
        dtype = a.dtype
        uniform = min(cond.uniform, a.uniform, b.uniform)
        if dtype is I1:
            yes = self.op("and", I1, cond, a)
            no = self.op("and", I1, self.invert(cond), b)
            return self.op("or", I1, yes, no)
        cls = register_class(dtype)
        operands = [self.operand(a), self.operand(b), self.register(cond)]
        return self.pure(f"selp.{cls}", dtype, operands, uniform, cls)

    # ----------------------------------------------------------------------------------------------------- conversions

    def converts(self, how: str, source: Element, to: Element) -> bool:
        return (how, type_name(source), type_name(to)) in CONVERSIONS

    def convert(self, how: str, lane: Lane, to: DType) -> Lane:
        opcode = CONVERSIONS[how, type_name(lane.dtype), type_name(to)]
        return self.pure(opcode, to, [self.register(lane)], lane.uniform)

    def convert_pair(self, how: str, lo: Lane, hi: Lane, to: DType) -> tuple[Lane, Lane] | None:
        source = lo.dtype
        uniform = min(lo.uniform, hi.uniform)
        if source is F32 and (to is F16 or to is BF16) and how in ("rn", "rz"):
            opcode = f"cvt.{how}.{to.name}x2.f32"
            pair = self.pure(opcode, U32, [self.operand(hi), self.operand(lo)], uniform)
            return self.halves(self.reg_of(pair), to, uniform)
        return None

    def makes_fp8(self, dtype: DType) -> bool:
        return self.target.has("fp8_cvt") and not dtype.fnuz

    def reads_fp8(self, dtype: DType) -> bool:
        return self.makes_fp8(dtype)

    def bf16_to_f32(self, lane: Lane) -> Lane:
        assert lane.reg is not None
        if lane.part == 0:
            return self.pure("shl.b32", F32, [lane.reg, Imm(16)], lane.uniform)
        if lane.part == 1:
            return self.pure("and.b32", F32, [lane.reg, Imm(-65536)], lane.uniform)
        word = self._pair(self.register(Lane(U16, None, 0)), self.register(lane))
        return self.pure("mov.b32", F32, [word], lane.uniform)

    def bytes_from_f32(self, lanes: Tile, to: DType) -> list[Lane]:
        """Two or four f32 as packed saturated 8-bit floats (targets with `fp8_cvt`)."""
        opcode = f"cvt.rn.satfinite.{to.name[2:]}x2.f32"
        pairs: list[Reg] = []
        for lo, hi in zip(lanes[::2], lanes[1::2], strict=True):
            pairs.append(self.reg_of(self.pure(opcode, U16, [self.operand(hi), self.operand(lo)], LANE)))
        zero = self.register(Lane(U16, None, 0)) if len(pairs) == 1 else pairs[1]
        word = self._pair(pairs[0], zero)
        return [Lane(to, word, 0, i) for i in range(len(lanes))]

    def halves_from_bytes(self, lo: Lane, hi: Lane) -> tuple[Lane, Lane]:
        """Two 8-bit floats as packed f16, exactly (targets with `fp8_cvt`)."""
        assert isinstance(lo.dtype, DType)
        word = self.packed((lo, hi)) if not _same_half(lo, hi) else None
        if word is None:
            assert lo.reg is not None
            pair = self.register(Lane(U16, lo.reg, 0, lo.part // 2))
        else:
            pair = self.reg_of(self.pure("cvt.u16.u32", U16, [word], LANE))
        wide = self.pure(f"cvt.rn.f16x2.{lo.dtype.name[2:]}x2", U32, [pair], LANE)
        return self.halves(self.reg_of(wide), F16)

    def upper_bytes(self, lo: Lane, hi: Lane) -> Lane:
        if lo.reg is not None and lo.reg is hi.reg and lo.part >= 0:
            return self.pure("prmt.b32", U32, [lo.reg, Imm(0), Imm(0x0404 | lo.part << 4 | hi.part << 12)], LANE)
        word = self._pair(self.register(lo), self.register(hi))
        return self.pure("prmt.b32", U32, [word, Imm(0), Imm(0x2404)], LANE)

    def round_to_tf32(self, lanes: Tile) -> list[Lane]:
        # ptxas takes no .f32 register for the result: tf32 is a bit pattern.
        rounded = [self.pure("cvt.rna.tf32.f32", U32, [self.operand(x)], x.uniform) for x in lanes]
        return [self.bitcast(x, F32) for x in rounded]

    def bitcast(self, lane: Lane, to: Element) -> Lane:
        source = lane.dtype
        if register_class(source) == register_class(to) or lane.part >= 0 or lane.reg is None:
            if lane.reg is None:
                return self._bitcast_constant(lane, to)
            if bits_of(to) == 8 and lane.part < 0:
                return self._bitcast_byte(lane, to)
            keeps = lane.off == 0 or bits_of(to) >= 32
            if not keeps:
                lane = Lane(source, self.register(lane), uniform=lane.uniform)
            return Lane(to, lane.reg, lane.off, lane.part, lane.uniform)
        width = bits_of(to)
        return self.pure(f"mov.b{width}", to, [self.register(lane)], lane.uniform, register_class(to))

    def _bitcast_byte(self, lane: Lane, to: Element) -> Lane:
        """8-bit values are held extended by their own rule; the new type's may differ."""
        signed = isinstance(to, DType) and to.kind == "int"
        return self.pure("cvt.s16.s8" if signed else "cvt.u16.u8", to, [self.register(lane)], lane.uniform)

    def _bitcast_constant(self, lane: Lane, to: Element) -> Lane:
        bits = lane.off & ((1 << bits_of(lane.dtype)) - 1)
        is_float = isinstance(to, DType) and to.kind == "float"
        return Lane(to, None, bits if is_float else wrap_int(bits, to), uniform=lane.uniform)

    def widen(self, lane: Lane, to: Element) -> Lane:
        if lane.reg is None:
            return self.const(to, lane.off)
        assert isinstance(lane.dtype, DType)
        if bits_of(lane.dtype) == 64:
            return Lane(to, lane.reg, lane.off, uniform=lane.uniform)
        sign = "s" if lane.dtype.kind == "int" else "u"
        bits = max(16, lane.dtype.bits)
        return self.pure(f"cvt.{sign}64.{sign}{bits}", to, [self.register(lane)], lane.uniform)

    def widen_scaled(self, lane: Lane, to: Element, scale: int) -> Lane:
        """A 32-bit integer extended to 64 bits and multiplied, in one instruction."""
        assert isinstance(lane.dtype, DType)
        sign = "s" if lane.dtype.kind == "int" else "u"
        return self.pure(f"mul.wide.{sign}32", to, [self.register(lane), Imm(scale)], lane.uniform)

    # ---------------------------------------------------------------------------------------------- indices, arguments

    def _special(self, name: str, uniform: int) -> Lane:
        def make() -> Lane:
            reg = Reg("b32", name.removeprefix("%").replace(".x", "").replace(".", "_"))
            self.block.insts.append(Inst("mov.u32", [reg, Special(name)], 1, self.loc))
            return Lane(I32, reg, uniform=uniform)

        return self.once(("special", name), make)

    def thread_id(self) -> Lane:
        return self._from_first(self._special("%tid.x", LANE), 32)

    def uniform_warp_id(self) -> Lane:
        if self.task_warps == 1:
            return self.const(I32, 0)
        return self._from_first(self.cta_warp_id(), 1)

    def cta_warp_id(self) -> Lane:
        """Index of the warp in the CTA, i32, known to be one in the warp."""
        if self.warp is not None:
            return self.warp
        warp = self.shift(Lane(U32, self._special("%tid.x", LANE).reg), -5)
        return self.pure("shfl.sync.idx.b32", I32, [self.register(warp), Imm(0), Imm(31), Imm(-1)], WARP)

    def _from_first(self, lane: Lane, threads: int) -> Lane:
        """An index of the CTA as one of the task."""
        if not self.first_warp or lane.reg is None:
            return lane
        return self.pure("sub.s32", I32, [lane.reg, Imm(threads * self.first_warp)], lane.uniform)

    def program_id(self, axis: int) -> Lane:
        return self._special("%ctaid." + "xyz"[axis], CTA)

    def num_programs(self, axis: int) -> Lane:
        return self._special("%nctaid." + "xyz"[axis], CTA)

    def argument(self, index: int) -> Lane:
        name, dtype = self.params[index]
        self.hint = name.removeprefix("p_")
        if isinstance(dtype, TensorDescType):
            place, generic = self.reg("b64"), self.reg("b64")
            self.emit("mov.b64", [place, Symbol(name)], 1)
            self.emit("cvta.param.u64", [generic, place], 1)
            return Lane(U64, generic, uniform=CTA)
        memory = bits_of(dtype)
        if dtype is I1 or memory == 8:
            signed = isinstance(dtype, DType) and dtype.kind == "int"
            reg = self.reg("b16")
            self.emit(f"ld.param.{'s' if signed else 'u'}8", [reg, Addr(Symbol(name))], 1)
            if dtype is I1:
                return self.pure("setp.ne.u16", I1, [reg, Imm(0)], CTA)
            return Lane(dtype, reg, uniform=CTA)
        cls = register_class(dtype)
        reg = self.reg(cls)
        self.emit(f"ld.param.{cls}", [reg, Addr(Symbol(name))], 1)
        return Lane(dtype, reg, uniform=CTA)

    # ---------------------------------------------------------------------------------------------- operands of mma, wgmma

    def bits_register(self, lane: Lane) -> Reg:
        """A 32-bit value in an untyped register (matrix operands are untyped); f64 stays itself."""
        if lane.dtype is F64:
            return self.register(lane)
        if lane.reg is not None and lane.reg.cls == "b32" and not lane.off:
            return lane.reg
        return self.register(self.bitcast(lane, U32))

    def pair64(self, low: Reg, high: int) -> Reg:
        """A 64-bit register from a word and a constant high word."""

        def make() -> Lane:
            reg = Reg("b64", "desc")
            self.block.insts.append(
                Inst("mov.b64", [reg, Vec([low, self.register(Lane(U32, None, high))])], 1, self.loc)
            )
            return Lane(U64, reg)

        return self.reg_of(self.once(("pair64", low, high), make))

    # -------------------------------------------------------------------------------------------------------- shuffles

    def shuffle_xor(self, lane: Lane, mask: int) -> Lane:
        return self._shuffle("bfly", lane, Imm(mask))

    def shuffle_from(self, lane: Lane, source: Lane) -> Lane:
        return self._shuffle("idx", lane, self.operand(source))

    def _shuffle(self, mode: str, lane: Lane, select: Reg | Imm) -> Lane:
        dtype = lane.dtype
        if lane.reg is None:
            return lane
        bits = bits_of(dtype)
        if dtype is I1:
            word = self.select(lane, self.const(U32, 1), self.const(U32, 0))
            return self.compare("ne", self._shuffle(mode, word, select), self.const(U32, 0))
        if bits == 64:
            return self._shuffle_wide(mode, lane, select)
        reg = self.register(lane)
        if bits < 32:
            reg = self.reg_of(self.pure("cvt.u32.u16", U32, [reg], LANE))
        moved = self.shuffle_word(mode, reg, select, "f32" if dtype is F32 else "b32")
        if bits < 32:
            return self.pure("cvt.u16.u32", dtype, [moved], LANE)
        return Lane(dtype, moved)

    def shuffle_word(self, mode: str, word: Reg, select: Reg | Imm, cls: str = "b32") -> Reg:
        """One 32-bit register, packed or not. All lanes take part, and lane numbers count over the whole warp (clamp 31)."""
        out = self.reg(cls)
        self.emit(f"shfl.sync.{mode}.b32", [out, word, select, Imm(31), Imm(-1)], 1)
        return out

    def _shuffle_wide(self, mode: str, lane: Lane, select: Reg | Imm) -> Lane:
        lo, hi = self.reg("b32"), self.reg("b32")
        self.emit("mov.b64", [Vec([lo, hi]), self.register(lane)], 1)
        halves = [self.shuffle_word(mode, half, select) for half in (lo, hi)]
        out = self.reg(register_class(lane.dtype))
        self.emit("mov.b64", [out, Vec([*halves])], 1)
        return Lane(lane.dtype, out)

    # ---------------------------------------------------------------------------------------------------------- memory

    def load(
        self,
        space: str,
        dtype: Element,
        address: Lane,
        count: int,
        guard: Lane | None,
        other: Tile | None,
        how: str = "",
    ) -> list[Lane]:
        return builder_memory.load(self, space, dtype, address, count, guard, other, how)

    def store(self, space: str, address: Lane, values: Tile, guard: Lane | None, how: str = "") -> None:
        builder_memory.store(self, space, address, values, guard, how)

    def shared_base(self) -> Lane:
        def make() -> Lane:
            reg = Reg("b32", "smem")
            self.block.insts.append(Inst("mov.u32", [reg, Symbol("smem")], 1, self.loc))
            return Lane(U32, reg, uniform=CTA)

        return self.once(("smem",), make)

    def barrier(self) -> None:
        if not self.task_warps:
            self.emit("bar.sync", [Imm(0)])
        elif self.task_warps == 1:
            self.warp_barrier()
        else:
            self.emit("bar.sync", [Imm(self.sync_id), Imm(32 * self.task_warps)])

    def warp_barrier(self) -> None:
        self.emit("bar.warp.sync", [Imm(-1)])

    def word(self, lanes: Tile) -> Reg | Imm:
        return self.pack(lanes)

    def word_lane(self, lanes: Tile) -> Lane:
        if len(lanes) > 1:
            return Lane(U32, self.packed(lanes))
        if lanes[0].reg is None:
            return self.const(U32, lanes[0].off & ((1 << bits_of(lanes[0].dtype)) - 1))
        return self.pure("cvt.u32.u16", U32, [self.register(lanes[0])], LANE)

    def unword(self, word: Lane, dtype: Element, count: int) -> list[Lane]:
        if count > 1:
            reg = self.register(word)
            return [Lane(dtype, reg, 0, i) for i in range(count)]
        narrow = self.pure("cvt.u16.u32", dtype, [self.register(word)], LANE)
        if bits_of(dtype) == 8:
            signed = isinstance(dtype, DType) and dtype.kind == "int"
            return [self.pure("cvt.s16.s8" if signed else "cvt.u16.u8", dtype, [self.reg_of(narrow)], LANE)]
        return [narrow]

    def print_text(self, text: str, values: Tile, guard: Lane | None) -> None:
        """vprintf with a buffer in local memory, laid out as C lays out variable arguments."""
        if guard is not None and guard.reg is None and not guard.off:
            return
        name = self.formats.setdefault(text, f"{FORMAT}{len(self.formats)}")
        at = 0
        for value in values:
            size = bits_of(value.dtype) // 8
            at = -(-at // size) * size
            cls = register_class(value.dtype)
            self.emit(f"st.local.{cls}", [Addr(Symbol(PRINT_BUFFER), at), self.register(value)])
            at += size
        self.print_bytes = max(self.print_bytes, at, 8)
        arguments: list[Operand] = [self._generic("global", name), self._generic("local", PRINT_BUFFER)]
        self.emit("call", [Sink(), Symbol("vprintf"), *arguments], 1, guard)

    def _generic(self, space: str, symbol: str) -> Reg:
        """The generic address of a variable."""

        def make() -> Lane:
            own, generic = Reg("b64", "variable"), Reg("b64", "generic")
            self.block.insts.append(Inst("mov.u64", [own, Symbol(symbol)], 1, self.loc))
            self.block.insts.append(Inst(f"cvta.{space}.u64", [generic, own], 1, self.loc))
            return Lane(U64, generic, uniform=CTA if space == "global" else LANE)

        return self.reg_of(self.once(("generic", space, symbol), make))

    def trap(self, guard: Lane | None, text: str) -> None:
        self.comment(text)
        self.emit("trap", [], 0, guard)

    def parameter(self, dtype: Element, uniform: int = LANE) -> Reg:
        del uniform
        return Reg(register_class(dtype), self.hint)

    def jump_argument(self, lane: Lane, parameter: Reg) -> Reg | Imm:
        del parameter
        if lane.reg is not None:
            return self.register(lane)
        if lane.dtype is I1:
            return Imm(-lane.off)
        if isinstance(lane.dtype, DType) and lane.dtype.kind == "float" and lane.dtype.bits >= 32:
            return Imm(lane.off, lane.dtype.name)
        return Imm(lane.off)

    def any_lane(self, cond: Lane) -> Lane:
        return cond


def _same_half(lo: Lane, hi: Lane) -> bool:
    return lo.reg is not None and lo.reg is hi.reg and lo.part >= 0 and lo.part % 2 == 0 and hi.part == lo.part + 1
