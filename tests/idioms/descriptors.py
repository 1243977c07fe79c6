# pyright: basic
"""Kernels with tensor descriptors, asynchronous copies and tasks: products and attention, each in the spellings that people use."""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml
from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.idioms.cases import case

HOPPER = ("sm_90a",)
rng = np.random.default_rng(7)


@mimw.kernel
def described(x, shape, strides, block):
    """`x`, or a descriptor of what it points to."""
    if isinstance(x, ml.tensor_descriptor):
        return x
    return ml.make_tensor_descriptor(x, shape, strides, block_shape=block)


@mimw.kernel
def zigzag(tile, tiles_m, tiles_n, BAND: ml.constexpr):
    """Row and column of a tile: bands of BAND rows, down one column of the band and up the next."""
    above = tile // (BAND * tiles_n) * BAND
    height = min(BAND, tiles_m - above)
    column = (tile - above * tiles_n) // height
    step = (tile - above * tiles_n) % height
    return above + ml.where(column % 2 == 0, step, height - 1 - step), column


@mimw.kernel
def halves(x):
    """The left and the right half of the columns."""
    rows: ml.constexpr = x.shape[0]
    width: ml.constexpr = x.shape[1] // 2
    return ml.split(ml.permute(ml.reshape(x, (rows, 2, width)), (0, 2, 1)))


@mimw.kernel
def beside(left, right):
    """Two tiles as one, side by side."""
    pairs = ml.join(left, right)
    return pairs.permute(0, 2, 1).reshape([left.shape[0], 2 * left.shape[1]])


@mimw.kernel
def put(out, x, m, n, IN_HALVES: ml.constexpr):
    """A tile at (m, n) in the output's type, in one store or two."""
    if IN_HALVES:
        left, right = halves(x)
        out.store([m, n], left.to(ml.dtype_of(out)))
        out.store([m, n + left.shape[1]], right.to(ml.dtype_of(out)))
    else:
        out.store([m, n], x.to(ml.dtype_of(out)))


# Products of several sizes in one launch: addresses and extents lie in tables.


@mimw.kernel
def strip_product(a, b, c, m, n, k, a_step, b_step, c_step, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr):
    """The tile of c at (m, n), through pointers that move along k."""
    rows, columns, inner = m + ml.arange(0, BM), n + ml.arange(0, BN), ml.arange(0, BK)
    acc = ml.zeros((BM, BN), ml.float32)
    left, right = a + (rows * a_step)[:, None] + inner[None, :], b + (inner * b_step)[:, None] + columns[None, :]
    for _ in range(ml.cdiv(k, BK)):
        left, right = ml.multiple_of(left, [16, 16]), ml.multiple_of(right, [16, 16])
        acc += ml.dot(ml.load(left), ml.load(right))
        left, right = left + BK, right + BK * b_step
    ml.store(c + rows[:, None] * c_step + columns[None, :], acc.to(c.dtype.element_ty))


