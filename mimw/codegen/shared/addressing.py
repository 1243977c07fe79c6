"""Addresses of a tile in shared memory: register layout composed with shared layout, in bytes.

A byte offset is (thread part XOR register part) plus digits times strides. The thread part is one F2-linear function of the thread
index; register parts that touch none of its bits are immediates.
"""

from __future__ import annotations

from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering
from mimw.ir.layout import Layout, SharedLayout
from mimw.ir.types import U32

Vector = tuple[int, ...]


class Placement:
    """How a register layout lies in a shared layout: offsets in bytes. `mix` as in `Shared`."""

    __slots__ = ("digit_dims", "layout", "mix", "shared", "size", "span", "thread")

    def __init__(self, layout: Layout, shared: SharedLayout, elem_bytes: int, mix: int = 0) -> None:
        self.layout = layout
        self.mix = mix
        self.shared = shared
        self.size = elem_bytes
        self.thread = tuple(self.linear(v) for v in (*layout.lane, *layout.warp))
        self.span = 0
        for x in self.thread:
            self.span |= x
        self.digit_dims = [
            d for d, (a, n) in enumerate(shared.dims) if n > 1 and any(v[d] >> a for v in (*layout.lane, *layout.warp))
        ]

    def linear(self, coords: Vector) -> int:
        """The XOR part of an offset."""
        out = 0
        for x, (a, _), bases in zip(coords, self.shared.dims, self.shared.bases, strict=True):
            for bit in range(a):
                if x >> bit & 1:
                    out ^= bases[bit]
        return out * self.size

    def digits(self, coords: Vector) -> int:
        """The added part that registers decide."""
        out = 0
        for d, (x, (a, _), stride) in enumerate(zip(coords, self.shared.dims, self.shared.strides, strict=True)):
            if d not in self.digit_dims:
                out += (x >> a) * stride
        return out * self.size

    def unit_bits(self, shape: Vector, most: int) -> list[int]:
        """Register bits that step through neighbouring elements: bit i moves by 1 << i elements, up to `most` elements."""
        layout, size = self.layout, self.size
        found: list[int] = []
        while 1 << len(found) < most:
            step = size << len(found)
            bit = next((b for b, v in enumerate(layout.reg) if self.linear(v) == step and not self.has_digits(v)), None)
            if bit is None or self.span & step or any(self.digit_stride(d) % (2 * step) for d in range(layout.rank)):
                break
            if any(b != bit and self.linear(v) & step for b, v in enumerate(layout.reg)):
                break
            if not _whole(layout.reg[bit], layout, shape):
                break
            found.append(bit)
        return found

    def has_digits(self, v: Vector) -> bool:
        """Whether a register bit reaches the digits of the shared layout."""
        return any(x >> a for x, (a, _) in zip(v, self.shared.dims, strict=True))

    def digit_stride(self, d: int) -> int:
        """Bytes that one digit adds."""
        return self.shared.strides[d] * self.size if self.shared.dims[d][1] > 1 else 0

    def address(self, ctx: Lowering, base: Lane, coords: Vector) -> Lane:
        """The byte address of the element that a register at `coords` (of lane 0, warp 0) holds, in this thread."""
        b = ctx.b
        part = self.linear(coords) ^ self.mix
        thread = ctx.linear(self.thread)
        mixed = part & self.span
        if mixed:
            thread = b.op("xor", U32, thread, b.const(U32, mixed))
        whole = b.add(base, thread)
        for d in self.digit_dims:
            whole = b.add(whole, self._digit(ctx, d, coords[d]))
        return b.plus(whole, part - mixed - self.mix + self.digits(coords))

    def _digit(self, ctx: Lowering, d: int, x: int) -> Lane:
        """Digit `d` times its stride, where the thread takes part in it."""
        b = ctx.b
        a = self.shared.dims[d][0]
        bases = tuple(v[d] >> a for v in (*self.layout.lane, *self.layout.warp))
        span = 0
        for y in bases:
            span |= y
        own = x >> a
        mixed = own & span
        lane = ctx.linear(bases)
        if mixed:
            lane = b.op("xor", U32, lane, b.const(U32, mixed))
        return b.times(b.plus(lane, own - mixed), self.digit_stride(d))


def _whole(vector: Vector, layout: Layout, shape: Vector) -> bool:
    """Whether a register bit never leads from inside the shape to outside, so that vectors along it are all in or all out."""
    return all(
        not x or layout.shape_padded[d] == shape[d] or (not x & (x - 1) and shape[d] % (2 * x) == 0)
        for d, x in enumerate(vector)
    )


def vector_groups(placement: Placement, bits: list[int], registers: list[int]) -> list[list[int]]:
    """Registers grouped into vectors along the given register bits, in element order."""
    offsets = [0]
    for bit in bits:
        offsets += [x | 1 << bit for x in offsets]
    mask = sum(1 << b for b in bits)
    low = (1 << len(placement.layout.reg)) - 1
    return [[r | x for x in offsets] for r in registers if not r & low & mask]
