"""What shared lowerings are written against: the primitive operations on lanes.

Owns the folding of constants, the structure of addresses (base + constant), value numbering and its scopes, and what targets may do better than
others. A target implements `LanePrimitives`. Knows no instruction. What a lane is: `lane.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.codegen.float_bits import encode
from mimw.codegen.lane import COMPARE, CTA, FOLD, Lane, bits_of, is_integer, wrap_int
from mimw.codegen.lane_primitives import LanePrimitives
from mimw.ir.types import I1, I32, U32, U64, DType, Element
from mimw.target import Target

_Key = tuple[object, ...]


class LaneBuilder(LanePrimitives):
    """The primitive operations, with folding and value numbering."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._known: dict[_Key, Lane] = {}
        self._log: list[_Key] = []
        self._outer: list[list[_Key]] = []
        self._touched: list[set[_Key]] = []

    # ----------------------------------------------------------------------------------------------- value numbering

    def once(self, key: _Key, make: Callable[[], Lane]) -> Lane:
        """The lane that was made under `key` and is visible here, or a new one."""
        found = self._known.get(key)
        if found is None:
            found = make()
            self._known[key] = found
            self._log.append(key)
        elif self._touched:
            self._touched[-1].add(key)
        return found

    def open_scope(self) -> None:
        """Values made from here on are forgotten by `close_scope`: they do not dominate what comes after a region."""
        self._outer.append(self._log)
        self._log = []

    def close_scope(self) -> None:
        """Forget the values made since the scope was opened. Scopes nest."""
        for key in self._log:
            self._known.pop(key, None)
        self._log = self._outer.pop()

    def open_loop(self) -> None:
        """As `open_scope`, for the body of a loop."""
        self._touched.append(set())
        self.open_scope()

    def close_loop(self) -> None:
        """Forget the body's values, and those from before that the loop did not use: recomputing them after a loop is cheaper
        than carrying them across it."""
        self.close_scope()
        touched = self._touched.pop()
        if self._touched:
            self._touched[-1] |= touched
        for log in (*self._outer, self._log):
            kept = [key for key in log if key in touched]
            for key in log:
                if key not in touched:
                    self._known.pop(key, None)
            log[:] = kept

    # ----------------------------------------------------------------------------------------------------- constants

    def const(self, dtype: Element, value: int | float | bool) -> Lane:
        """A constant of a type, wrapped or rounded to it."""
        if isinstance(dtype, DType) and dtype.kind == "float":
            return Lane(dtype, None, encode(float(value), dtype), uniform=CTA)
        return Lane(dtype, None, wrap_int(int(value), dtype), uniform=CTA)

    def const_bits(self, dtype: DType, bits: int) -> Lane:
        """A float constant given by its bits."""
        return Lane(dtype, None, bits, uniform=CTA)

    def plus(self, lane: Lane, constant: int) -> Lane:
        """`lane` + constant, for integers of at least 32 bits and pointers. Makes no instruction."""
        if constant == 0:
            return lane
        off = lane.off + constant
        if lane.reg is None:
            off = wrap_int(off, lane.dtype)
        return Lane(lane.dtype, lane.reg, off, uniform=lane.uniform)

    # ---------------------------------------------------------------------------------------------------- arithmetic

    def op(self, prim: str, dtype: Element, *args: Lane) -> Lane:
        """An arithmetic primitive on lanes of `dtype`, result of the same type.

        add sub mul mulhi div rem min max and or xor shl shr neg not abs fma; floats also minnan maxnan (NaN wins), div_rn
        div_full sqrt_rn sqrt_approx rsqrt_approx ex2_approx lg2_approx rcp_approx rcp_rn floor ceil rint trunc.
        Ask `supports` first for floats other than f32.
        """
        if len(args) == 2:
            folded = self._fold(prim, dtype, args[0], args[1])
            if folded is not None:
                return folded
        return self.emit_op(prim, dtype, args)

    def add(self, a: Lane, b: Lane) -> Lane:
        """Sum of two lanes of one type."""
        return self.op("add", a.dtype, a, b)

    def sub(self, a: Lane, b: Lane) -> Lane:
        """Difference of two lanes of one type."""
        return self.op("sub", a.dtype, a, b)

    def mul(self, a: Lane, b: Lane) -> Lane:
        """Product of two lanes of one type."""
        return self.op("mul", a.dtype, a, b)

    def times(self, a: Lane, constant: int) -> Lane:
        """An integer lane times a constant."""
        return self.op("mul", a.dtype, a, self.const(a.dtype, constant))

    def bit_and(self, a: Lane, constant: int) -> Lane:
        """An integer lane and a constant mask."""
        return self.op("and", a.dtype, a, self.const(a.dtype, constant))

    def shift(self, a: Lane, left: int) -> Lane:
        """An integer lane shifted left by a constant (right when negative)."""
        if left == 0:
            return a
        return self.op("shl" if left > 0 else "shr", a.dtype, a, self.const(a.dtype, abs(left)))

    def _fold(self, prim: str, dtype: Element, a: Lane, b: Lane) -> Lane | None:
        if dtype is I1:
            return self._fold_bool(prim, a, b)
        if isinstance(dtype, DType) and dtype.kind == "float":
            return None
        if a.reg is None and b.reg is None:
            fold = FOLD.get(prim)
            value = fold(a.off, b.off, bits_of(dtype)) if fold is not None else None
            return None if value is None else self.const(dtype, value)
        if b.reg is None:
            found = self._fold_right(prim, dtype, a, b.off)
            if found is not None:
                return found
        elif a.reg is None and prim in ("add", "mul", "and", "or", "xor"):
            found = self._fold_right(prim, dtype, b, a.off)
            if found is not None:
                return found
        if (
            is_integer(dtype)
            and (a.off or b.off)
            and a.reg is not None
            and b.reg is not None
            and prim in ("add", "sub")
        ):
            low = self.emit_op(prim, dtype, (self.base(a), self.base(b)))
            return self.plus(low, a.off + b.off if prim == "add" else a.off - b.off)
        if prim == "sub" and a.reg is b.reg and a.part == b.part:
            return self.const(dtype, a.off - b.off)
        return None

    def _fold_right(self, prim: str, dtype: Element, a: Lane, c: int) -> Lane | None:
        """``a prim c`` for a constant c, where that is simpler than an instruction."""
        if prim in ("add", "sub"):
            if is_integer(dtype):
                return self.plus(a, c if prim == "add" else -c)
            return a if c == 0 else None
        if prim == "mul":
            if c in (0, 1):
                return a if c else self.const(dtype, 0)
            if is_integer(dtype):
                low = self.emit_op("mul", dtype, (self.base(a), self.const(dtype, c)))
                return self.plus(low, a.off * c)
            return None
        if prim == "div" and c == 1:
            return a
        if prim in ("shl", "shr", "or", "xor") and c == 0:
            return a
        if prim == "and":
            full = wrap_int(-1, dtype)
            return a if c == full else self.const(dtype, 0) if c == 0 else None
        if prim == "shl" and is_integer(dtype) and a.off and 0 < c < bits_of(dtype):
            low = self.emit_op("shl", dtype, (self.base(a), self.const(dtype, c)))
            return self.plus(low, a.off << c)
        return None

    def _fold_bool(self, prim: str, a: Lane, b: Lane) -> Lane | None:
        if a.reg is None:
            a, b = b, a
        if b.reg is not None:
            return a if a.reg is b.reg and prim in ("and", "or") else None
        if prim == "and":
            return a if b.off else b
        if prim == "or":
            return b if b.off else a
        if prim == "xor":
            return self.invert(a) if b.off else a
        return None

    def base(self, lane: Lane) -> Lane:
        """The lane without its constant."""
        return Lane(lane.dtype, lane.reg, 0, lane.part, lane.uniform) if lane.off and lane.reg is not None else lane

    def compare(self, how: str, a: Lane, b: Lane) -> Lane:
        """a <how> b as i1: eq ne lt le gt ge (floats: ne is true with NaN, the others false), and nan (either is NaN)."""
        if a.reg is None and b.reg is None and not self._is_float(a.dtype):
            return self.const(I1, COMPARE[how](a.off, b.off))
        return self.emit_compare(how, a, b)

    def invert(self, a: Lane) -> Lane:
        """Logical not of an i1."""
        return self.const(I1, 1 - a.off) if a.reg is None else self.emit_op("not", I1, (a,))

    def both(self, a: Lane | None, b: Lane | None) -> Lane | None:
        """The conjunction of two guards, None meaning always."""
        if a is None or b is None:
            return b if a is None else a
        joined = self.op("and", I1, a, b)
        return None if joined.reg is None and joined.off else joined

    def select(self, cond: Lane, a: Lane, b: Lane) -> Lane:
        """cond ? a : b."""
        if cond.reg is None:
            return a if cond.off else b
        if a.key() == b.key():
            return a
        return self.emit_select(cond, a, b)

    @staticmethod
    def _is_float(dtype: Element) -> bool:
        return isinstance(dtype, DType) and dtype.kind == "float"

    # --------------------------------------------------------------------------------- what a target may do better

    def descriptor_words(self, rank: int) -> list[Element]:
        """The types of the lanes that a tensor descriptor is: its address, where it lies in memory."""
        del rank
        return [U64]

    def close_block(self) -> None:
        """The current block is about to end: what a target has put off in it must be done now."""

    def floats_from_bytes(self, lo: Lane, hi: Lane) -> tuple[Lane, Lane] | None:
        """Two 8-bit floats of a kind that `reads_fp8` as f32, or None where f16 is on the way."""
        del lo, hi
        return None

    def shift_below_signs(self, word: Lane) -> Lane:
        """The halves of a u32, each shifted right by one bit, but for the sign bit, which stays; zero behind it. The lowest bits are zeros."""
        moved = self.bit_and(self.shift(word, -1), 0x3FFF3FFF)
        return self.op("or", U32, moved, self.bit_and(word, 0x80008000))

    def point(self, base: Lane, offset: Lane, scale: int, reach: int) -> Lane:
        """A pointer plus a 32-bit integer times a constant, where the product is in [0, reach) and that fits in 31 bits.

        Targets whose accesses take a uniform base and a small offset keep the two apart.
        """
        del reach
        return self.op("add", base.dtype, base, self.widen_scaled(offset, base.dtype, scale))

    def partners(self, lane: Lane, mask: int, same: int) -> tuple[Lane, Lane]:
        """The values of this lane and of the one with index ``own ^ mask``, either first: for operations that commute. Lanes whose
        indices differ in bits of `same` hold equal values."""
        del same
        return lane, self.shuffle_xor(lane, mask)

    def shuffle_step(self, lane: Lane, clear: int, set_bits: int, guard: tuple[int, int], lane_index: Lane) -> Lane:
        """The value that lane ``own & ~clear | set_bits`` of the warp holds, in lanes where ``own & guard[0] == guard[1]``; others get
        anything. `lane_index` is the own index, i32."""
        del guard
        source = self.bit_and(lane_index, (self.target.warp_size - 1) & ~clear)
        return self.shuffle_from(lane, self.op("or", I32, source, self.const(I32, set_bits)))
