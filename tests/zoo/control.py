"""Control flow: loops with every exit, carried values, records, nested kernels, constant and run-time branches mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.registry import Run, array, data, each, empty, exact, near, sizes, wide, zoo


@mimw.kernel
def collatz(x_ptr, steps_ptr, limit):
    n = ml.load(x_ptr + ml.program_id(0)).to(ml.int64)
    steps = 0
    while n != 1 and steps < limit:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    ml.store(steps_ptr + ml.program_id(0), steps)


@zoo(*each("limit", (0, 5, 1000)), sm80=True)
def collatz_case(rng: Any, limit: int) -> Run:
    x = array([1, 2, 3, 7, 27, 97], "i32")

    def count(n: int) -> int:
        steps = 0
        while n != 1 and steps < limit:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        return steps

    steps = empty(6, "i32")
    return Run(collatz, (6,), (x, steps, limit), [(steps, exact([count(int(v)) for v in x]))], num_warps=1)


@mimw.kernel
def gcd_scalars(a_ptr, b_ptr, out_ptr):
    i = ml.program_id(0)
    a = ml.load(a_ptr + i)
    b = ml.load(b_ptr + i)
    while b != 0:
        a, b = b, a % b
    ml.store(out_ptr + i, a)


@zoo(*each("dtype", ("i32", "u64", "i16")))
def gcd_scalars_case(rng: Any, dtype: str) -> Run:
    a, b, out = array([12, 7, 0, 30000, 1024, 81], dtype), array([18, 0, 5, 12345, 6, 27], dtype), empty(6, dtype)
    return Run(gcd_scalars, (6,), (a, b, out), [(out, exact(np.gcd(a, b)))], num_warps=1)


@mimw.kernel
def newton_sqrt(x_ptr, out_ptr, trips_ptr, tolerance, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    guess = x * 0.5 + 0.5
    trips = 0
    error = float("inf")
    while error > tolerance and trips < 50:
        new = 0.5 * (guess + ml.div_rn(x, guess))
        error = ml.max(ml.abs(new - guess), axis=0)
        guess = new
        trips += 1
    ml.store(out_ptr + offs, guess)
    ml.store(trips_ptr, trips)


@zoo(*sizes(1, 33, 96))
def newton_sqrt_case(rng: Any, n: int) -> Run:
    x, out, trips = array(rng.uniform(1, 100, n), "f32"), empty(n, "f32"), empty(1, "i32")
    # The trips in f32 arithmetic, which is exactly rounded step by step (the sum is contracted, scaling by 1/2 is exact).
    guess, count, error = wide(x) * 0.5 + 0.5, 0, np.inf
    guess = guess.astype(np.float32)
    while error > 1e-3 and count < 50:
        new = (np.float32(0.5) * (guess + x / guess)).astype(np.float32)
        error, guess, count = float(np.abs(new - guess).max()), new, count + 1
    outputs = [(out, exact(guess)), (trips, exact([count]))]
    return Run(newton_sqrt, (1,), (x, out, trips, 1e-3), outputs, {"BLOCK": n})


@mimw.kernel
def breaks_and_continues(x_ptr, out_ptr, n, stop, BLOCK: ml.constexpr):
    total = ml.zeros((BLOCK,), ml.int32)
    last = -1
    for i in range(n):
        flag = ml.load(x_ptr + i)
        if flag == stop:
            break
        if flag % 2 == 1:
            continue
        total += flag * ml.arange(0, BLOCK)
        last = i
    ml.store(out_ptr + ml.arange(0, BLOCK), total)
    ml.store(out_ptr + BLOCK, last)


@zoo(*[{"n": n, "stop": s} for n, s in ((0, 3), (1, 0), (12, 99), (12, 6), (12, 0))], sm80=True)
def breaks_and_continues_case(rng: Any, n: int, stop: int) -> Run:
    x, out = array(np.arange(12), "i32"), empty(34, "i32")
    total, last = 0, -1
    for i in range(n):
        if i == stop:
            break
        if i % 2 == 0:
            total, last = total + i, i
    want = np.append(total * np.arange(33), last)
    return Run(breaks_and_continues, (1,), (x, out, n, stop), [(out, exact(want))], {"BLOCK": 33})


@mimw.kernel
def search(x_ptr, out_ptr, n, wanted, BLOCK: ml.constexpr):
    # The first index of a value, with a return out of the loop.
    row = ml.program_id(0)
    for start in range(0, n, BLOCK):
        offs = start + ml.arange(0, BLOCK)
        x = ml.load(x_ptr + row * n + offs, mask=offs < n, other=-1)
        place = ml.min(ml.where(x == wanted, offs, n), axis=0)
        if place < n:
            ml.store(out_ptr + row, place)
            return
    ml.store(out_ptr + row, -1)


@zoo(*[{"n": n, "wanted": w} for n, w in ((1, 0), (50, 3), (100, 8))], sm80=True)
def search_case(rng: Any, n: int, wanted: int) -> Run:
    x, out = array(rng.integers(0, 40, (7, n)), "i32"), empty(7, "i32")
    hit = np.array(x) == wanted
    return Run(
        search,
        (7,),
        (x, out, n, wanted),
        [(out, exact(np.where(hit.any(1), hit.argmax(1), -1)))],
        {"BLOCK": 16},
        num_warps=1,
    )


@mimw.kernel
def nested_exits(x_ptr, out_ptr, rows, cols):
    count = 0
    for r in range(rows):
        for c in range(cols):
            v = ml.load(x_ptr + r * cols + c)
            if v < 0:
                if v < -8:
                    ml.store(out_ptr, count)
                    ml.store(out_ptr + 1, r)
                    return
                break
            if v > 5:
                continue
            count += v
        count += 100
    ml.store(out_ptr, count)
    ml.store(out_ptr + 1, -1)


@zoo(
    *[{"rows": r, "cols": c, "low": low} for r, c, low in ((0, 3, -4), (3, 0, -4), (4, 5, -4), (6, 9, -10), (6, 9, 0))],
    sm80=True,
)
def nested_exits_case(rng: Any, rows: int, cols: int, low: int) -> Run:
    x, out = array(rng.integers(low, 9, (max(rows, 1), max(cols, 1))), "i32"), empty(2, "i32")

    def walk() -> list[int]:
        count = 0
        for r in range(rows):
            for c in range(cols):
                v = int(x[r, c])
                if v < -8:
                    return [count, r]
                if v < 0:
                    break
                if v <= 5:
                    count += v
            count += 100
        return [count, -1]

    return Run(nested_exits, (1,), (x, out, rows, cols), [(out, exact(walk()))])


@mimw.kernel
def fibonacci(out_ptr, n):
    a = 0
    b = 1
    for i in range(n):
        ml.store(out_ptr + i, a)
        a, b = b, a + b


@zoo(*sizes(0, 1, 2, 30))
def fibonacci_case(rng: Any, n: int) -> Run:
    out = empty(30, "i32")
    want, a, b = np.array(out), 0, 1
    for i in range(n):
        want[i], a, b = a, b, a + b
    return Run(fibonacci, (1,), (out, n), [(out, exact(want))])


@mimw.kernel
def swap_pointers(x_ptr, y_ptr, n, trips, BLOCK: ml.constexpr):
    # Ping-pong between two arrays: the pointers are carried and swapped.
    offs = ml.arange(0, BLOCK)
    src = x_ptr
    dst = y_ptr
    for i in range(trips):
        ml.store(dst + offs, ml.load(src + offs, mask=offs < n) + i + 1, mask=offs < n)
        src, dst = dst, src


@zoo(*[{"n": n, "trips": t} for n, t in ((1, 0), (33, 1), (60, 2), (60, 5))])
def swap_pointers_case(rng: Any, n: int, trips: int) -> Run:
    x, y = array(rng.integers(0, 99, n), "i32"), array(rng.integers(0, 99, n), "i32")
    a, b = np.array(x), np.array(y)
    for i in range(trips):
        a, b = a + i + 1, a
    if trips % 2 == 0:
        wx, wy = a, b
    else:
        wx, wy = b, a
    if trips == 0:
        wx, wy = np.array(x), np.array(y)
    # Each element is read and written by one thread of one layout: no thread sees another's store.
    return Run(swap_pointers, (1,), (x, y, n, trips), [(x, exact(wx)), (y, exact(wy))], {"BLOCK": 64})


@mimw.kernel
def rotate_tiles(x_ptr, out_ptr, trips, N: ml.constexpr):
    offs = ml.arange(0, N)
    a = ml.load(x_ptr + offs)
    b = ml.load(x_ptr + N + offs)
    c = ml.load(x_ptr + 2 * N + offs)
    for _ in range(trips):
        a, b, c = b, c, a + b
    ml.store(out_ptr + offs, a)
    ml.store(out_ptr + N + offs, b)
    ml.store(out_ptr + 2 * N + offs, c)


@zoo(*[{"n": n, "trips": t} for n, t in ((1, 0), (31, 1), (96, 4))])
def rotate_tiles_case(rng: Any, n: int, trips: int) -> Run:
    x, out = array(rng.integers(0, 9, (3, n)), "i32"), empty((3, n), "i32")
    a, b, c = np.array(x)
    for _ in range(trips):
        a, b, c = b, c, a + b
    return Run(rotate_tiles, (1,), (x, out, trips), [(out, exact(np.stack([a, b, c])))], {"N": n})


@dataclass
class Extent:
    """A record of kernel values."""

    low: Any
    high: Any
    count: Any


class Pair(NamedTuple):
    first: Any
    second: Any


@mimw.kernel
def record_in_loop(x_ptr, out_ptr, n):
    e = Extent(2147483647, -2147483648, 0)
    for i in range(n):
        v = ml.load(x_ptr + i)
        if v < e.low:
            e.low = v
        if v > e.high:
            e.high = v
        else:
            e.count += 1
    ml.store(out_ptr + 0, e.low)
    ml.store(out_ptr + 1, e.high)
    ml.store(out_ptr + 2, e.count)


@zoo(*sizes(0, 1, 20))
def record_in_loop_case(rng: Any, n: int) -> Run:
    x, out = data(rng, 20, "i32"), empty(3, "i32")
    low, high, count = 2147483647, -2147483648, 0
    for v in x[:n].tolist():
        low = min(low, v)
        if v > high:
            high = v
        else:
            count += 1
    return Run(record_in_loop, (1,), (x, out, n), [(out, exact([low, high, count]))])


@mimw.kernel
def order(a, b):
    if a > b:
        return Pair(b, a)
    return Pair(a, b)


@mimw.kernel
def record_of_tiles(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    # The two smallest scalars of an array, kept in a named tuple that a nested kernel returns.
    best = Pair(1 << 30, 1 << 30)
    for i in range(n):
        v = ml.load(x_ptr + i)
        if v < best.second:
            best = order(best.first, v)
    offs = ml.arange(0, BLOCK)
    ml.store(out_ptr + offs, ml.where(offs % 2 == 0, best.first, best.second))


@zoo(*sizes(2, 9, 30))
def record_of_tiles_case(rng: Any, n: int) -> Run:
    x, out = array(rng.integers(-500, 500, n), "i32"), empty(31, "i32")
    two = sorted(x.tolist())[:2]
    return Run(record_of_tiles, (1,), (x, out, n), [(out, exact(np.array(two)[np.arange(31) % 2]))], {"BLOCK": 31})


@mimw.kernel
def sincos_like(x, scale):
    return x * scale, x + scale, -x


@mimw.kernel
def classify(v):
    # Early returns on a run-time scalar, out of nested branches and a loop.
    if v < 0:
        return -1
    for i in range(10):
        if i * i == v:
            return i
    return 100


@mimw.kernel
def nested_kernels(x_ptr, v_ptr, out_ptr, class_ptr, N: ml.constexpr):
    offs = ml.arange(0, N)
    a, b, c = sincos_like(ml.load(x_ptr + offs), 3)
    ml.store(out_ptr + offs, a)
    ml.store(out_ptr + N + offs, b)
    ml.store(out_ptr + 2 * N + offs, sincos_like(c, scale=2)[1])
    i = ml.program_id(0)
    ml.store(class_ptr + i, classify(ml.load(v_ptr + i)) + classify(4))


@zoo(*sizes(1, 31, 96), sm80=True)
def nested_kernels_case(rng: Any, n: int) -> Run:
    x, v = array(rng.integers(-99, 99, n), "i32"), array([-5, 0, 49, 50, 81, 82], "i32")
    out, kinds = empty((3, n), "i32"), empty(6, "i32")
    want = np.stack([x * 3, x + 3, -np.array(x) + 2])
    outputs = [(out, exact(want)), (kinds, exact(np.array([-1, 0, 7, 100, 9, 100]) + 2))]
    return Run(nested_kernels, (6,), (x, v, out, kinds), outputs, {"N": n})


@mimw.kernel
def mixed_branches(x_ptr, out_ptr, n, MODE: ml.constexpr, DEEP: ml.constexpr):
    i = ml.program_id(0)
    x = ml.load(x_ptr + i)
    if x > n:
        if MODE == 0:
            r = x * 2
        elif MODE == 1:
            if x % 2 == 0:
                r = x // 2
            else:
                if DEEP:
                    r = -x
                else:
                    r = x
        else:
            r = 7
    else:
        if DEEP and MODE != 2:
            r = x + 1000
        else:
            r = x - 1000 if x < 0 else x + 2000
    ml.store(out_ptr + i, r)


@zoo(*[{"mode": m, "deep": d} for m in (0, 1, 2) for d in (False, True)])
def mixed_branches_case(rng: Any, mode: int, deep: bool) -> Run:
    x, out = array([-4, 0, 5, 6, 10, 11, 12], "i32"), empty(7, "i32")

    def pick(v: int) -> int:
        if v > 5:
            if mode == 0:
                return v * 2
            if mode == 1:
                return v // 2 if v % 2 == 0 else (-v if deep else v)
            return 7
        if deep and mode != 2:
            return v + 1000
        return v - 1000 if v < 0 else v + 2000

    outputs = [(out, exact([pick(int(v)) for v in x]))]
    return Run(mixed_branches, (7,), (x, out, 5), outputs, {"MODE": mode, "DEEP": deep}, num_warps=1)


@mimw.kernel
def unrolled(x_ptr, out_ptr, TAPS: ml.constexpr, N: ml.constexpr):
    # A convolution with constant taps, unrolled at compile time.
    offs = ml.arange(0, N)
    acc = ml.zeros((N,), ml.int32)
    for t in ml.static_range(TAPS):
        if t % 2 == 0:
            acc += ml.load(x_ptr + offs + t) * (t + 1)
        else:
            acc -= ml.load(x_ptr + offs + t)
    for k in ml.static_range(TAPS - 1, -1, -2):
        acc = acc * 3 + k
    ml.store(out_ptr + offs, acc)


@zoo(*[{"n": n, "taps": t} for n, t in ((1, 1), (33, 3), (96, 7))])
def unrolled_case(rng: Any, n: int, taps: int) -> Run:
    x, out = array(rng.integers(-9, 9, n + taps), "i32"), empty(n, "i32")
    want = sum((x[t : t + n] * (t + 1) if t % 2 == 0 else -x[t : t + n]) for t in range(taps))
    for k in range(taps - 1, -1, -2):
        want = want * 3 + k
    return Run(unrolled, (1,), (x, out), [(out, exact(want))], {"TAPS": taps, "N": n})


@mimw.kernel
def loop_steps(out_ptr, start, stop, STEP: ml.constexpr):
    count = 0
    total = 0
    for i in range(start, stop, STEP):
        count += 1
        total += i
    ml.store(out_ptr, count)
    ml.store(out_ptr + 1, total)


@zoo(
    *[
        {"start": a, "stop": b, "step": s}
        for a, b, s in ((0, 10, 3), (10, 0, -3), (5, 5, 1), (-7, 8, 5), (3, -9, -4), (0, 1, 100), (9, 2, 2))
    ]
)
def loop_steps_case(rng: Any, start: int, stop: int, step: int) -> Run:
    out, seen = empty(2, "i32"), list(range(start, stop, step))
    return Run(loop_steps, (1,), (out, start, stop), [(out, exact([len(seen), sum(seen)]))], {"STEP": step})


@mimw.kernel
def zero_trips(x_ptr, out_ptr, n):
    v = ml.load(x_ptr)
    i = -5
    for i in range(n):
        v = ml.load(x_ptr + 1 + i)
    ml.store(out_ptr, v)
    ml.store(out_ptr + 1, i)


@zoo(*sizes(0, 1, 4))
def zero_trips_case(rng: Any, n: int) -> Run:
    x, out = data(rng, 5, "i32"), empty(2, "i32")
    return Run(zero_trips, (1,), (x, out, n), [(out, exact([x[n], n - 1 if n else -5]))])


@mimw.kernel
def reused_name(x_ptr, out_ptr, n, m):
    total = 0
    for i in range(n):
        total += i
    for i in range(m):
        total += 100 * i * ml.load(x_ptr + i)
        for j in range(i):
            total += j
    ml.store(out_ptr, total)


@zoo(*[{"n": n, "m": m} for n, m in ((0, 0), (3, 4), (5, 2))])
def reused_name_case(rng: Any, n: int, m: int) -> Run:
    x, out = array(rng.integers(0, 50, 5), "i32"), empty(1, "i32")
    total = sum(range(n)) + sum(100 * i * int(x[i]) + sum(range(i)) for i in range(m))
    return Run(reused_name, (1,), (x, out, n, m), [(out, exact([total]))])


@mimw.kernel
def short_circuit(x_ptr, out_ptr, n):
    # The load on the right must not run where the left decides: it would leave the array.
    i = ml.program_id(0)
    if i < n and ml.load(x_ptr + i) > 3:
        ml.store(out_ptr + i, 1)
    elif i >= n or not ml.load(x_ptr + i) > 1:
        ml.store(out_ptr + i, 2)
    else:
        ml.store(out_ptr + i, 3)


@zoo(*sizes(0, 3, 6))
def short_circuit_case(rng: Any, n: int) -> Run:
    x, out = array(np.arange(n) % 6, "i32"), empty(8, "i32")
    want = [1 if i < n and x[i] > 3 else 2 if i >= n or x[i] <= 1 else 3 for i in range(8)]
    return Run(short_circuit, (8,), (x, out, n), [(out, exact(want))], num_warps=1)


@mimw.kernel
def widened_in_loop(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    # An int32 start becomes int64 in the loop: exact, so it is widened.
    total = 0
    for i in range(n):
        total = total + ml.load(x_ptr + i)
    ml.store(out_ptr, total)


@zoo(*sizes(0, 1, 9))
def widened_in_loop_case(rng: Any, n: int) -> Run:
    x, out = data(rng, 9, "i64"), empty(1, "i64")
    return Run(widened_in_loop, (1,), (x, out, n), [(out, exact([x[:n].sum(dtype=np.int64)]))], {"BLOCK": 1})


@mimw.kernel
def bisect(x_ptr, queries_ptr, out_ptr, n, steps, BLOCK: ml.constexpr):
    # Vectorised binary search: tiles carried through a loop, gathers by what they hold.
    offs = ml.arange(0, BLOCK)
    q = ml.load(queries_ptr + offs)
    low = ml.zeros((BLOCK,), ml.int32)
    high = ml.zeros((BLOCK,), ml.int32) + n
    for _ in range(steps):
        active = low < high
        mid = (low + high) // 2
        less = ml.load(x_ptr + mid, mask=active, other=0.0) < q
        low = ml.where(active & less, mid + 1, low)
        high = ml.where(active & ~less, mid, high)
    ml.store(out_ptr + offs, low)


@zoo(*[{"n": n, "m": m} for n, m in ((1, 3), (33, 40), (100, 96))])
def bisect_case(rng: Any, n: int, m: int) -> Run:
    x, q, out = array(np.sort(rng.standard_normal(n)), "f32"), data(rng, m, "f32"), empty(m, "i32")
    return Run(bisect, (1,), (x, q, out, n, n.bit_length()), [(out, exact(np.searchsorted(x, q)))], {"BLOCK": m})


@mimw.kernel
def mandelbrot(out_ptr, width, height, limit, BLOCK: ml.constexpr):
    # A while loop that ends when every lane has: the condition reduces a tile.
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    inside = offs < width * height
    cx = (offs % width).to(ml.float32) * 0.25 - 2.0
    cy = (offs // width).to(ml.float32) * 0.25 - 1.0
    x = ml.zeros((BLOCK,), ml.float32)
    y = ml.zeros((BLOCK,), ml.float32)
    count = ml.zeros((BLOCK,), ml.int32)
    step = 0
    alive = inside
    while step < limit and ml.sum(alive.to(ml.int32), axis=0) > 0:
        x, y = x * x - y * y + cx, 2.0 * x * y + cy
        alive = alive & (x * x + y * y < 4.0)
        count += alive.to(ml.int32)
        step += 1
    ml.store(out_ptr + offs, count, mask=inside)


@zoo(*[{"width": w, "height": h, "limit": k} for w, h, k in ((3, 3, 4), (12, 9, 5))])
def mandelbrot_case(rng: Any, width: int, height: int, limit: int) -> Run:
    n = width * height
    out = empty(n, "i32")
    offs = np.arange(n)
    # A grid of quarters: few steps stay exact in f32 and far from the border, so that rounding decides nothing.
    cx, cy = offs % width * 0.25 - 2.0, offs // width * 0.25 - 1.0
    x, y, count, alive = np.zeros(n), np.zeros(n), np.zeros(n, int), np.ones(n, bool)
    for _ in range(limit):
        x, y = x * x - y * y + cx, 2 * x * y + cy
        alive &= x * x + y * y < 4
        count += alive
    return Run(
        mandelbrot, (mimw.cdiv(n, 32),), (out, width, height, limit), [(out, exact(count))], {"BLOCK": 32}, num_warps=1
    )


@mimw.kernel
def horner(x_ptr, coefficients_ptr, out_ptr, degree, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs, mask=offs < n, other=0.0)
    y = ml.zeros((BLOCK,), ml.float64)
    for i in range(degree, -1, -1):
        y = ml.fma(y, x, ml.load(coefficients_ptr + i).to(ml.float64))
    ml.store(out_ptr + offs, y, mask=offs < n)


@zoo(*[{"n": n, "degree": d} for n, d in ((1, 0), (100, 5))])
def horner_case(rng: Any, n: int, degree: int) -> Run:
    x, c, out = data(rng, n, "f64"), data(rng, degree + 1, "f64"), empty(n, "f64")
    want = np.polynomial.polynomial.polyval(x, c)
    size = np.polynomial.polynomial.polyval(np.abs(x), np.abs(c))
    outputs = [(out, near(want, 1, size * 2.0**-50, engines_bitwise=True))]
    return Run(horner, (mimw.cdiv(n, 64),), (x, c, out, degree, n), outputs, {"BLOCK": 64})


@mimw.kernel
def many_warps(x_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    ml.store(out_ptr + offs, x - ml.sum(x, axis=0) + ml.cumsum(x, axis=0))


@zoo(*[{"n": n, "warps": w} for n, w in ((1, 16), (33, 1), (96, 2), (127, 4), (1000, 8), (1000, 16))], sm80=True)
def many_warps_case(rng: Any, n: int, warps: int) -> Run:
    x, out = array(rng.integers(-999, 999, n), "i32"), empty(n, "i32")
    return Run(many_warps, (1,), (x, out), [(out, exact(x - x.sum() + np.cumsum(x)))], {"BLOCK": n}, num_warps=warps)


@mimw.kernel
def helper_constants(out_ptr, KIND: ml.constexpr = "wide", N: ml.constexpr = 8):
    # Constants computed at compile time: defaults, Python functions, conditional expressions, tuples.
    size: ml.constexpr = N * 2 if KIND == "wide" else N
    shape = (size, 4)
    tile = ml.full(shape, len(shape) + max(1, 3), ml.int32)
    ml.static_assert(size >= N)
    offs = ml.arange(0, size)[:, None] * 4 + ml.arange(0, 4)[None, :]
    ml.store(out_ptr + offs, tile + ml.cdiv(size, 3) + offs)


@zoo(*[{"kind": k, "n": n} for k, n in (("wide", 8), ("narrow", 5))])
def helper_constants_case(rng: Any, kind: str, n: int) -> Run:
    size = 2 * n if kind == "wide" else n
    out = empty((size, 4), "i32")
    want = 5 + -(-size // 3) + np.arange(size * 4).reshape(size, 4)
    return Run(helper_constants, (1,), (out,), [(out, exact(want))], {"KIND": kind, "N": n})


@mimw.kernel
def optional_argument(x_ptr, bias_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    y = ml.load(x_ptr + offs, mask=offs < n)
    if bias_ptr is not None:
        y += ml.load(bias_ptr + offs, mask=offs < n)
    ml.store(out_ptr + offs, y, mask=offs < n)


@zoo(*each("bias", (True, False), n=40))
def optional_argument_case(rng: Any, bias: bool, n: int) -> Run:
    x, out = data(rng, n, "f32"), empty(n, "f32")
    b = data(rng, n, "f32") if bias else None
    return Run(
        optional_argument, (1,), (x, b, out, n), [(out, exact(x + b if b is not None else np.array(x)))], {"BLOCK": 64}
    )
