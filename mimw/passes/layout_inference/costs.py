"""What layouts cost: the price of a conversion, of a global access, of a shared access, of arithmetic. Pure functions.

Prices of conversions are estimates in the unit of `ir.conversion.Plan.cost` and follow it closely (a test compares them); planning every
pair of candidates would cost a millisecond each.

The unit is an issue slot of one warp scheduler. A memory transaction (one 32-byte sector, one 128-byte shared wavefront) is
counted as four: the four schedulers of an SM share one load-store unit.
"""

from __future__ import annotations

from functools import lru_cache

from mimw.ir import f2
from mimw.ir.layout import Layout, owner_mask, pack_vector

SECTOR = 4.0  # per 32 bytes of global memory
WAVEFRONT = 4.0  # per 128 bytes of shared memory
ACCESS = 4.0  # per memory instruction
BARRIER = 20.0
SHUFFLE = 4.0
LOOP = 10.0  # how often a loop body is thought to run
FORBIDDEN = 1e9  # what is in flight stays in its registers


@lru_cache(maxsize=4096)
def conversion(src: Layout, dst: Layout, bits: int) -> float:
    """The price of converting a tile once. `bits` of one element (a predicate counts as 8)."""
    if src is dst:
        return 0.0
    if src.rank != dst.rank:
        return 1e9
    if _same_thread(src, dst):
        return 0.5 + 0.1 * dst.num_regs
    words = max(bits / 32, 0.25)
    shared = 2 * BARRIER + shared_bytes(src, bits) + shared_bytes(dst, bits)
    if _same_warp(src, dst):
        # A shuffle a destination word, and selects among the source's.
        return min(20 + words * (dst.num_regs * 10 + src.num_regs * 2), shared)
    return shared


def _same_thread(src: Layout, dst: Layout) -> bool:
    """Whether each thread already holds all it needs: lanes and warps decide the same coordinates, up to what the thread has itself."""
    if src.dims != dst.dims or len(src.warp) != len(dst.warp):
        return False
    own = f2.Span(pack_vector(src, v) for v in src.reg)
    pairs = zip((*src.lane, *src.warp), (*dst.lane, *dst.warp), strict=True)
    return all(pack_vector(src, v) ^ pack_vector(src, w) in own for v, w in pairs) and all(
        pack_vector(src, v) in own for v in dst.reg
    )


def _same_warp(src: Layout, dst: Layout) -> bool:
    """Whether each warp already holds all it needs."""
    if src.dims != dst.dims or len(src.warp) != len(dst.warp):
        return False
    own = f2.Span(pack_vector(src, v) for v in (*src.reg, *src.lane))
    return all(
        pack_vector(src, v) ^ pack_vector(src, w) in own for v, w in zip(src.warp, dst.warp, strict=True)
    ) and all(pack_vector(src, v) in own for v in (*dst.reg, *dst.lane))


def shared_bytes(layout: Layout, bits: int) -> float:
    """Slots for moving a thread's registers to or from shared memory."""
    run = max((layout.contiguity(d) for d in range(layout.rank)), default=1)
    run = min(run, max(1, 128 // bits))
    words = max(1.0, run * bits / 32)
    return layout.num_regs / run * (words * WAVEFRONT + 1)


def global_access(layout: Layout, run_dim: int, vec: int, bits: int, store: bool) -> float:
    """A load or store of a tile whose addresses run along `run_dim` (-1: nowhere), `vec` elements an instruction.

    A store skips copies; a load does them all.
    """
    size = max(1, bits // 8)
    registers = layout.num_regs
    lanes = layout.lane
    if store:
        reg_mask, lane_mask, warp_mask, _ = owner_mask(layout)
        registers >>= reg_mask.bit_count()
        lanes = tuple(v for i, v in enumerate(lanes) if not lane_mask >> i & 1)
        share = 1.0 / (1 << warp_mask.bit_count())
    else:
        share = 1.0
    instructions = max(1.0, registers / vec)
    run = max(vec, layout.contiguity(run_dim)) if run_dim >= 0 else 1
    run = min(run, registers)
    per_sector = max(1, 32 // size)
    shift = (per_sector - 1).bit_length() if run_dim >= 0 else 0
    columns: list[int] = []
    for v in lanes:
        w = tuple((x >> shift) << shift if d == run_dim else x for d, x in enumerate(v))
        columns.append(pack_vector(layout, w))
    sectors = (1 << f2.rank(columns)) * max(1.0, run * size / 32)
    return (instructions * ACCESS + registers / run * sectors * SECTOR) * share + instructions


def reduction(layout: Layout, axis: int, sources: int) -> float:
    """Combining along an axis: in the thread, across lanes, across warps."""
    along = sum(1 for v in layout.reg if v[axis])
    results = max(1, (layout.num_regs >> along) // layout.dims[axis][1])
    rounds = sum(1 for v in layout.lane if v[axis])
    cost = layout.num_regs + results * rounds * (SHUFFLE + 1)
    if any(v[axis] for v in layout.warp):
        cost += 2 * BARRIER + results * 2 * ACCESS
    return cost * sources
