"""Layouts that follow from layouts, as tiles change their shape: transposed, expanded, sliced, broadcast, joined, split, reshaped, multiplied.

Each operation returns a layout; where registers are renumbered a companion says how. Pure mathematics, as `layout.py`: knows no op and no target.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.ir import f2
from mimw.ir.layout import Dims, Layout, Vector, Vectors, pack_vector
from mimw.ir.layout_factories import pad_dims


def _map_vectors(layout: Layout, dims: Dims, change: dict[Vector, Vector]) -> Layout:
    def convert(vectors: Vectors) -> Vectors:
        return tuple(change[v] for v in vectors)

    return Layout.get(dims, convert(layout.reg), convert(layout.lane), convert(layout.warp), convert(layout.cta))


def _all_vectors(layout: Layout) -> set[Vector]:
    return {*layout.reg, *layout.lane, *layout.warp, *layout.cta}


def transpose(layout: Layout, perm: Sequence[int]) -> Layout:
    """Dimension i of the result is dimension perm[i]. Registers keep their index unless two dimensions have odd
    digits: then `transpose_registers` says where each one comes from."""
    if sorted(perm) != list(range(layout.rank)):
        raise ValueError(f"{tuple(perm)} does not permute {layout.rank} dimensions")
    change = {v: tuple(v[p] for p in perm) for v in _all_vectors(layout)}
    return _map_vectors(layout, tuple(layout.dims[p] for p in perm), change)


def transpose_registers(layout: Layout, perm: Sequence[int]) -> tuple[int, ...]:
    """For every register of `transpose(layout, perm)` the register of `layout` that holds the same element."""
    radix = [o for _, o in layout.dims]
    strides = [0] * layout.rank
    step = 1
    for d in reversed(range(layout.rank)):
        strides[d] = step
        step *= radix[d]
    digits = [0]
    for p in perm:
        digits = [head + q * strides[p] for head in digits for q in range(radix[p])]
    low = 1 << len(layout.reg)
    return tuple(digit * low + bits for digit in digits for bits in range(low))


def expand(layout: Layout, axis: int) -> Layout:
    """A new dimension of size 1 before position `axis`."""
    if not 0 <= axis <= layout.rank:
        raise ValueError(f"axis {axis} is outside 0..{layout.rank}")
    change = {v: (*v[:axis], 0, *v[axis:]) for v in _all_vectors(layout)}
    return _map_vectors(layout, (*layout.dims[:axis], (0, 1), *layout.dims[axis:]), change)


def squeeze(layout: Layout, axis: int) -> Layout:
    """Drop a dimension whose padded extent is 1. Use `slice_` for others."""
    if layout.dims[axis] != (0, 1):
        raise ValueError(f"dimension {axis} has padded extent {layout.shape_padded[axis]}, not 1")
    change = {v: (*v[:axis], *v[axis + 1 :]) for v in _all_vectors(layout)}
    return _map_vectors(layout, (*layout.dims[:axis], *layout.dims[axis + 1 :]), change)


def slice_(layout: Layout, axis: int) -> tuple[Layout, tuple[int, ...]]:
    """Drop `axis`, as the result of a reduction along it: its lane and warp bits become copies, register copies go
    away.

    Returns the layout and, for each of its registers, the register of `layout` with digit 0 and bits 0 along `axis`.
    """
    if not 0 <= axis < layout.rank:
        raise ValueError(f"axis {axis} is outside 0..{layout.rank - 1}")

    def drop(vectors: Vectors) -> Vectors:
        return tuple((*v[:axis], *v[axis + 1 :]) for v in vectors)

    digit_map = [0]
    for d, (_, o) in enumerate(layout.dims):
        digit_map = [head * o + q for head in digit_map for q in range(o if d != axis else 1)]
    full = Layout.get(
        (*layout.dims[:axis], *layout.dims[axis + 1 :]),
        drop(layout.reg),
        drop(layout.lane),
        drop(layout.warp),
        drop(layout.cta),
    )
    result, kept = remove_reg_copies(full)
    low_full, low = 1 << len(layout.reg), 1 << len(result.reg)
    table = f2.span_table([1 << bit for bit in range(len(full.reg)) if kept >> bit & 1])
    return result, tuple(digit * low_full + table[bits] for digit in digit_map for bits in range(low))


def remove_reg_copies(layout: Layout) -> tuple[Layout, int]:
    """Without register bits that repeat what other registers, lanes or warps hold: (layout, mask of the register
    bits kept)."""
    span = f2.Span(pack_vector(layout, v) for v in (*layout.lane, *layout.warp, *layout.cta))
    kept = 0
    for bit, vector in enumerate(layout.reg):
        if span.add(pack_vector(layout, vector)):
            kept |= 1 << bit
    if kept == (1 << len(layout.reg)) - 1:
        return layout, kept
    reg = tuple(v for bit, v in enumerate(layout.reg) if kept >> bit & 1)
    return Layout.get(layout.dims, reg, layout.lane, layout.warp, layout.cta), kept


def broadcast(layout: Layout, axis: int, dims: tuple[int, int]) -> Layout:
    """A dimension of extent 1 repeated to `dims` = (bits, odd digit), all in new registers above the old register bits.

    `broadcast_registers(layout, result)` says which register each one repeats.
    """
    if layout.dims[axis] != (0, 1):
        raise ValueError(f"dimension {axis} has padded extent {layout.shape_padded[axis]}, not 1")
    a, _ = dims
    new = tuple(tuple(1 << bit if d == axis else 0 for d in range(layout.rank)) for bit in range(a))
    return Layout.get(
        (*layout.dims[:axis], dims, *layout.dims[axis + 1 :]),
        layout.reg + new,
        layout.lane,
        layout.warp,
        layout.cta,
    )


def broadcast_registers(src: Layout, dst: Layout) -> tuple[int, ...] | None:
    """For each register of `dst` the register of `src` with its value, where dimensions of padded extent 1 in `src`
    repeat.

    None when some thread of `dst` needs a value that it does not hold in `src` (a conversion must come first).
    """
    if src.rank != dst.rank or len(src.lane) != len(dst.lane) or len(src.warp) != len(dst.warp):
        return None
    wide = [d for d in range(src.rank) if src.dims[d] != (0, 1)]
    for ours, theirs in ((src.lane, dst.lane), (src.warp, dst.warp), (src.cta, dst.cta)):
        if [tuple(v[d] for d in wide) for v in ours] != [tuple(v[d] for d in wide) for v in theirs]:
            return None
    place = {tuple(c[d] for d in wide): reg for reg, c in reversed(list(enumerate(src.reg_coords())))}
    result: list[int] = []
    for coordinate in dst.reg_coords():
        reg = place.get(tuple(coordinate[d] for d in wide))
        if reg is None:
            return None
        result.append(reg)
    return tuple(result)


def join(layout: Layout) -> Layout:
    """A new last dimension of size 2 in the lowest register bit: register 2r+j holds what register r of operand j
    held."""

    def widen(vectors: Vectors) -> Vectors:
        return tuple((*v, 0) for v in vectors)

    unit = (*(0,) * layout.rank, 1)
    return Layout.get(
        (*layout.dims, (1, 1)), (unit, *widen(layout.reg)), widen(layout.lane), widen(layout.warp), widen(layout.cta)
    )


def split(layout: Layout) -> tuple[Layout, tuple[tuple[int, ...], tuple[int, ...]]]:
    """The inverse of `join`: (layout without the last dimension, registers of half 0, registers of half 1).

    ValueError unless the last dimension is 2 and one register bit alone decides it (convert first otherwise).
    """
    if not layout.rank or layout.dims[-1] != (1, 1):
        raise ValueError("split needs a last dimension of padded extent 2")
    deciding = [v for v in (*layout.reg, *layout.lane, *layout.warp, *layout.cta) if v[-1]]
    unit = (*(0,) * (layout.rank - 1), 1)
    if deciding != [unit] or unit not in layout.reg:
        raise ValueError("split needs the last dimension in one register bit of its own")
    bit = layout.reg.index(unit)

    def narrow(vectors: Vectors) -> Vectors:
        return tuple(v[:-1] for v in vectors)

    reg = narrow(layout.reg[:bit]) + narrow(layout.reg[bit + 1 :])
    result = Layout.get(layout.dims[:-1], reg, narrow(layout.lane), narrow(layout.warp), narrow(layout.cta))
    low = (1 << bit) - 1
    first = tuple((r & ~low) << 1 | (r & low) for r in range(result.num_regs))
    return result, (first, tuple(r | 1 << bit for r in first))


def part(layout: Layout, offsets: Sequence[int], shape: Sequence[int], size: Sequence[int]) -> Layout | None:
    """The layout of a part of a tile of `shape` (see ``tensor.extract_slice``) in the registers that hold it; None where the part's bounds
    do not fall between registers.
    """
    dims, gone, new = list(layout.dims), set[Vector](), list[Vector]()
    for d, (bits, odd) in enumerate(layout.dims):
        n = size[d]
        if n == shape[d]:
            continue
        kept = n.bit_length() - 1
        if n == 1 << kept and kept <= bits and not offsets[d] % n:
            dims[d] = (kept, 1)
            gone |= {_unit(layout.rank, d, bit) for bit in range(kept, bits)}
        elif odd > 1 and not (n | offsets[d]) & ((1 << bits) - 1):
            digits = n >> bits
            more = (digits & -digits).bit_length() - 1
            dims[d] = (bits + more, digits >> more)
            new += [_unit(layout.rank, d, bit) for bit in range(bits, bits + more)]
        else:
            return None
    cut = [0] * layout.rank  # per dimension the bits that tell the part from the rest
    for v in gone:
        cut = [x | y for x, y in zip(cut, v, strict=True)]
    for vectors in (layout.reg, layout.lane, layout.warp, layout.cta):
        for v in vectors:
            if any(x & y for x, y in zip(v, cut, strict=True)) and (v not in gone or vectors is not layout.reg):
                return None
    reg = [*(v for v in layout.reg if v not in gone), *new]
    return Layout.get(dims, reg, layout.lane, layout.warp, layout.cta)


def whole(layout: Layout, shape: Sequence[int], size: Sequence[int]) -> Layout | None:
    """A layout for all of `shape` of which a part of `size` lies as `layout` says; None where there is none."""
    dims, gone, new = list(layout.dims), set[Vector](), list[Vector]()
    for d, (bits, odd) in enumerate(layout.dims):
        if size[d] == shape[d]:
            continue
        if odd << bits != size[d]:
            return None
        all_bits, all_odd = pad_dims(shape[d], "odd")
        dims[d] = (all_bits, all_odd)
        gone |= {_unit(layout.rank, d, bit) for bit in range(all_bits, bits)}
        new += [_unit(layout.rank, d, bit) for bit in range(bits, all_bits)]
    if not gone <= set(layout.reg):
        return None
    reg = [*(v for v in layout.reg if v not in gone), *new]
    try:
        return Layout.get(dims, reg, layout.lane, layout.warp, layout.cta)
    except ValueError:  # a vector that mixes a bit which became a digit with others
        return None


def _unit(rank: int, dim: int, bit: int) -> Vector:
    return tuple(1 << bit if d == dim else 0 for d in range(rank))


def reshape(layout: Layout, old_shape: Sequence[int], new_shape: Sequence[int]) -> Layout | None:
    """The same registers seen as `new_shape` (row-major element order), or None where that is not free.

    Free when both shapes split into groups of equal size in which all but the leading dimension are unpadded powers
    of two.
    """
    if tuple(old_shape) == tuple(new_shape):
        return layout
    # Unpadded dimensions of size 1 carry no element order: they come and go freely.
    old = [d for d in range(layout.rank) if layout.dims[d] != (0, 1)]
    new = [d for d, size in enumerate(new_shape) if size != 1]
    groups = _reshape_groups(old, old_shape, new, new_shape)
    if groups is None:
        return None
    dims: list[tuple[int, int]] = [(0, 1)] * len(new_shape)
    for (lead, *tail), (new_lead, *new_tail) in groups:
        if any(layout.dims[d][1] != 1 or old_shape[d] != layout.shape_padded[d] for d in tail):
            return None
        if any(new_shape[d] & (new_shape[d] - 1) for d in new_tail):
            return None
        for d in new_tail:
            dims[d] = (new_shape[d].bit_length() - 1, 1)
        bits = layout.dims[lead][0] + sum(layout.dims[d][0] for d in tail) - sum(dims[d][0] for d in new_tail)
        if bits < 0:
            return None
        dims[new_lead] = (bits, layout.dims[lead][1])
    shifts: list[int] = []
    total = 0
    for a, _ in reversed(dims):
        shifts.append(total)
        total += a
    shifts.reverse()

    def convert(vector: Vector) -> Vector:
        packed = pack_vector(layout, vector)
        return tuple(packed >> s & ((1 << a) - 1) for s, (a, _) in zip(shifts, dims, strict=True))

    return _map_vectors(layout, tuple(dims), {v: convert(v) for v in _all_vectors(layout)})


def _reshape_groups(
    old: list[int], old_shape: Sequence[int], new: list[int], new_shape: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """Runs of old and new dimensions with equal products, as short as can be; None when there are none."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        mine, theirs = [old[i]], [new[j]]
        left, right = old_shape[old[i]], new_shape[new[j]]
        i, j = i + 1, j + 1
        while left != right:
            if left < right and i < len(old):
                left *= old_shape[old[i]]
                mine.append(old[i])
                i += 1
            elif right < left and j < len(new):
                right *= new_shape[new[j]]
                theirs.append(new[j])
                j += 1
            else:
                return None
        groups.append((mine, theirs))
    return groups if i == len(old) and j == len(new) else None


def product(outer: Layout, inner: Layout) -> Layout:
    """`inner` repeated in the pattern of `outer`: per dimension inner's bits stay low, outer's are shifted above
    them; registers, lanes and warps of `inner` come first. Inner must have no odd digits (they must stay
    outermost)."""
    if outer.rank != inner.rank or any(o != 1 for _, o in inner.dims):
        raise ValueError("product needs equal ranks and an inner layout of powers of two")

    def lift(vectors: Vectors) -> Vectors:
        return tuple(tuple(x << a for x, (a, _) in zip(v, inner.dims, strict=True)) for v in vectors)

    dims = tuple((b + a, o) for (b, o), (a, _) in zip(outer.dims, inner.dims, strict=True))
    return Layout.get(
        dims,
        inner.reg + lift(outer.reg),
        inner.lane + lift(outer.lane),
        inner.warp + lift(outer.warp),
        inner.cta + lift(outer.cta),
    )
