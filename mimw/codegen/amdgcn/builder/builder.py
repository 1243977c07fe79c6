"""`LaneBuilder` for AMDGCN: which unit and sequence does each primitive. How values are held is said in `builder.core`.

Assumes a kernel's entry state: s[0:1] the argument buffer, workgroup ids from s2 on, v0 the thread's index. All lanes are active all the
time; only memory accesses are guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mimw.codegen.amdgcn.builder import conversions, floats, memory, printing, shuffles
from mimw.codegen.amdgcn.builder.core import Core, is_scalar, signed32, signed64
from mimw.codegen.amdgcn.builder.integers import compare_integers, integer_op
from mimw.codegen.amdgcn.builder.opcodes import FLOAT, SEQUENCES, is_float, is_signed, lives_in_scalars, register_class
from mimw.codegen.amdgcn.builder.wide import wide_product_of_words
from mimw.codegen.lane import CTA, LANE, WARP, Lane, Tile, bits_of, wrap_int
from mimw.codegen.machine import Imm, Inst, Reg, Symbol
from mimw.diagnostics import InternalError
from mimw.ir.types import BF16, F32, I1, I32, I64, U32, U64, DType, Element, TensorDescType
from mimw.target import Target

HIDDEN_GRID = ("hidden_block_count_x", "hidden_block_count_y", "hidden_block_count_z")
"""The kernel arguments that the runtime fills with the size of the grid, u32."""


class AmdgcnBuilder(Core):
    """Makes AMDGCN instructions at the end of `block`.

    Of the task that is being lowered: `first_warp` of its waves, `meet`, how they wait for each other (None: they are all waves of the
    workgroup). `named_words`: where the words of named barriers lie in shared memory, `rooms`: where the descriptors of
    each room do. `hidden`: byte of each argument that the user does not give, `texts`: those that are printed, by number. `mark`: the byte of shared memory
    where waves that end early say so (`lower/watch`).
    """

    branches_diverge = False
    steps_in_registers = True

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.params: list[tuple[str, Element | TensorDescType, int]] = []
        self.hidden: dict[str, int] = {}
        self.texts: dict[str, int] = {}
        self.mark: int | None = None
        self.grid_offset = 0
        self.uses_grid = False
        self.workgroup_ids = "x"
        self._entries: dict[str, Lane] = {}
        self._late: list[Callable[[], None]] = []
        self._copies = 0
        self.first_warp = 0
        self.named_words: Lane | None = None
        self.rooms: dict[int, int] = {}
        self.meet: Callable[[], None] | None = None

    # ------------------------------------------------------------------------------------------------------ arithmetic

    def supports(self, prim: str, dtype: DType) -> bool:
        if prim == "compare":
            return dtype.kind != "float" or (dtype.bits >= 16 and dtype is not BF16)
        return dtype.kind != "float" or prim in FLOAT.get(dtype.name, ()) or prim in SEQUENCES.get(dtype.name, ())

    def emit_op(self, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
        if dtype is I1:
            return self._mask_op(prim, args)
        if isinstance(dtype, DType) and is_float(dtype):
            return floats.float_op(self, prim, dtype, args)
        return integer_op(self, prim, dtype, args)

    def _mask_op(self, prim: str, args: tuple[Lane, ...]) -> Lane:
        uniform = min(a.uniform for a in args)
        return self.pure(f"s_{prim}_b64", I1, [self.source(a) for a in args], uniform, "mask")

    def packs(self, prim: str, dtype: DType) -> bool:
        return floats.packs(prim, dtype)

    def packed_op(self, prim: str, dtype: DType, args: Sequence[tuple[Lane, Lane]]) -> tuple[Lane, Lane]:
        return floats.packed_op(self, prim, dtype, args)

    def emit_compare(self, how: str, a: Lane, b: Lane) -> Lane:
        dtype = a.dtype
        if dtype is I1:
            return self._compare_bool(how, a, b)
        if isinstance(dtype, DType) and is_float(dtype):
            name = {"ne": "neq", "nan": "u"}.get(how, how)
            return self.valu(f"v_cmp_{name}_{dtype.name}", I1, a, b)
        return compare_integers(self, how, a, b)

    def _compare_bool(self, how: str, a: Lane, b: Lane) -> Lane:
        if how in ("gt", "ge"):
            a, b = b, a
        if how in ("eq", "ne"):
            different = self.op("xor", I1, a, b)
            return different if how == "ne" else self.invert(different)
        return self.op("and" if how in ("lt", "gt") else "or", I1, self.invert(a), b)

    def emit_select(self, cond: Lane, a: Lane, b: Lane) -> Lane:
        dtype = a.dtype
        if dtype is I1:
            yes = self.op("and", I1, cond, a)
            no = self.op("and", I1, self.invert(cond), b)
            return self.op("or", I1, yes, no)
        if min(cond.uniform, a.uniform, b.uniform) > LANE and lives_in_scalars(dtype):
            name = "p_select_b64" if bits_of(dtype) == 64 else "p_select_b32"
            return self.salu(name, dtype, *self._select_sources(a, b), self.register(cond))
        if bits_of(dtype) == 64:
            (a0, a1), (b0, b1) = self.words(a), self.words(b)
            return self.wide(self._select_word(U32, cond, a0, b0), self._select_word(U32, cond, a1, b1), dtype)
        return self._select_word(dtype, cond, a, b)

    def _select_sources(self, a: Lane, b: Lane) -> tuple[Lane, Lane]:
        """Scalar sources, of which at most one literal and none of 64 bits."""
        wide = bits_of(a.dtype) == 64
        if wide or (a.reg is None and b.reg is None):
            a, b = (
                Lane(x.dtype, self.scalar_register(x), uniform=CTA)
                if x.reg is None and not -16 <= (signed64 if wide else signed32)(x.off) <= 64
                else x
                for x in (a, b)
            )
        return a, b

    def _select_word(self, dtype: Element, cond: Lane, a: Lane, b: Lane) -> Lane:
        return self.valu(
            "v_cndmask_b32", dtype, b, a, self.register(cond), uniform=min(cond.uniform, a.uniform, b.uniform)
        )

    def any_lane(self, cond: Lane) -> Lane:
        """Whether an i1 is true in any lane of the warp, as a value that is one in the warp."""
        if cond.reg is None or cond.uniform > LANE:
            return cond
        return self.pure("p_cmp_lg_u64", I1, [cond.reg, Imm(0)], WARP, "mask")

    # ----------------------------------------------------------------------------------------------------- conversions

    def converts(self, how: str, source: Element, to: Element) -> bool:
        return conversions.converts(self, how, source, to)

    def convert(self, how: str, lane: Lane, to: DType) -> Lane:
        return conversions.convert(self, how, lane, to)

    def convert_pair(self, how: str, lo: Lane, hi: Lane, to: DType) -> tuple[Lane, Lane] | None:
        return conversions.convert_pair(self, how, lo, hi, to)

    def makes_fp8(self, dtype: DType) -> bool:
        return self.reads_fp8(dtype) or not dtype.fnuz

    def reads_fp8(self, dtype: DType) -> bool:
        return self.target.has("fp8_fnuz" if dtype.fnuz else "fp8_ocp")

    def bytes_from_f32(self, lanes: Tile, to: DType) -> list[Lane]:
        return conversions.bytes_from_f32(self, lanes, to)

    def halves_from_bytes(self, lo: Lane, hi: Lane) -> tuple[Lane, Lane]:
        return conversions.halves_from_bytes(self, lo, hi)

    def floats_from_bytes(self, lo: Lane, hi: Lane) -> tuple[Lane, Lane] | None:
        return conversions.floats_from_bytes(self, lo, hi)

    def upper_bytes(self, lo: Lane, hi: Lane) -> Lane:
        zero = Lane(lo.dtype, None)
        return Lane(U32, self.packed([zero, lo, zero, hi]), uniform=min(lo.uniform, hi.uniform))

    def shift_below_signs(self, word: Lane) -> Lane:
        return self.bit_and(self.valu("v_pk_ashrrev_i16", U32, Imm(0x00010001), word), 0xBFFFBFFF)

    def bf16_to_f32(self, lane: Lane) -> Lane:
        reg = self.reg_of(lane)
        word = Lane(U32, reg, uniform=lane.uniform)
        if lane.part == 1:
            return self.valu("v_and_b32", F32, Imm(-65536), word)
        return self.valu("v_lshlrev_b32", F32, Imm(16), word)

    def round_to_tf32(self, lanes: Tile) -> list[Lane]:
        out: list[Lane] = []
        for x in lanes:
            bits = Lane(U32, self.vector(x))
            rounded = self.bit_and(self.valu("v_add_u32", U32, Imm(0x1000), bits), 0xFFFFE000)
            kept = self.select(self.compare("nan", x, x), bits, rounded)
            out.append(Lane(F32, kept.reg, uniform=x.uniform))
        return out

    def bitcast(self, lane: Lane, to: Element) -> Lane:
        if lane.reg is None:
            bits = lane.off & ((1 << bits_of(lane.dtype)) - 1)
            return Lane(to, None, bits if is_float(to) else wrap_int(bits, to), uniform=lane.uniform)
        if lane.part >= 0:
            return Lane(to, lane.reg, lane.off, lane.part, lane.uniform)
        if is_float(to) or bits_of(to) >= 32:
            if lane.off and is_float(to):
                lane = Lane(lane.dtype, self.register(lane), uniform=lane.uniform)
            return Lane(to, lane.reg, lane.off, uniform=lane.uniform)
        if not is_float(lane.dtype) and is_signed(lane.dtype) == is_signed(to):
            return Lane(to, lane.reg, uniform=lane.uniform)
        bits = bits_of(to)
        if is_signed(to):
            return self.valu("v_bfe_i32", to, lane, Imm(0), Imm(bits))
        return self.valu("v_and_b32", to, Imm((1 << bits) - 1), lane)

    def widen(self, lane: Lane, to: Element) -> Lane:
        if lane.reg is None:
            return self.const(to, lane.off)
        if bits_of(lane.dtype) == 64:
            return Lane(to, lane.reg, lane.off, uniform=lane.uniform)
        signed = is_signed(lane.dtype)
        low = Lane(I32 if signed else U32, self.register(lane), uniform=lane.uniform)
        high = self.op("shr", I32, low, self.const(I32, 31)) if signed else self.const(U32, 0)
        return self.wide(low, high, to)

    def widen_scaled(self, lane: Lane, to: Element, scale: int) -> Lane:
        """A 32-bit integer extended to 64 bits and multiplied, in one instruction of the vector unit."""
        source = Lane(lane.dtype, self.register(lane), uniform=lane.uniform)
        if lane.uniform > LANE:
            return self.op("mul", to, self.widen(source, to), self.const(to, scale))
        return wide_product_of_words(self, to, source, self.const(U32, scale), signed=is_signed(lane.dtype))

    def point(self, base: Lane, offset: Lane, scale: int, reach: int) -> Lane:
        return memory.point(self, base, offset, scale, reach)

    # ---------------------------------------------------------------------------------------------- indices, arguments

    def entry_register(self, name: str, cls: str, dtype: Element, uniform: int, hint: str) -> Lane:
        """What a physical register holds when the wave starts."""

        found = self._entries.get(name)
        if found is None:
            reg = Reg(cls, hint)
            self.entry.insts.insert(len(self._entries), Inst("p_entry", [reg, Symbol(name)], 1))
            found = self._entries[name] = Lane(dtype, reg, uniform=uniform)
        return found

    def thread_id(self) -> Lane:
        whole = self.entry_register("v0", "v32", I32, LANE, "tid")
        if not self.first_warp:
            return whole
        return Lane(I32, self.vector(self.plus(whole, -64 * self.first_warp)))

    def uniform_warp_id(self) -> Lane:
        def make() -> Lane:
            warp = self.valu("v_lshrrev_b32", U32, Imm(6), self.thread_id())
            return self.pure("v_readfirstlane_b32", I32, [self.vector(warp)], WARP, "s32")

        return self.once(("warp", self.first_warp), make)

    def program_id(self, axis: int) -> Lane:
        if "xyz"[axis] not in self.workgroup_ids:
            raise InternalError(f"the kernel does not get its workgroup id {'xyz'[axis]}", self.loc)
        return self.entry_register(
            f"s{2 + self.workgroup_ids.index('xyz'[axis])}", "s32", I32, CTA, "pid_" + "xyz"[axis]
        )

    def num_programs(self, axis: int) -> Lane:
        self.uses_grid = True

        def make() -> Lane:
            return Lane(I32, self.load_argument("s32", self.grid_offset + 4 * axis), uniform=CTA)

        return self.once(("grid", axis), make)

    def load_argument(self, cls: str, offset: int) -> Reg:
        """32 or 64 bits of the kernel's arguments."""
        buffer = self.entry_register("s[0:1]", "s64", I64, CTA, "arguments")
        name = "s_load_dwordx2" if cls == "s64" else "s_load_dword"
        return self.reg_of(self.pure(name, I64, [self.reg_of(buffer), Imm(offset)], CTA, cls))

    def argument(self, index: int) -> Lane:
        name, dtype, offset = self.params[index]
        if isinstance(dtype, TensorDescType):
            raise InternalError(f"the descriptor {name} is no single value", self.loc)
        self.hint = name
        bits = bits_of(dtype) if dtype is not I1 else 8
        if bits >= 32:
            return Lane(dtype, self.load_argument(f"s{bits}", offset), uniform=CTA)
        word = Lane(U32, self.load_argument("s32", offset & ~3), uniform=CTA)
        field = self.salu(
            "s_bfe_i32" if is_signed(dtype) else "s_bfe_u32", U32, word, Imm(bits << 16 | 8 * (offset & 3))
        )
        if dtype is I1:
            return self.compare("ne", field, self.const(U32, 0))
        return Lane(dtype, field.reg, uniform=CTA)

    # -------------------------------------------------------------------------------------------------- shuffles, memory

    def shuffle_xor(self, lane: Lane, mask: int) -> Lane:
        return shuffles.shuffle_xor(self, lane, mask)

    def shuffle_from(self, lane: Lane, source: Lane) -> Lane:
        return shuffles.shuffle_from(self, lane, source)

    def partners(self, lane: Lane, mask: int, same: int) -> tuple[Lane, Lane]:
        return shuffles.partners(self, lane, mask, same)

    def shuffle_step(self, lane: Lane, clear: int, set_bits: int, guard: tuple[int, int], lane_index: Lane) -> Lane:
        found = shuffles.shuffle_step(self, lane, clear, set_bits, guard)
        return found if found is not None else super().shuffle_step(lane, clear, set_bits, guard, lane_index)

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
        return memory.load(self, space, dtype, address, count, guard, other, how)

    def store(self, space: str, address: Lane, values: Tile, guard: Lane | None, how: str = "") -> None:
        memory.store(self, space, address, values, guard, how)

    def shared_base(self) -> Lane:
        return self.const(U32, 0)

    def barrier(self) -> None:
        self.finish_copies()
        if self.meet is not None:
            self.meet()
        else:
            self.emit("s_barrier", [])

    def put_off(self, store: Callable[[], None]) -> None:
        """The second half of a copy, to be done where the block ends or at a barrier or wait: until then its loads are under way."""
        self._late.append(store)

    def hold_copies(self) -> list[Callable[[], None]]:
        """What was put off, taken off the list: a branch and its join may stand between, if the caller puts it off again behind them."""
        late, self._late = self._late, []
        return late

    def next_copy(self) -> int:
        """A number for a copy that is waited for by itself."""
        self._copies += 1
        return self._copies

    def finish_copies(self) -> None:
        """Do what was put off."""
        late, self._late = self._late, []
        for store in late:
            store()

    def close_block(self) -> None:
        self.finish_copies()

    def warp_barrier(self) -> None:
        """A wave runs in lock step, and its accesses to shared memory are done in order."""

    # ------------------------------------------------------------------------------------------------------ the rest

    def word(self, lanes: Tile) -> Reg | Imm:
        found = self.pack(lanes)
        return self.packed(lanes) if is_scalar(found) else found

    def word_lane(self, lanes: Tile) -> Lane:
        if len(lanes) > 1:
            return Lane(U32, self.packed(lanes))
        lane = lanes[0]
        bits = bits_of(lane.dtype)
        if lane.reg is None:
            return self.const(U32, lane.off & ((1 << bits) - 1))
        return Lane(U32, self.vector(lane))

    def unword(self, word: Lane, dtype: Element, count: int) -> list[Lane]:
        reg = self.vector(word)
        if count > 1:
            return [Lane(dtype, reg, 0, i) for i in range(count)]
        return [Lane(dtype, reg)]

    def print_text(self, text: str, values: Tile, guard: Lane | None) -> None:
        printing.print_text(self, text, values, guard)

    def trap(self, guard: Lane | None, text: str) -> None:
        self.comment(text)
        printing.count_failure(self, guard)

    def descriptor_words(self, rank: int) -> list[Element]:
        """The fields themselves: address, whether the padding is NaN, sizes, strides in bytes but for the last."""
        return [U64, I1, *[I32] * rank, *[U64] * (rank - 1)]

    def parameter(self, dtype: Element, uniform: int = LANE) -> Reg:
        return Reg(register_class(dtype, uniform > LANE and lives_in_scalars(dtype)), self.hint)

    def jump_argument(self, lane: Lane, parameter: Reg) -> Reg | Imm:
        if lane.reg is None:
            wrap = signed64 if bits_of(lane.dtype) == 64 else signed32
            return Imm(-lane.off if lane.dtype is I1 else wrap(lane.off))
        if parameter.cls == "mask":
            return self.register(lane)
        if parameter.cls[0] == "s":
            found = self.scalar(lane)
            assert isinstance(found, Reg)
            return found
        return self.vector(lane)