@mimw.kernel
def many_products(addresses, extents, count, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr):
    """Problem i has its operands at addresses[i] = (a, b, c), and extents[i] = (m, n, k, strides of the rows of a, b, c)."""
    half: ml.constexpr = ml.pointer_type(ml.float16)
    tile = ml.program_id(0)
    for problem in range(count):
        place, size = addresses + 3 * problem, extents + 6 * problem
        across = ml.cdiv(ml.load(size + 1), BN)
        tiles = ml.cdiv(ml.load(size), BM) * across
        while tile >= 0 and tile < tiles:
            a, b, c = ml.load(place).to(half), ml.load(place + 1).to(half), ml.load(place + 2).to(half)
            steps = ml.load(size + 3), ml.load(size + 4), ml.load(size + 5)
            strip_product(a, b, c, tile // across * BM, tile % across * BN, ml.load(size + 2), *steps, BM, BN, BK)
            tile += ml.num_programs(0)
        tile -= tiles


# A product whose programs stay for several tiles; its descriptors come from the host, or are made here.


@mimw.kernel
def staying_product(
    a, b, c, visits, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, BAND: ml.constexpr, IN_HALVES: ml.constexpr, EAGER: ml.constexpr,
):  # fmt: skip
    """c = a @ b.T; visits[program] says how many tiles it took."""
    a = described(a, shape=[M, K], strides=[K, 1], block=[BM, BK])
    b = described(b, [N, K], [K, 1], [BN, BK])
    c = described(c, [M, N], strides=[N, 1], block=[BM, BN // 2 if IN_HALVES else BN])
    tiles_m, tiles_n = ml.cdiv(M, BM), ml.cdiv(N, BN)
    first, taken = ml.program_id(axis=0), 0
    for tile in ml.range(first, tiles_m * tiles_n, ml.num_programs(0), flatten=EAGER, warp_specialize=EAGER):
        row, column = zigzag(tile, tiles_m, tiles_n, BAND)
        acc = ml.zeros((BM, BN), dtype=ml.float32)
        for k in range(0, K, BK):
            acc = ml.dot(a.load([row * BM, k]), b.load([column * BN, k]).T, acc)
        # The place once more from the number that this program counts itself.
        row, column = zigzag(first + taken * ml.num_programs(0), tiles_m, tiles_n, BAND)
        put(c, acc, row * BM, column * BN, IN_HALVES)
        taken += 1
    ml.store(visits + first, taken)


def dense(x: np.ndarray, *block: int) -> TensorDescriptor:
    """A descriptor of a whole matrix."""
    return TensorDescriptor(x, x.shape, [x.shape[1], 1], list(block))


def blank(*shape: int) -> np.ndarray:
    """Space for a result of 16-bit floats."""
    return np.full(shape, np.nan, np.float16)


left = rng.standard_normal((128, 96)).astype(np.float16)
right = rng.standard_normal((128, 96)).astype(np.float16)
turned = np.ascontiguousarray(right.T)
product = left.astype(np.float64) @ right.astype(np.float64).T
for given, in_halves, eager in ("pointers", False, False), ("pointers", True, True), ("descriptors", False, False):
    operands = [left, right, blank(128, 128)]
    if given == "descriptors":
        operands = [dense(x, 64, block) for x, block in zip(operands, (32, 32, 64), strict=True)]
    case(
        f"product_of_{given}{'_eager' if eager else ''}",
        staying_product,
        (3,),
        [*operands, np.zeros(3, np.int32), 128, 128, 96],
        {2: product, 3: [2, 1, 1]},
        {"BM": 64, "BN": 64, "BK": 32, "BAND": 2, "IN_HALVES": in_halves, "EAGER": eager},
        tol=3e-3,
    )


# A product that copies ahead of itself, without descriptors.


@mimw.kernel
def ask(left, right, a_ring, b_ring, step, K, SLOTS: ml.constexpr):
    """Start the copies for a step; beyond K they are zeros."""
    a_slot, b_slot = ml.local_view(a_ring, step % SLOTS), ml.local_view(b_ring, step % SLOTS)
    inner = step * a_slot.shape[1] + ml.arange(0, a_slot.shape[1])
    copies = [
        ml.async_load(left, a_slot, mask=inner[None, :] < K),
        ml.async_load(right, b_slot, mask=inner[:, None] < K),
    ]
    ml.async_load_commit_group(copies)


@mimw.kernel
def copying_product(
    a, b, c, M, N, K, a_row, a_column, b_row, b_column, c_row,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, SLOTS: ml.constexpr,
):  # fmt: skip
    """c = a @ b with SLOTS - 1 steps under way."""
    ahead: ml.constexpr = SLOTS - 1
    rows, columns = ml.program_id(0) * BM + ml.arange(0, BM), ml.program_id(1) * BN + ml.arange(0, BN)
    inner = ml.arange(0, BK)
    left = a + (rows % M)[:, None] * a_row + inner[None, :] * a_column
    right = b + inner[:, None] * b_row + (columns % N)[None, :] * b_column
    a_ring = ml.local_alloc((BM, BK), ml.dtype_of(a), SLOTS)
    b_ring = ml.local_alloc((BK, BN), ml.dtype_of(b), SLOTS)
    for step in ml.range(0, ahead, loop_unroll_factor=ahead):
        ask(left, right, a_ring, b_ring, step, K, SLOTS)
        left, right = left + BK * a_column, right + BK * b_row
    acc = ml.zeros((BM, BN), ml.float32)
    for step in ml.range(0, ml.cdiv(K, BK), num_stages=0):
        ml.async_load_wait_group(ahead - 1)
        acc = ml.async_dot(ml.local_view(a_ring, step % SLOTS), ml.local_view(b_ring, step % SLOTS), acc)
        acc = ml.async_dot_wait(1, acc)  # the slot of the step before is free
        ask(left, right, a_ring, b_ring, step + ahead, K, SLOTS)
        left, right = left + BK * a_column, right + BK * b_row
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    acc = ml.async_dot_wait(0, acc)
    ml.store(c + rows[:, None] * c_row + columns[None, :], acc.to(c.dtype.element_ty), mask=inside)


case(
    "product_by_async_load",
    copying_product,
    (2, 2),
    [left, turned, blank(128, 128), 128, 128, 96, 96, 1, 128, 1, 128],
    {2: product},
    {"BM": 64, "BN": 64, "BK": 32, "SLOTS": 3},
    tol=3e-3,
    targets=HOPPER,
)


# A product of tasks: one copies by TMA, two multiply, each its half of the rows.


@mimw.kernel
def fetch(x, row, column, ring, slot, empty, parity, full):
    """Copy a block into a slot when it is empty."""
    ml.barrier_wait(bar=ml.local_view(empty, slot), phase=parity)
    room, arrived = ml.local_view(ring, slot), ml.local_view(full, slot)
    ml.barrier_expect_bytes(bar=arrived, size=room.shape[0] * room.shape[1] * ml.size_of(ml.dtype_of(x)))
    ml.async_descriptor_load(x, room, [row, column], arrived)


@mimw.kernel
def product_of_tasks(
    a, b, c, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, SLOTS: ml.constexpr, IN_HALVES: ml.constexpr,
):  # fmt: skip
    """c = a @ b; part r of a slot of a is at r * SLOTS + slot in its ring."""
    height: ml.constexpr = BM // 2
    a_ring = ml.local_alloc((height, BK), ml.dtype_of(a), 2 * SLOTS)
    b_ring = ml.local_alloc((BK, BN), ml.dtype_of(b), SLOTS)
    a_full, a_empty = ml.alloc_barriers(num_barriers=2 * SLOTS), ml.alloc_barriers(2 * SLOTS, arrive_count=1)
    b_full, b_empty = ml.alloc_barriers(SLOTS, 1), ml.alloc_barriers(num_barriers=SLOTS, arrive_count=2)
    steps = ml.cdiv(K, BK)
    with ml.async_tasks():
        with ml.async_task("default"):
            row, column = zigzag(ml.program_id(0), ml.cdiv(M, BM), ml.cdiv(N, BN), BAND=8)
            parity = 1
            for step in range(steps):
                slot = step % SLOTS
                fetch(b, step * BK, column * BN, b_ring, slot, b_empty, parity, b_full)
                for r in ml.static_range(2):
                    fetch(a, row * BM + r * height, step * BK, a_ring, r * SLOTS + slot, a_empty, parity, a_full)
                parity = parity ^ (slot == SLOTS - 1)
        with ml.async_task(num_warps=4, replicate=2):
            part = ml.async_task_replica_id() * SLOTS
            row, column = zigzag(ml.program_id(0), ml.cdiv(M, BM), ml.cdiv(N, BN), BAND=8)
            acc, parity = ml.zeros([height, BN], dtype=ml.float32), 0
            for step in range(steps):
                slot = step % SLOTS
                ml.barrier_wait(b_full[slot], parity)
                ml.barrier_wait(a_full[part + slot], parity)
                acc = ml.async_dot(a_ring[part + slot], b_ring[slot], acc)
                acc = ml.async_dot_wait(ml.constexpr(0), acc)
                ml.barrier_arrive(b_empty[slot], 1)
                ml.barrier_arrive(ml.local_view(a_empty, part + slot))
                parity = parity ^ (slot == SLOTS - 1)
            put(c, acc, row * BM + ml.async_task_replica_id() * height, column * BN, IN_HALVES)


for in_halves in False, True:
    case(
        "product_of_tasks" + "_in_halves" * in_halves,
        product_of_tasks,
        (2,),
        [dense(left, 64, 32), dense(turned, 32, 64), dense(blank(128, 128), 64, 32 if in_halves else 64), 128, 128, 96],
        {2: product},
        {"BM": 128, "BN": 64, "BK": 32, "SLOTS": 2, "IN_HALVES": in_halves},
        tol=3e-3,
        targets=HOPPER,
    )


# Attention over descriptors of all heads' rows, one below the other: head by head `length` rows.


@mimw.kernel
def reweigh(scores, top, total, acc, IN_HALVES: ml.constexpr = False):
    """A step of the running softmax, in powers of two: the scores' weights, then greatest score, total and sums as they are now."""
    higher = ml.maximum(top, ml.max(scores, 1))
    weights, fade = ml.math.exp2(scores - higher[:, None]), ml.math.exp2(top - higher)
    if IN_HALVES:
        one, other = halves(acc)
        acc = beside(one * fade[:, None], other * fade[:, None])
    else:
        acc *= fade[:, None]
    return weights, higher, total * fade + ml.sum(weights, 1), acc


@mimw.kernel
def reach(sweep: ml.constexpr, first, length, ROWS: ml.constexpr):
    """The keys of a sweep: those before the queries, those beside them, or all from theirs on."""
    if sweep == 0:
        begin, end = 0, first
    elif sweep == 1:
        begin, end = ml.multiple_of(first, ROWS), first + ROWS
    else:
        begin, end = first, length
    return begin, end


@mimw.kernel
def unseen(queries: ml.constexpr, keys: ml.constexpr):
    """What to add to scores: keys after the query do not count. Both are tiles, whatever the annotations say."""
    return ml.where(queries[:, None] >= keys[None, :], 0.0, float("-inf"))


@mimw.kernel
def attend(
    q, k, v, out, norms, scale, length,
    WIDTH: ml.constexpr, ROWS: ml.constexpr, COLUMNS: ml.constexpr, SWEEPS: ml.constexpr, V_ACROSS: ml.constexpr,
    IN_HALVES: ml.constexpr, EAGER: ml.constexpr,
):  # fmt: skip
    """SWEEPS: bits of the sweeps over the keys (3: causal, 5: all). V_ACROSS: v is transposed. norms: log2 of the sums of powers of two."""
    ml.static_assert(COLUMNS <= WIDTH)
    everything = ml.num_programs(1) * length
    q = described(q, [everything, WIDTH], [WIDTH, 1], [ROWS, WIDTH])
    k = described(k, [everything, WIDTH], [WIDTH, 1], block=[COLUMNS, WIDTH])
    if V_ACROSS:
        v = described(v, shape=[WIDTH, everything], strides=[everything, 1], block=[WIDTH, COLUMNS])
    else:
        v = described(v, [everything, WIDTH], [WIDTH, 1], block=[COLUMNS, WIDTH])
    out = described(out, [everything, WIDTH], [WIDTH, 1], [ROWS, WIDTH])
    element: ml.constexpr = ml.float8e5 if ml.dtype_of(v) == ml.float8e5 else ml.float16
    base, first = ml.program_id(1) * length, ml.program_id(0) * ROWS
    queries, keys = first + ml.arange(0, ROWS), ml.arange(0, COLUMNS)
    scale *= 1.4426950408889634
    asked = q.load([base + first, 0])
    acc = ml.zeros([ROWS, WIDTH], dtype=ml.float32)
    top, total = ml.full([ROWS], float("-inf"), ml.float32), ml.zeros([ROWS], ml.float32)
    for sweep in ml.static_range(3):
        if SWEEPS >> sweep & 1:
            begin, end = reach(sweep, first, length, ROWS)
            for at in ml.range(begin, end, COLUMNS, warp_specialize=EAGER):
                at = ml.multiple_of(at, COLUMNS)
                scores = ml.dot(asked, k.load([base + at, 0]).T) * scale
                if sweep == 1:
                    scores += unseen(queries, at + keys)
                weights, top, total, acc = reweigh(scores, top, total, acc, IN_HALVES=IN_HALVES)
                taken = v.load([0, base + at]).T if V_ACROSS else v.load([base + at, 0])
                acc = ml.dot(weights.to(element), taken, acc)
    ml.store(norms + base + queries, top + ml.log2(total))
    put(out, acc / total[:, None], base + first, 0, False)


@mimw.kernel
def attend_in_tasks(
    q, k, v, out, norms, scale, length,
    WIDTH: ml.constexpr, ROWS: ml.constexpr, COLUMNS: ml.constexpr, SLOTS: ml.constexpr, TASKS: ml.constexpr,
):  # fmt: skip
    """As `attend` for all keys: one task copies, TASKS share the queries. Keys and values take turns in one ring: blocks 2 i and 2 i + 1."""
    ring = ml.local_alloc((COLUMNS, WIDTH), ml.dtype_of(k), 2 * SLOTS)
    full, empty = ml.alloc_barriers(2 * SLOTS), ml.alloc_barriers(2 * SLOTS, arrive_count=TASKS)
    height: ml.constexpr = ROWS // TASKS
    asked, asked_full = ml.local_alloc((height, WIDTH), ml.dtype_of(q), TASKS), ml.alloc_barriers(TASKS)
    with ml.async_tasks():
        with ml.async_task("default"):
            base, first, begin, end, slot, parity = start(length, ROWS)
            for r in ml.range(0, TASKS, loop_unroll_factor=TASKS):
                ml.barrier_expect_bytes(asked_full[r], height * WIDTH * 2)
                ml.async_descriptor_load(q, asked[r], [base + first + r * height, 0], asked_full[r])
            for at in ml.range(begin, end, COLUMNS):
                fetch(k, base + at, 0, ring, 2 * slot, empty, parity ^ 1, full)
                fetch(v, base + at, 0, ring, 2 * slot + 1, empty, parity ^ 1, full)
                slot = (slot + 1) % SLOTS
                parity ^= slot == 0
        with ml.async_task(num_warps=8 // TASKS, registers=232, replicate=TASKS):
            r = ml.async_task_replica_id()
            base, first, begin, end, slot, parity = start(length, ROWS)
            acc = ml.zeros([height, WIDTH], ml.float32)
            top, total = ml.full([height], float("-inf"), ml.float32), ml.zeros([height], ml.float32)
            ml.barrier_wait(asked_full[r], 0)
            for _ in ml.range(begin, end, COLUMNS):
                ml.barrier_wait(full[2 * slot], parity)
                scores = ml.async_dot_wait(0, ml.async_dot(asked[r], ml.local_trans(ring[2 * slot])))
                ml.barrier_arrive(empty[2 * slot])
                weights, top, total, acc = reweigh(scores * (scale * 1.4426950408889634), top, total, acc)
                ml.barrier_wait(full[2 * slot + 1], parity)
                acc = ml.async_dot_wait(0, ml.async_dot(weights.to(ml.dtype_of(v)), ring[2 * slot + 1], acc))
                ml.barrier_arrive(empty[2 * slot + 1])
                slot = (slot + 1) % SLOTS
                parity ^= slot == 0
            first += r * height
            ml.store(norms + base + first + ml.arange(0, height), top + ml.log2(total))
            put(out, acc / total[:, None], base + first, 0, False)


@mimw.kernel
def start(length, ROWS: ml.constexpr):
    """Where a head's rows begin, this program's first query, the range of keys, slot and parity of the first."""
    return ml.program_id(1) * length, ml.program_id(0) * ROWS, 0, length, 0, 0


def attention(causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """The result in double precision, and log2 of the softmax's denominators."""
    wide = [x.astype(np.float64) for x in heads]
    scores = np.einsum("hmd,hnd->hmn", wide[0], wide[1]) * 0.5
    if causal:
        scores += np.where(np.tri(128, dtype=bool), 0, -np.inf)
    powers = np.exp(scores)
    total = powers.sum(-1, keepdims=True)
    return (powers / total @ wide[2]).reshape(256, 64), np.log2(total).reshape(2, 128)


heads = [rng.standard_normal((2, 128, 64)).astype(np.float16) for _ in range(3)]
q, k, v = (x.reshape(256, 64) for x in heads)
v_across = np.ascontiguousarray(v.T)
by_host = [dense(q, 64, 64), dense(k, 32, 64), dense(v_across, 64, 32), dense(blank(256, 64), 64, 64)]
for name, operands, causal in (
    ("attention_of_pointers", [q, k, v, blank(256, 64)], True),
    ("attention_of_descriptors", by_host, True),
    ("attention_all_keys", [q, k, v, blank(256, 64)], False),
):
    values, norms = attention(causal)
    across = operands is by_host
    case(
        name,
        attend,
        (2, 2),
        [*operands, np.zeros((2, 128), np.float32), 0.5, 128],
        {3: values, 4: norms},
        {"WIDTH": 64, "ROWS": 64, "COLUMNS": 32, "SWEEPS": 3 if causal else 5, "V_ACROSS": across, "IN_HALVES": across}
        | {"EAGER": not across},
        tol=5e-3,
    )
values, norms = attention(causal=False)
case(
    "attention_of_tasks",
    attend_in_tasks,
    (1, 2),
    [*(dense(x, 64, 64) for x in (q, k, v, blank(256, 64))), np.zeros((2, 128), np.float32), 0.5, 128],
    {3: values, 4: norms},
    {"WIDTH": 64, "ROWS": 128, "COLUMNS": 64, "SLOTS": 2, "TASKS": 2},
    tol=5e-3,
    targets=HOPPER,
)


# Two tasks without a barrier between them.


@mimw.kernel
def sum_beside_product(x, y, sums, products, n, STRIDE: ml.constexpr):
    """One task adds, the other multiplies."""
    with ml.async_tasks():
        with ml.async_task("default"):
            at = ml.program_id(0) * STRIDE + ml.arange(0, STRIDE)
            ml.store(sums + at, ml.load(x + at, mask=at < n) + ml.load(y + at, mask=at < n), mask=at < n)
        with ml.async_task(num_warps=4):
            at = ml.program_id(0) * STRIDE + ml.arange(0, STRIDE)
            factors = ml.load(x + at, mask=at < n), ml.load(y + at, mask=at < n)
            ml.store(products + at, factors[0] * factors[1], mask=at < n)


x, y = rng.standard_normal((2, 300)).astype(np.float32)
results = [np.zeros(300, np.float32) for _ in range(2)]
case("tasks_side_by_side", sum_beside_product, (3,), [x, y, *results, 300], {2: x + y, 3: x * y}, {"STRIDE": 128})
