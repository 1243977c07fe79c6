"""Conversions through shared memory: a scratch layout without bank conflicts, wide accesses, no element stored twice.

The scratch offset is F2-linear in the coordinate bits (odd digits that both sides share stay outermost, with a
stride). Choosing it is choosing a basis of the coordinate space, in order of offset bits: first V, what one access
holds; then the rest of a bank row (128 bytes); then the *segments*, directions that change no bank. Accesses of one
wavefront are free of conflicts when the span U of their vector and lanes meets the segment space only in zero. For
two sides such a space always exists: with e_i, f_i bases of U_src and U_dst modulo their intersection, the segments
are the e_i + f_i and a complement of U_src + U_dst.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.ir import f2
from mimw.ir.conversion_problem import Problem, Transfer
from mimw.ir.conversion_space import ScratchSpace, View
from mimw.ir.layout import Layout, SharedLayout, owner_mask

# Cycles of one warp scheduler per warp. A wavefront moves 128 bytes in one cycle of the SM: 4 of a scheduler's share.
WAVEFRONT_CYCLES = 4
PACK_CYCLES = 2  # one byte permute, per 32-bit register packed from or unpacked to narrower elements
ADDRESS_CYCLES = 2  # one XOR per access where the register part cannot be an immediate
CTA_SYNC_CYCLES = 60  # a barrier over the CTA and the store-to-load latency behind it (estimate)
WARP_SYNC_CYCLES = 30  # the same inside a warp

BANK_ROW_BYTES = 128
MAX_ACCESS_BYTES = 16


class Access:
    """One store or load of neighbouring elements by registers `regs`, in element order.

    Element offset = (xor ^ thread part) + add. `parities`: bit g is what the thread's parity under guard g must be
    (stores only). `round` is set when the plan's rounds do not depend on the thread.
    """

    __slots__ = ("add", "parities", "regs", "round", "xor")

    def __init__(self, regs: tuple[int, ...], xor: int, add: int, parities: int) -> None:
        self.regs = regs
        self.xor = xor
        self.add = add
        self.parities = parities
        self.round = 0


class Side:
    """All stores or all loads of a thread: the thread part is the XOR of `lane` and `warp` columns over the bits of
    its index.

    `additive`: thread part and `xor` have no bit in common, so xor + add can be an immediate. `wavefronts` per
    access of a warp.
    """

    __slots__ = ("accesses", "additive", "lane", "vec", "warp", "wavefronts")

    def __init__(
        self, vec: int, accesses: tuple[Access, ...], lane: tuple[int, ...], warp: tuple[int, ...], elem_bytes: int
    ) -> None:
        self.vec = vec
        self.accesses = accesses
        self.lane = lane
        self.warp = warp
        thread = registers = 0
        for column in (*lane, *warp):
            thread |= column
        for access in accesses:
            registers |= access.xor
        self.additive = not thread & registers
        self.wavefronts = _wavefronts(lane, vec, elem_bytes)


class SharedPlan:
    """Execute, per round: (barrier if the scratch may still be read;) stores; barrier over `scope`; loads.

    `guards`: (lane mask, warp mask) pairs; a thread makes a store only if for every guard g its parity equals bit g
    of the access's `parities`. Of round r are the accesses with offset // chunk == r, at offset % chunk; with
    `uniform_rounds` that is `access.round`, the same for all threads, else each thread compares for itself (chunk
    is then a power of two). Destination register i has the value that the loads put in register ``result[i]``
    (itself, or the one that it copies; a register of holes takes any).
    """

    __slots__ = (
        "chunk",
        "cost",
        "elem_bytes",
        "guards",
        "layout",
        "loads",
        "result",
        "rounds",
        "scope",
        "scratch_bytes",
        "stores",
        "uniform_rounds",
    )

    def __init__(
        self,
        layout: SharedLayout,
        elem_bytes: int,
        stores: Side,
        loads: Side,
        guards: tuple[tuple[int, int], ...],
        scope: str,
        chunk: int,
        result: tuple[int, ...],
    ) -> None:
        self.layout = layout
        self.result = result
        self.elem_bytes = elem_bytes
        self.stores = stores
        self.loads = loads
        self.guards = guards
        self.scope = scope
        self.chunk = chunk
        self.rounds = -(-layout.size // chunk)
        self.scratch_bytes = min(chunk, layout.size) * elem_bytes
        columns = (*stores.lane, *stores.warp, *loads.lane, *loads.warp)
        self.uniform_rounds = all(column < chunk for column in columns) or self.rounds == 1
        if self.uniform_rounds:
            for access in (*stores.accesses, *loads.accesses):
                access.round = (access.xor + access.add) // chunk
        sync = CTA_SYNC_CYCLES if scope == "cta" else WARP_SYNC_CYCLES
        self.cost = sync * (2 * self.rounds - 1) + _side_cost(stores, elem_bytes) + _side_cost(loads, elem_bytes)

    def describe(self) -> str:
        stores, loads = self.stores, self.loads
        text = f"{len(stores.accesses)} stores of {stores.vec} and {len(loads.accesses)} loads of {loads.vec} elements "
        text += f"through {self.scratch_bytes} bytes of shared memory"
        return text if self.rounds == 1 else f"{text} in {self.rounds} rounds"


def plan_shared(problem: Problem, transfer: Transfer, elem_bits: int, scratch_budget: int) -> SharedPlan:
    """The cheapest scratch plan. ValueError when the budget (bytes) does not hold one access of 16 bytes."""
    elem_bytes = max(1, elem_bits // 8)
    if scratch_budget < MAX_ACCESS_BYTES:
        raise ValueError(f"{scratch_budget} bytes of scratch are too few for a layout conversion")
    space = ScratchSpace(problem)
    low = (1 << len(space.dst.reg)) - 1
    copies = problem.dst.free_reg_bits()
    loaded = [reg for reg in space.dst.needed if not reg & low & copies]
    wanted = set(space.dst.needed)
    result = tuple(reg & ~copies if reg in wanted else loaded[0] for reg in range(problem.dst.num_regs))
    stored = len(space.src.needed) >> owner_mask(problem.src)[0].bit_count()
    best: tuple[int, SharedLayout, list[tuple[int, int]], list[tuple[int, int]]] | None = None
    for vectors in _vector_choices(space, elem_bytes):
        layout = _scratch_layout(space, vectors, elem_bytes)
        ours = vectors.src[: _usable(space.src, layout, vectors.src)]
        theirs = vectors.dst[: _usable(space.dst, layout, vectors.dst)]
        cost = _estimate(space.src, layout, ours, stored, elem_bytes)
        cost += _estimate(space.dst, layout, theirs, len(loaded), elem_bytes)
        if best is None or cost < best[0]:
            best = (cost, layout, ours, theirs)
    assert best is not None  # there is always the choice without vectors
    _, layout, ours, theirs = best
    guards, stores = _stores(space, layout, ours, elem_bytes)
    loads = _side(space.dst, layout, theirs, loaded, elem_bytes)
    scope = "warp" if transfer.keeps_warps() and not any(warp for _, warp in guards) else "cta"
    chunk = _chunk(1 << space.total, layout.size, scratch_budget // elem_bytes)
    return SharedPlan(layout, elem_bytes, stores, loads, guards, scope, chunk, result)


def _estimate(side: View, layout: SharedLayout, vectors: list[tuple[int, int]], registers: int, elem_bytes: int) -> int:
    """What `_side_cost` will say of these accesses, before they are made."""
    linear = _linear(layout)
    thread = own = 0
    for column in (*side.lane, *side.warp):
        thread |= f2.apply(linear, column)
    for column in side.reg:
        own |= f2.apply(linear, column)
    lane = [f2.apply(linear, column) for column in side.lane]
    wavefronts = _wavefronts(lane, 1 << len(vectors), elem_bytes)
    packed = _packed([mask for _, mask in vectors], elem_bytes)
    return -(-registers >> len(vectors)) * _access_cost(
        1 << len(vectors), wavefronts, not thread & own, packed, elem_bytes
    )


def _packed(masks: Sequence[int], elem_bytes: int) -> bool:
    """True when the elements of each 32-bit word of an access are neighbouring registers already."""
    words = (4 // elem_bytes).bit_length() - 1 if elem_bytes < 4 else 0
    return all(mask == 1 << bit for bit, mask in enumerate(masks[:words]))


def _access_cost(vec: int, wavefronts: int, additive: bool, packed: bool, elem_bytes: int) -> int:
    packing = 0 if packed or vec == 1 else PACK_CYCLES * max(1, vec * elem_bytes // 4)
    return wavefronts * WAVEFRONT_CYCLES + (0 if additive else ADDRESS_CYCLES) + packing


# ---------------------------------------------------------------------------------------------------------------------
# The choice of vectors and of the basis


class _Vectors:
    """Vectors of each side in offset-bit order: (coordinate, register mask that makes it). The first `common` are
    both sides'."""

    __slots__ = ("common", "dst", "src", "wide")

    def __init__(self, src: list[tuple[int, int]], dst: list[tuple[int, int]], common: int) -> None:
        self.src = src
        self.dst = dst
        self.common = common
        self.wide = src if len(src) > len(dst) else dst


