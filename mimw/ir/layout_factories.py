"""Ready-made register layouts: coalesced blocks, and the fragments of the matrix instructions.

Owns the tables of which lane and register of an instruction holds what (PTX ISA; for v_mfma the CDNA3 and CDNA4
ISA guides). Chooses nothing: who needs a layout says which. Each factory takes the logical shape and pads it
(`pad_dims`).

**Fragments.** In every MMA layout the lowest register bits are one instruction's fragment in the instruction's
order, in *elements* (two 16-bit elements of one 32-bit register are neighbours, low half first). The bits above
repeat the instruction: first along the inner dimension (N of an accumulator, K of an operand), then along the outer
(M, or N of operand B). Odd digits are the outermost part of the register index, as in every layout. So without odd
digits instruction tile (i, j) of a rows x cols register grid is the run of consecutive registers that starts at
``(i * cols + j) * fragment``; with or without them ``tile_registers(layout, tile)[i, j]`` lists exactly its
fragment, in order. For wgmma the fragment of m64nN is N/2 registers for whatever N the tile is cut into.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.ir.layout import Dims, Layout, Vector

MAX_ODD = 15


def pad_dims(size: int, policy: str = "odd", min_bits: int = 0) -> tuple[int, int]:
    """(bits a, odd o) of the padded extent o << a for `size` elements.

    ``"pow2"``: the next power of two. ``"odd"``: the smallest o << a >= size with odd o <= 15 (96 -> (5, 3), 176 ->
    (4, 11)). `min_bits`: at least that many bits, since an instruction or its warps stand on them.
    """
    if size < 1:
        raise ValueError(f"a dimension of size {size}")
    full = (size - 1).bit_length()
    if policy == "pow2":
        return max(full, min_bits), 1
    if policy != "odd":
        raise ValueError(f"unknown padding policy {policy!r}")
    best = (max(full, min_bits), 1)
    for a in range(min_bits, full):
        o = -(-size >> a)
        if o % 2 and o <= MAX_ODD and o << a < best[1] << best[0]:
            best = (a, o)
    return best


def _unit(rank: int, dim: int, bit: int) -> Vector:
    return tuple(1 << bit if d == dim else 0 for d in range(rank))


def blocked(
    shape: Sequence[int],
    order: Sequence[int],
    num_warps: int,
    vec: int = 1,
    threads: int = 32,
    dims: Dims | None = None,
) -> Layout:
    """The coalesced layout: `vec` neighbours along order[0] in a thread, then lanes, then warps, then registers again.

    `order` lists the dimensions, fastest first. Powers of two everywhere; a tile with fewer elements than there are
    threads is repeated (copies). `dims` overrides the padding; its odd digits become registers.
    """
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"order {tuple(order)} does not name each of {len(shape)} dimensions once")
    rank = len(shape)
    padded = dims if dims is not None else tuple(pad_dims(size, "pow2") for size in shape)
    bits = [_unit(rank, d, bit) for d in order for bit in range(padded[d][0])]
    width = min(_log2(vec, "vec"), padded[order[0]][0]) if rank else 0
    lanes, warps = _log2(threads, "threads"), _log2(num_warps, "num_warps")
    zero = (0,) * rank
    low, rest = bits[:width], bits[width:]
    lane, rest = rest[:lanes], rest[lanes:]
    warp, rest = rest[:warps], rest[warps:]
    lane += [zero] * (lanes - len(lane))
    warp += [zero] * (warps - len(warp))
    return Layout.get(padded, (*low, *rest), lane, warp)


def turned_block(
    shape: Sequence[int], order: Sequence[int], num_warps: int, vec: int, run: int, lanes: int, threads: int
) -> Layout:
    """As `blocked` for a tile (two dimensions) that is read along order[0] and stored along order[1]: `vec` neighbours along the one, `run`
    along the other in a thread, then `lanes` lanes along the other, and the rest as they come."""
    fast, slow = order
    padded = tuple(pad_dims(size, "pow2") for size in shape)
    along = [_unit(2, fast, bit) for bit in range(padded[fast][0])]
    across = [_unit(2, slow, bit) for bit in range(padded[slow][0])]
    width, depth = min(_log2(vec, "vec"), len(along)), min(_log2(run, "run"), len(across))
    first = min(depth + _log2(lanes, "lanes"), len(across))
    rest = across[depth:first] + along[width:] + across[first:]
    bits, warps = _log2(threads, "threads"), _log2(num_warps, "num_warps")
    lane, warp = rest[:bits], rest[bits : bits + warps]
    lane += [(0, 0)] * (bits - len(lane))
    warp += [(0, 0)] * (warps - len(warp))
    return Layout.get(padded, (*along[:width], *across[:depth], *rest[bits + warps :]), lane, warp)


def mma_accumulator(shape: Sequence[int], warps_m: int, warps_n: int, elem_bits: int = 32) -> Layout:
    """D and C of mma.sync m16n8 (f64: m8n8) for a tile (M, N).

    Fragment, 32-bit and narrower: registers (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1) with g = lane/4, t = lane%4;
    f64: the first two. Warps: `warps_m` neighbouring 16-row bands (the low warp bits), then `warps_n` contiguous
    column ranges. A tile with fewer bands or columns than that is repeated over the warps left.
    """
    rows, cols = _outer(shape[0], _mma_rows(elem_bits), warps_m), _outer(shape[1], 3, warps_n)
    inner = _mma_rows(elem_bits)
    reg = [(0, 1), (8, 0)] if inner == 4 else [(0, 1)]
    lane = [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]
    warp_m, reg_m = _split_rows(rows[0], inner, _log2(warps_m, "warps_m"))
    warp_n, reg_n = _split_cols(cols[0], 3, _log2(warps_n, "warps_n"))
    reg += [(0, x) for x in reg_n] + [(x, 0) for x in reg_m]
    return Layout.get((rows, cols), reg, lane, [(x, 0) for x in warp_m] + [(0, x) for x in warp_n])


def mma_operand_a(shape: Sequence[int], elem_bits: int, warps_m: int, warps_n: int) -> Layout:
    """Operand A (M, K) of m16n8k16 (16-bit), m16n8k8 (tf32), m16n8k32 (8-bit), m8n8k4 (f64); warps as
    `mma_accumulator`.

    Elements in register order: k within a 32-bit register, then row + 8, then the upper half of K.
    """
    inner = _mma_rows(elem_bits)
    rows = _outer(shape[0], inner, warps_m)
    fragment, lane_k, k_bits = _k_fragment(elem_bits)
    depth = pad_dims(shape[1], "odd", k_bits)
    reg: list[Vector] = [(0, x) for x in fragment[:-1]] if elem_bits < 64 else []
    if elem_bits < 64:
        reg += [(8, 0), (0, fragment[-1])]
    lane = [(0, lane_k), (0, 2 * lane_k), (1, 0), (2, 0), (4, 0)]
    warp_m, reg_m = _split_rows(rows[0], inner, _log2(warps_m, "warps_m"))
    reg += [(0, 1 << bit) for bit in range(k_bits, depth[0])] + [(x, 0) for x in reg_m]
    warp: list[Vector] = [(x, 0) for x in warp_m] + [(0, 0)] * _log2(warps_n, "warps_n")
    return Layout.get((rows, depth), reg, lane, warp)


def mma_operand_b(shape: Sequence[int], elem_bits: int, warps_m: int, warps_n: int) -> Layout:
    """Operand B (K, N) of the same instructions: elements in register order k within a register, then the upper
    half of K.

    Column n = lane/4 of each 8; the warps along M hold copies.
    """
    fragment, lane_k, k_bits = _k_fragment(elem_bits)
    depth = pad_dims(shape[0], "odd", k_bits)
    cols = _outer(shape[1], 3, warps_n)
    lane = [(lane_k, 0), (2 * lane_k, 0), (0, 1), (0, 2), (0, 4)]
    warp_n, reg_n = _split_cols(cols[0], 3, _log2(warps_n, "warps_n"))
    reg: list[Vector] = [(x, 0) for x in fragment]
    reg += [(1 << bit, 0) for bit in range(k_bits, depth[0])] + [(0, x) for x in reg_n]
    warp: list[Vector] = [(0, 0)] * _log2(warps_m, "warps_m") + [(0, x) for x in warp_n]
    return Layout.get((depth, cols), reg, lane, warp)


def wgmma_accumulator(shape: Sequence[int], num_warps: int) -> Layout:
    """D of wgmma m64nN for a tile (M, N) over num_warps/4 warp groups.

    Register r of an instruction: row = 16 * (warp % 4) + lane/4 + 8 * ((r/2) % 2), col = 8 * (r/4) + 2 * (lane % 4)
    + r % 2. Warp groups take neighbouring 64-row bands; those left over split N into contiguous halves where N is a
    power of two of at least 16, else they repeat the tile. M is padded to a multiple of 64, N to a multiple of 8.
    """
    rows, groups = _wgmma_rows(shape[0], num_warps)
    cols = pad_dims(shape[1], "odd", 3)
    taken = rows[0] - 6 if rows[0] - 6 < groups else groups
    spare = groups - taken
    on_n = min(spare, cols[0] - 3) if cols[1] == 1 else 0
    reg: list[Vector] = [(0, 1), (8, 0)]
    reg += [(0, 1 << bit) for bit in range(3, cols[0] - on_n)]
    reg += [(1 << bit, 0) for bit in range(6 + taken, rows[0])]
    lane = [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]
    warp: list[Vector] = [(1 << bit, 0) for bit in range(4, 6 + taken)]
    warp += [(0, 1 << bit) for bit in range(cols[0] - on_n, cols[0])] + [(0, 0)] * (spare - on_n)
    return Layout.get((rows, cols), reg, lane, warp)


def wgmma_operand_a(shape: Sequence[int], elem_bits: int, num_warps: int) -> Layout:
    """Operand A (M, K) of wgmma from registers: 16-bit (K 16 an instruction), tf32 (8), 8-bit (32).

    Elements in register order as `mma_operand_a`, rows as `wgmma_accumulator`. Warp groups that do not fit along M
    hold copies.
    """
    if elem_bits not in (8, 16, 32):
        raise ValueError(f"wgmma has no {elem_bits}-bit operands")
    rows, groups = _wgmma_rows(shape[0], num_warps)
    fragment, lane_k, k_bits = _k_fragment(elem_bits)
    depth = pad_dims(shape[1], "odd", k_bits)
    taken = min(groups, rows[0] - 6)
    reg: list[Vector] = [(0, x) for x in fragment[:-1]]
    reg += [(8, 0), (0, fragment[-1])]
    reg += [(0, 1 << bit) for bit in range(k_bits, depth[0])]
    reg += [(1 << bit, 0) for bit in range(6 + taken, rows[0])]
    lane = [(0, lane_k), (0, 2 * lane_k), (1, 0), (2, 0), (4, 0)]
    warp: list[Vector] = [(1 << bit, 0) for bit in range(4, 6 + taken)] + [(0, 0)] * (groups - taken)
    return Layout.get((rows, depth), reg, lane, warp)


def mfma_accumulator(shape: Sequence[int], rows: int, warps_m: int, warps_n: int, elem_bits: int = 32) -> Layout:
    """D and C of the CDNA instruction v_mfma rows x rows (32 or 16; f64: 16) for a tile (M, N), on waves of 64 lanes.

    The instruction gets B as its first operand and A as its second, so that D lies turned: register r of lane l is row l % rows, column
    8 (r / 4) + 4 (l / 32) + r % 4 of 32x32, column 4 (l / 16) + r of 16x16, column 4 r + l / 16 of f64. Rows of the tile then lie along
    registers, for wide stores and cheap sums, and as operand A takes them. Warps as in `mma_accumulator`.
    """
    tile = _log2(rows, "rows")
    m_dims, n_dims = _outer(shape[0], tile, warps_m), _outer(shape[1], tile, warps_n)
    if elem_bits == 64:
        reg, lane = [(0, 4), (0, 8)], [(0, 1), (0, 2)]
    elif rows == 32:
        reg, lane = [(0, 1), (0, 2), (0, 8), (0, 16)], [(0, 4)]
    else:
        reg, lane = [(0, 1), (0, 2)], [(0, 4), (0, 8)]
    warp_m, reg_m = _split_rows(m_dims[0], tile, _log2(warps_m, "warps_m"))
    warp_n, reg_n = _split_cols(n_dims[0], tile, _log2(warps_n, "warps_n"))
    reg += [(0, x) for x in reg_n] + [(x, 0) for x in reg_m]
    lanes = [*((1 << bit, 0) for bit in range(tile)), *lane]
    return Layout.get((m_dims, n_dims), reg, lanes, [(x, 0) for x in warp_m] + [(0, x) for x in warp_n])


def mfma_k_width(depth: int, elem_bits: int, rows: int, least: bool = False) -> int:
    """Neighbours along K that a lane holds of an operand of v_mfma: 16 bytes where K has them for all lanes; at least what the smallest
    instruction takes (8 bytes; one element of f32 and f64), which is also how an accumulator lies (`least`)."""
    smallest = max(1, 64 // elem_bits) if elem_bits <= 16 else 1
    width = smallest if least else max(smallest, 128 // elem_bits)
    while width > smallest and width * (64 // rows) > depth:
        width //= 2
    return width


def mfma_operand_a(
    shape: Sequence[int], elem_bits: int, rows: int, warps_m: int, warps_n: int, least: bool = False
) -> Layout:
    """Operand A (M, K) of v_mfma rows x rows: lane l holds row l % rows, K from `mfma_k_width` times l / rows on; warps as
    `mma_accumulator`. A sum does not ask in which order K comes, so instructions take the registers in turn, alike of both operands."""
    tile = _log2(rows, "rows")
    width = _log2(mfma_k_width(shape[1], elem_bits, rows, least), "width")
    m_dims = _outer(shape[0], tile, warps_m)
    depth = pad_dims(shape[1], "odd", width + 6 - tile)
    warp_m, reg_m = _split_rows(m_dims[0], tile, _log2(warps_m, "warps_m"))
    reg = [(0, 1 << bit) for bit in range(width)] + [(0, 1 << bit) for bit in range(width + 6 - tile, depth[0])]
    lane = [(1 << bit, 0) for bit in range(tile)] + [(0, 1 << bit) for bit in range(width, width + 6 - tile)]
    warp = [(x, 0) for x in warp_m] + [(0, 0)] * _log2(warps_n, "warps_n")
    return Layout.get((m_dims, depth), reg + [(x, 0) for x in reg_m], lane, warp)


def mfma_operand_b(
    shape: Sequence[int], elem_bits: int, rows: int, warps_m: int, warps_n: int, least: bool = False
) -> Layout:
    """Operand B (K, N) of v_mfma rows x rows: as `mfma_operand_a` with columns for rows."""
    tile = _log2(rows, "rows")
    width = _log2(mfma_k_width(shape[0], elem_bits, rows, least), "width")
    n_dims = _outer(shape[1], tile, warps_n)
    depth = pad_dims(shape[0], "odd", width + 6 - tile)
    warp_n, reg_n = _split_cols(n_dims[0], tile, _log2(warps_n, "warps_n"))
    reg = [(1 << bit, 0) for bit in range(width)] + [(1 << bit, 0) for bit in range(width + 6 - tile, depth[0])]
    lane = [(0, 1 << bit) for bit in range(tile)] + [(1 << bit, 0) for bit in range(width, width + 6 - tile)]
    warp = [(0, 0)] * _log2(warps_m, "warps_m") + [(0, x) for x in warp_n]
    return Layout.get((depth, n_dims), reg + [(0, x) for x in reg_n], lane, warp)


# ---------------------------------------------------------------------------------------------------------------------


def _log2(value: int, what: str) -> int:
    if value < 1 or value & (value - 1):
        raise ValueError(f"{what} must be a power of two, not {value}")
    return value.bit_length() - 1


def _mma_rows(elem_bits: int) -> int:
    """log2 of the rows of one instruction."""
    return 3 if elem_bits == 64 else 4


def _k_fragment(elem_bits: int) -> tuple[list[int], int, int]:
    """(register bases along K of one instruction, first lane basis along K, log2 of K)."""
    if elem_bits == 64:
        return [], 1, 2
    if elem_bits not in (8, 16, 32):
        raise ValueError(f"no matrix instruction takes {elem_bits}-bit operands in this form")
    per_register = (32 // elem_bits).bit_length() - 1
    return [1 << bit for bit in range(per_register)] + [4 << per_register], 1 << per_register, per_register + 3


def _outer(size: int, tile_bits: int, warps: int) -> tuple[int, int]:
    """Padding of M or N: whole instruction tiles, and bits enough for the warps as far as the size has them."""
    wanted = tile_bits + _log2(warps, "warps")
    return pad_dims(size, "odd", max(tile_bits, min(wanted, (size - 1).bit_length())))


def _split_rows(bits: int, tile_bits: int, warp_bits: int) -> tuple[list[int], list[int]]:
    """Bases of the bits above a tile: (warps: the lowest, copies where there are too few; registers: the rest)."""
    free = [1 << bit for bit in range(tile_bits, bits)]
    warp = free[:warp_bits]
    return warp + [0] * (warp_bits - len(warp)), free[warp_bits:]


def _split_cols(bits: int, tile_bits: int, warp_bits: int) -> tuple[list[int], list[int]]:
    """As `_split_rows` with the warps on the highest bits, so that each has a contiguous range."""
    free = [1 << bit for bit in range(tile_bits, bits)]
    cut = max(0, len(free) - warp_bits)
    return free[cut:] + [0] * (warp_bits - len(free[cut:])), free[:cut]


def _wgmma_rows(size: int, num_warps: int) -> tuple[tuple[int, int], int]:
    """(padding of M, log2 of the warp groups)."""
    if num_warps % 4 or num_warps < 4:
        raise ValueError(f"wgmma needs whole warp groups, not {num_warps} warps")
    return pad_dims(size, "odd", 6), _log2(num_warps // 4, "warp groups")