def _vector_choices(space: ScratchSpace, elem_bytes: int) -> list[_Vectors]:
    """Candidates: what both sides have in common, alone, or widened for one side."""
    limit = (MAX_ACCESS_BYTES // elem_bytes).bit_length() - 1
    src, dst = space.src, space.dst
    prefix: list[int] = []
    for ours, theirs in zip(src.vector_reg, dst.vector_reg, strict=False):
        if ours != theirs or not ours or len(prefix) == limit:
            break
        prefix.append(ours)
    threads = [*src.lane, *src.warp, *dst.lane, *dst.warp]
    shared = f2.independent([*prefix, *f2.intersection(src.vector_reg, dst.vector_reg)], threads)[:limit]
    common = f2.independent(prefix) if len(shared) < len(prefix) else shared
    choices: list[_Vectors] = []
    for widen_src, widen_dst in ((False, True), (True, False), (False, False)):
        ours = common + (_more(common, src)[: limit - len(common)] if widen_src else [])
        theirs = common + (_more(common, dst)[: limit - len(common)] if widen_dst else [])
        if (widen_src or widen_dst) and len(ours) == len(theirs):
            continue
        choices.append(_Vectors(_with_registers(ours, src), _with_registers(theirs, dst), len(common)))
    return choices


def _more(common: list[int], side: View) -> list[int]:
    return f2.independent(side.vector_reg, [*common, *side.lane, *side.warp])


def _with_registers(vectors: list[int], side: View) -> list[tuple[int, int]]:
    span = f2.Span(side.vector_reg)
    return [(vector, span.solve(vector) or 0) for vector in vectors]


def _wave_span(vectors: list[int], side: View, elem_bytes: int) -> list[int]:
    """What one wavefront of accesses covers: the vector and the lanes that go together."""
    width = elem_bytes << len(vectors)
    lanes = min(len(side.lane), max(0, (BANK_ROW_BYTES // width).bit_length() - 1))
    return f2.independent([*vectors, *side.lane[:lanes]])


def _scratch_layout(space: ScratchSpace, vectors: _Vectors, elem_bytes: int) -> SharedLayout:
    """The scratch layout for these vectors."""
    total = space.total
    units = [1 << bit for bit in range(total)]
    wide, narrow = (space.src, space.dst) if vectors.wide is vectors.src else (space.dst, space.src)
    wide_vectors = [v for v, _ in vectors.wide]
    narrow_vectors = [v for v, _ in (vectors.dst if vectors.wide is vectors.src else vectors.src)]
    row = min(total, (BANK_ROW_BYTES // elem_bytes).bit_length() - 1)
    threads = [*wide.lane, *wide.warp, *narrow.lane, *narrow.warp]
    ours = _wave_span(wide_vectors, wide, elem_bytes)
    theirs = _wave_span(narrow_vectors, narrow, elem_bytes)
    ours = _fill(ours, [*theirs, *threads, *units], row)
    theirs = _fill(theirs, [*ours, *threads, *units], row)
    meet = f2.intersection(ours, theirs)
    own = f2.independent(ours, meet)  # f_i: the wide vector's bits come first
    other = f2.independent(theirs, meet)  # e_i
    # A thread of the wide side must not reach into its own vector: pair the vector's bits with what its threads lack.
    held = f2.Span([*wide.lane, *wide.warp])
    other.sort(key=lambda vector: vector in held)
    diagonal = [f ^ e for f, e in zip(own, other, strict=True)]
    beyond = f2.independent([*threads, *units], [*ours, *theirs])
    inverse = f2.right_inverse([*ours, *diagonal, *beyond], total)
    bases = [
        [inverse[shift + bit] for bit in range(width)] for shift, width in zip(space.shifts, space.bits, strict=True)
    ]
    strides = [0] * len(space.bits)
    step = 1 << total
    for d in reversed(range(len(strides))):
        if space.counts[d] > 1:
            strides[d] = step
            step *= space.counts[d]
    dims = tuple(zip(space.bits, space.counts, strict=True))
    return SharedLayout.get(dims, bases, strides, step)


def _fill(vectors: list[int], more: Sequence[int], size: int) -> list[int]:
    """`vectors` cut or extended to `size` independent ones."""
    return (vectors + f2.independent(more, vectors))[:size]


def _chunk(linear: int, size: int, budget: int) -> int:
    """Elements per round: everything, else whole digits, else a power of two."""
    if size <= budget:
        return size
    if linear <= budget:
        return budget // linear * linear
    return 1 << budget.bit_length() - 1


# ---------------------------------------------------------------------------------------------------------------------
# Accesses


def _linear(layout: SharedLayout) -> list[int]:
    """Offset contribution of every packed coordinate bit."""
    return [offset for bases in reversed(layout.bases) for offset in bases]


def _usable(side: View, layout: SharedLayout, vectors: list[tuple[int, int]]) -> int:
    """How many of the vectors lie on the lowest offset bits, untouched by this side's threads."""
    linear = _linear(layout)
    touched = 0
    for column in (*side.lane, *side.warp):
        touched |= f2.apply(linear, column)
    count = 0
    while count < len(vectors) and f2.apply(linear, vectors[count][0]) == 1 << count and not touched >> count & 1:
        count += 1
    return count


def _side(
    side: View, layout: SharedLayout, vectors: list[tuple[int, int]], registers: Sequence[int], elem_bytes: int
) -> Side:
    """Accesses that cover `registers`, vector by vector; registers that are holes fill up vectors only."""
    linear = _linear(layout)
    lane = tuple(f2.apply(linear, column) for column in side.lane)
    warp = tuple(f2.apply(linear, column) for column in side.warp)
    offsets = f2.span_table([f2.apply(linear, column) for column in side.reg])
    members = f2.span_table([mask for _, mask in vectors])
    low = (1 << len(side.reg)) - 1
    step = 1 << sum(a for a, _ in layout.dims)
    done: set[int] = set()
    accesses: list[Access] = []
    for reg in registers:
        if reg in done:
            continue
        xor = offsets[reg & low] if reg <= low else f2.apply(linear, side.reg_bits[reg])
        # The first of the vector is the member whose offset ends in zeros.
        first = reg ^ members[xor & (len(members) - 1)]
        xor &= ~(len(members) - 1)
        regs = tuple(first ^ member for member in members)
        done.update(regs)
        accesses.append(Access(regs, xor, side.digits[reg] * step, 0))
    return Side(len(members), tuple(accesses), lane, warp, elem_bytes)


def _stores(
    space: ScratchSpace, layout: SharedLayout, vectors: list[tuple[int, int]], elem_bytes: int
) -> tuple[tuple[tuple[int, int], ...], Side]:
    """(guards, the stores): one copy of every element, no holes outside the scratch."""
    src = space.src
    copy_reg, copy_lane, copy_warp, _ = owner_mask(src.layout)
    low = (1 << len(src.reg)) - 1
    registers = [reg for reg in src.needed if not reg & low & copy_reg]
    side = _side(src, layout, vectors, registers, elem_bytes)
    guards: list[tuple[int, int]] = [(1 << bit, 0) for bit in range(len(src.lane)) if copy_lane >> bit & 1]
    guards += [(0, 1 << bit) for bit in range(len(src.warp)) if copy_warp >> bit & 1]
    dead = space.dead_of(src.layout)
    coordinates = src.layout.reg_coords()
    for d, mask in enumerate(dead):
        for bit in range(mask.bit_length()):
            if not mask >> bit & 1:
                continue
            lanes = sum(1 << i for i, v in enumerate(src.layout.lane) if v[d] >> bit & 1)
            warps = sum(1 << i for i, v in enumerate(src.layout.warp) if v[d] >> bit & 1)
            if not lanes and not warps:
                continue  # decided by registers alone: those are not stored
            for access in side.accesses:
                access.parities |= (coordinates[access.regs[0]][d] >> bit & 1) << len(guards)
            guards.append((lanes, warps))
    return tuple(guards), side


def _side_cost(side: Side, elem_bytes: int) -> int:
    if not side.accesses:
        return 0
    first = side.accesses[0].regs
    packed = _packed([first[1 << bit] ^ first[0] for bit in range(len(first).bit_length() - 1)], elem_bytes)
    return len(side.accesses) * _access_cost(side.vec, side.wavefronts, side.additive, packed, elem_bytes)


def _wavefronts(lane: Sequence[int], vec: int, elem_bytes: int) -> int:
    """Bank-row transfers of one warp access whose lanes are F2 `lane` element offsets."""
    width = max(4, vec * elem_bytes)
    shift = (width // elem_bytes).bit_length() - 1 if width >= elem_bytes else 0
    group = min(len(lane), (BANK_ROW_BYTES // width).bit_length() - 1)
    slots = (BANK_ROW_BYTES // width).bit_length() - 1
    places = [column >> shift for column in lane[:group]]
    degree = 1 << f2.rank(places) - f2.rank([place & ((1 << slots) - 1) for place in places])
    return degree << len(lane) - group


def bank_conflicts(layout: Layout, shared: SharedLayout, elem_bits: int, vec: int) -> int:
    """How many times more wavefronts than without bank conflicts when registers 0..vec-1 of every lane are accessed
    at once.

    1 means free of conflicts. Counted on warp 0; `vec` elements must be neighbours in `shared`.
    """
    elem_bytes = max(1, elem_bits // 8)
    width = max(4, vec * elem_bytes)
    group = max(1, min(layout.num_lanes, BANK_ROW_BYTES // width))
    worst = 1
    for first in range(0, layout.num_lanes, group):
        words: set[int] = set()
        for lane in range(first, first + group):
            start = shared.offset(layout.coords(0, lane)) * elem_bytes
            words.update(range(start // 4, (start + max(1, vec * elem_bytes) - 1) // 4 + 1))
        banks: dict[int, int] = {}
        for word in words:
            banks[word % 32] = banks.get(word % 32, 0) + 1
        worst = max(worst, max(banks.values()))
    return worst
