"""Matrix products: all operand types and majors, odd and small sizes, epilogues, chains, batches, split accumulators."""

from __future__ import annotations

from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.registry import DTYPES, Run, Want, array, data, empty, exact, near, strides, wide, zoo


@mimw.kernel
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: ml.constexpr,
    BLOCK_N: ml.constexpr,
    BLOCK_K: ml.constexpr,
    PRECISION: ml.constexpr,
    ACC: ml.constexpr,
):
    offs_m = ml.program_id(0) * BLOCK_M + ml.arange(0, BLOCK_M)
    offs_n = ml.program_id(1) * BLOCK_N + ml.arange(0, BLOCK_N)
    offs_k = ml.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = ml.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for k in range(0, K, BLOCK_K):
        a = ml.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k), other=0)
        b = ml.load(b_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n[None, :] < N), other=0)
        acc = ml.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    ml.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


ACCUMULATOR = {"i8": ("i32", ml.int32), "u8": ("i32", ml.int32), "f64": ("f64", ml.float64)}
# Relative size of what one product may lose, beyond the K * 2^-22 of the accumulation.
UNIT = {"tf32": 2.0**-10, "ieee": 0.0}


def placed(values: Any, dtype: str, major: str) -> Any:
    """A matrix in memory: row-major ("r") or column-major ("c"), with a gap after each line."""
    rows, cols = values.shape
    gap = 16 // DTYPES[dtype].itemsize
    steps = (cols + gap, 1) if major == "r" else (1, rows + gap)
    return array(values, dtype, strides=steps)


def product(a: Any, b: Any, precision: str, out: str, more: Any = 0.0) -> Want:
    """a @ b (+ `more`) with the bound that mma.dot declares."""
    if a.dtype.kind in "iu":
        return exact(a.astype(np.int64) @ b.astype(np.int64) + np.asarray(more).astype(np.int64))
    x, y = wide(a), wide(b)
    size = np.abs(x) @ np.abs(y) + np.abs(more)
    k = x.shape[1]
    if a.dtype == np.float64:
        return near(x @ y + more, 1, size * k * 2.0**-52)
    # fp8 products on the tensor core lose more: see mma.dot.
    fp8 = a.dtype.itemsize == 1
    unit = (2.0**-10 if fp8 else k * 2.0**-22) + (UNIT[precision] if a.dtype == np.float32 else 0.0)
    return near(x @ y + more, 1, size * unit)


def small(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Operands: normal numbers, small integers for integer types."""
    if dtype in ("i8", "u8"):
        info = np.iinfo(DTYPES[dtype])
        return rng.integers(info.min, info.max, shape, endpoint=True)
    return rng.standard_normal(shape)


def matmul_run(
    rng: Any,
    size: tuple[int, int, int],
    tile: tuple[int, int, int],
    dtype: str,
    majors: str = "rrr",
    out: str = "",
    precision: str = "ieee",
    **options: Any,
) -> Run:
    m, n, k = size
    acc_name, acc = ACCUMULATOR.get(dtype, ("f32", ml.float32))
    out = out or acc_name
    a, b = placed(small(rng, (m, k), dtype), dtype, majors[0]), placed(small(rng, (k, n), dtype), dtype, majors[1])
    c = empty((m, n), out, strides=(n + 5, 1) if majors[2] == "r" else (1, m + 5))
    args = (a, b, c, m, n, k, *strides(a), *strides(b), *strides(c))
    constants = {"BLOCK_M": tile[0], "BLOCK_N": tile[1], "BLOCK_K": tile[2], "PRECISION": precision, "ACC": acc}
    grid = (mimw.cdiv(m, tile[0]), mimw.cdiv(n, tile[1]))
    return Run(matmul, grid, args, [(c, product(a, b, precision, out))], constants, **options)


@zoo(
    {"size": (16, 16, 16), "tile": (16, 16, 16)},
    {"size": (64, 64, 64), "tile": (64, 64, 32)},
    {"size": (77, 65, 50), "tile": (64, 64, 32)},
    {"size": (128, 128, 128), "tile": (128, 128, 64)},
    {"size": (130, 70, 200), "tile": (128, 64, 64), "num_warps": 8},
    {"size": (1, 1, 1), "tile": (64, 32, 16)},
    {"size": (96, 80, 0), "tile": (64, 64, 32)},
    {"size": (0, 32, 32), "tile": (64, 64, 32)},
    sm80=True,
)
def matmul_f16_case(rng: Any, size: tuple[int, int, int], tile: tuple[int, int, int], **options: Any) -> Run:
    return matmul_run(rng, size, tile, "f16", **options)


@zoo(
    *[{"size": (65, 48, 40), "tile": (64, 32, 32), "majors": a + b + c} for a in "rc" for b in "rc" for c in "rc"],
    sm80=True,
)
def matmul_bf16_majors_case(rng: Any, size: tuple[int, int, int], tile: tuple[int, int, int], majors: str) -> Run:
    return matmul_run(rng, size, tile, "bf16", majors, out="bf16")


@zoo(
    *[{"size": (64, 64, 70), "tile": (64, 64, 32), "num_stages": s} for s in (1, 2, 4)],
    {"size": (128, 128, 256), "tile": (128, 128, 64), "num_stages": 4},
)
def matmul_stages_case(rng: Any, size: tuple[int, int, int], tile: tuple[int, int, int], num_stages: int) -> Run:
    return matmul_run(rng, size, tile, "bf16", num_stages=num_stages)


@zoo(
    *[
        {"size": s, "tile": t, "majors": j}
        for s, t, j in (
            ((16, 16, 8), (16, 16, 8), "rrr"),
            ((64, 40, 33), (64, 32, 32), "rcr"),
            ((70, 64, 64), (64, 64, 32), "crr"),
        )
    ],
    sm80=True,
)
def matmul_tf32_case(rng: Any, size: tuple[int, int, int], tile: tuple[int, int, int], majors: str) -> Run:
    return matmul_run(rng, size, tile, "f32", majors, precision="tf32")


@zoo(
    *[
        {"size": s, "tile": t, "majors": j}
        for s, t, j in (
            ((5, 3, 7), (8, 4, 8), "rrr"),
            ((33, 31, 40), (32, 32, 16), "rcr"),
            ((16, 64, 20), (16, 32, 32), "crc"),
        )
    ]
)
def matmul_ieee_case(rng: Any, size: tuple[int, int, int], tile: tuple[int, int, int], majors: str) -> Run:
    return matmul_run(rng, size, tile, "f32", majors)


@zoo(
    *[
        {"size": s, "tile": t, "majors": j, "dtype": d}
        for d in ("e4m3", "e5m2", "e4m3z", "e5m2z")
        for s, t, j in (((64, 64, 64), (64, 64, 64), "rcr"), ((33, 40, 70), (64, 32, 32), "rrr"))
    ]
)
def matmul_fp8_case(rng: Any, size: tuple[int, int, int], tile: tuple[int, int, int], majors: str, dtype: str) -> Run:
    return matmul_run(rng, size, tile, dtype, majors)


@zoo(
    *[
        {"size": s, "tile": t, "majors": j, "dtype": d}
        for d in ("i8", "u8")
        for s, t, j in (
            ((16, 16, 32), (16, 16, 32), "rcr"),
            ((65, 33, 50), (64, 32, 32), "rrr"),
            ((40, 24, 64), (32, 32, 64), "ccr"),
        )
    ],
    sm80=True,
)
def matmul_int8_case(rng: Any, size: tuple[int, int, int], tile: tuple[int, int, int], majors: str, dtype: str) -> Run:
    return matmul_run(rng, size, tile, dtype, majors)


@zoo(
    *[
        {"size": s, "tile": t, "majors": j}
        for s, t, j in (((8, 8, 4), (8, 8, 4), "rrr"), ((33, 17, 20), (32, 16, 16), "rcr"))
    ]
)
def matmul_f64_case(rng: Any, size: tuple[int, int, int], tile: tuple[int, int, int], majors: str) -> Run:
    return matmul_run(rng, size, tile, "f64", majors)


@mimw.kernel
def dot_once(a_ptr, b_ptr, c_ptr, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    a = ml.load(a_ptr + ml.arange(0, M)[:, None] * K + ml.arange(0, K)[None, :])
    b = ml.load(b_ptr + ml.arange(0, K)[:, None] * N + ml.arange(0, N)[None, :])
    ml.store(c_ptr + ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :], ml.dot(a, b))


ANY_SIZE = (
    (1, 1, 1),
    (3, 5, 2),
    (16, 8, 16),
    (31, 33, 17),
    (1, 96, 40),
    (64, 1, 3),
    (64, 96, 16),
    (96, 24, 48),
    (127, 16, 31),
    (192, 40, 33),
)


@zoo(*[{"size": s, "warps": w} for s, w in zip(ANY_SIZE, (4, 1, 1, 2, 4, 4, 4, 4, 8, 4), strict=True)], sm80=True)
def dot_any_size_case(rng: Any, size: tuple[int, int, int], warps: int) -> Run:
    m, n, k = size
    a, b, c = data(rng, (m, k), "f16"), data(rng, (k, n), "f16"), empty((m, n), "f32")
    return Run(
        dot_once, (1,), (a, b, c), [(c, product(a, b, "ieee", "f32"))], {"M": m, "N": n, "K": k}, num_warps=warps
    )


@mimw.kernel
def dot_half_accumulator(a_ptr, b_ptr, c_ptr, S: ml.constexpr):
    r = ml.arange(0, S)
    at = r[:, None] * S + r[None, :]
    ml.store(c_ptr + at, ml.dot(ml.load(a_ptr + at), ml.load(b_ptr + at), out_dtype=ml.float16))


@zoo(*[{"s": s} for s in (16, 64)])
def dot_half_accumulator_case(rng: Any, s: int) -> Run:
    a, b, c = data(rng, (s, s), "f16"), data(rng, (s, s), "f16"), empty((s, s), "f16")
    size = np.abs(wide(a)) @ np.abs(wide(b))
    return Run(
        dot_half_accumulator, (1,), (a, b, c), [(c, near(wide(a) @ wide(b), 1, size * s / 16 * 2.0**-10))], {"S": s}
    )


@mimw.kernel
def linear(
    x_ptr,
    w_ptr,
    bias_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: ml.constexpr,
    BLOCK_N: ml.constexpr,
    BLOCK_K: ml.constexpr,
    RELU: ml.constexpr,
):
    # out = relu(x @ w.T + bias), w: [N, K].
    m = ml.program_id(0) * BLOCK_M + ml.arange(0, BLOCK_M)
    n = ml.program_id(1) * BLOCK_N + ml.arange(0, BLOCK_N)
    acc = ml.zeros((BLOCK_M, BLOCK_N), ml.float32)
    for start in range(0, K, BLOCK_K):
        k = start + ml.arange(0, BLOCK_K)
        x = ml.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = ml.load(w_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        acc += ml.dot(x, ml.trans(w))
    acc += ml.load(bias_ptr + n, mask=n < N, other=0.0)[None, :].to(ml.float32)
    if RELU:
        acc = ml.maximum(acc, 0.0)
    ml.store(
        out_ptr + m[:, None] * N + n[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=(m < M)[:, None] & (n < N)[None, :],
    )


@zoo(
    *[
        {"size": s, "relu": r, "dtype": d}
        for s, r, d in (((16, 16, 16), True, "f16"), ((70, 33, 40), True, "bf16"), ((64, 64, 64), False, "f16"))
    ],
    sm80=True,
)
def linear_case(rng: Any, size: tuple[int, int, int], relu: bool, dtype: str) -> Run:
    m, n, k = size
    x, w, bias, out = data(rng, (m, k), dtype), data(rng, (n, k), dtype), data(rng, n, dtype), empty((m, n), dtype)
    want = product(x, w.T, "ieee", dtype, wide(bias)[None, :])
    if relu:
        want = near(np.maximum(want.value, 0), 1, want.absolute)
    constants = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "RELU": relu}
    return Run(linear, (mimw.cdiv(m, 64), mimw.cdiv(n, 32)), (x, w, bias, out, m, n, k), [(out, want)], constants)


@mimw.kernel
def batched(a_ptr, b_ptr, c_ptr, sab, sbb, scb, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    batch = ml.program_id(2)
    m = ml.arange(0, M)[:, None]
    n = ml.arange(0, N)[None, :]
    a = ml.load(a_ptr + batch * sab + m * K + ml.arange(0, K)[None, :])
    b = ml.load(b_ptr + batch * sbb + ml.arange(0, K)[:, None] * N + n)
    ml.store(c_ptr + batch * scb + m * N + n, ml.dot(a, b))


@zoo(*[{"batch": b, "shared": s} for b, s in ((1, False), (3, False), (2, True))])
def batched_case(rng: Any, batch: int, shared: bool) -> Run:
    m, n, k = 16, 24, 32
    a = data(rng, (batch, m, k), "bf16")
    b = data(rng, (1 if shared else batch, k, n), "bf16")
    c = empty((batch, m, n), "f32")
    wants = [product(a[i], b[0 if shared else i], "ieee", "f32") for i in range(batch)]
    want = near(np.stack([w.value for w in wants]), 1, np.stack([w.absolute for w in wants]))
    args = (a, b, c, m * k, 0 if shared else k * n, m * n)
    return Run(batched, (1, 1, batch), args, [(c, want)], {"M": m, "N": n, "K": k}, num_warps=2)


@mimw.kernel
def split_accumulators(a_ptr, b_ptr, c_ptr, d_ptr, K, M: ml.constexpr, N: ml.constexpr, BLOCK_K: ml.constexpr):
    # Two products that share an operand, carried side by side.
    m = ml.arange(0, M)[:, None]
    n = ml.arange(0, N)[None, :]
    left = ml.zeros((M, N), ml.float32)
    right = ml.zeros((M, N), ml.float32)
    for k in range(0, K, BLOCK_K):
        cols = k + ml.arange(0, BLOCK_K)
        a = ml.load(a_ptr + m * K + cols[None, :])
        b0 = ml.load(b_ptr + cols[:, None] * (2 * N) + n)
        b1 = ml.load(b_ptr + cols[:, None] * (2 * N) + N + n)
        left = ml.dot(a, b0, left)
        right = ml.dot(a, b1, right)
    ml.store(c_ptr + m * N + n, left)
    ml.store(d_ptr + m * N + n, right - left)


@zoo(*[{"m": m, "n": n, "k": k} for m, n, k in ((16, 16, 32), (64, 32, 64), (64, 64, 96))], sm80=True)
def split_accumulators_case(rng: Any, m: int, n: int, k: int) -> Run:
    a, b = data(rng, (m, k), "f16"), data(rng, (k, 2 * n), "f16")
    c, d = empty((m, n), "f32"), empty((m, n), "f32")
    one, two = product(a, b[:, :n], "ieee", "f32"), product(a, b[:, n:], "ieee", "f32")
    outputs = [(c, one), (d, near(two.value - one.value, 1, one.absolute + two.absolute))]
    return Run(split_accumulators, (1,), (a, b, c, d, k), outputs, {"M": m, "N": n, "BLOCK_K": 32})


@mimw.kernel
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, n, scale, M: ml.constexpr, N: ml.constexpr, D: ml.constexpr, CAUSAL: ml.constexpr
):
    rows = ml.program_id(0) * M + ml.arange(0, M)
    d = ml.arange(0, D)
    q = ml.load(q_ptr + rows[:, None] * D + d[None, :], mask=(rows < n)[:, None], other=0.0)
    biggest = ml.full((M,), -float("inf"), ml.float32)
    total = ml.zeros((M,), ml.float32)
    acc = ml.zeros((M, D), ml.float32)
    end = min(n, (ml.program_id(0) + 1) * M) if CAUSAL else n
    for start in range(0, end, N):
        cols = start + ml.arange(0, N)
        k = ml.load(k_ptr + cols[:, None] * D + d[None, :], mask=(cols < n)[:, None], other=0.0)
        v = ml.load(v_ptr + cols[:, None] * D + d[None, :], mask=(cols < n)[:, None], other=0.0)
        s = ml.dot(q, ml.trans(k)) * scale
        keep = (cols < n)[None, :]
        if CAUSAL:
            keep = keep & (cols[None, :] <= rows[:, None])
        s = ml.where(keep, s, -float("inf"))
        new = ml.maximum(biggest, ml.max(s, axis=1))
        p = ml.exp(s - new[:, None])
        alpha = ml.exp(biggest - new)
        total = total * alpha + ml.sum(p, axis=1)
        acc = acc * alpha[:, None] + ml.dot(p.to(v.dtype), v)
        biggest = new
    ml.store(
        out_ptr + rows[:, None] * D + d[None, :],
        (acc / total[:, None]).to(out_ptr.dtype.element_ty),
        mask=(rows < n)[:, None],
    )


@zoo(
    *[
        {"n": n, "m": m, "d": d, "causal": c, "dtype": t}
        for n, m, d, c, t in ((16, 16, 16, False, "f16"), (33, 16, 32, True, "f16"), (100, 64, 64, True, "bf16"))
    ],
    sm80=True,
)
def attention_case(rng: Any, n: int, m: int, d: int, causal: bool, dtype: str) -> Run:
    q, k, v, out = data(rng, (n, d), dtype), data(rng, (n, d), dtype), data(rng, (n, d), dtype), empty((n, d), "f32")
    s = wide(q) @ wide(k).T / np.sqrt(d)
    if causal:
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    # The weights are rounded to the operand type before the second product.
    bound = p @ np.abs(wide(v)) * (2.0**-8 if dtype == "bf16" else 2.0**-11) * 1.5
    outputs = [(out, near(p @ wide(v), 1, bound))]
    constants = {"M": m, "N": 32, "D": d, "CAUSAL": causal}
    return Run(attention, (mimw.cdiv(n, m),), (q, k, v, out, n, float(1 / np.sqrt(d))), outputs, constants)


@mimw.kernel
def chained_dots(a_ptr, b_ptr, c_ptr, out_ptr, S: ml.constexpr):
    # (a @ b) @ c: the accumulator becomes an operand.
    r = ml.arange(0, S)
    at = r[:, None] * S + r[None, :]
    ab = ml.dot(ml.load(a_ptr + at), ml.load(b_ptr + at))
    ml.store(out_ptr + at, ml.dot(ab.to(ml.float16), ml.load(c_ptr + at)))


@zoo(*[{"s": s, "warps": w} for s, w in ((16, 1), (32, 4), (64, 4))], sm80=True)
def chained_dots_case(rng: Any, s: int, warps: int) -> Run:
    a, b, c = (array(rng.integers(-2, 3, (s, s)), "f16") for _ in range(3))
    out = empty((s, s), "f32")
    # Small integers: every sum is exact in f32, the middle one in f16 too (below 2048).
    want = wide(a) @ wide(b) @ wide(c)
    return Run(chained_dots, (1,), (a, b, c, out), [(out, exact(want))], {"S": s}, num_warps=warps)


@mimw.kernel
def mixed_weights(x_ptr, w_ptr, scale_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    # int8 weights are converted on the way to the product.
    m = ml.arange(0, M)[:, None]
    n = ml.arange(0, N)
    k = ml.arange(0, K)
    w = ml.load(w_ptr + k[:, None] * N + n[None, :]).to(ml.bfloat16)
    acc = ml.dot(ml.load(x_ptr + m * K + k[None, :]), w)
    ml.store(out_ptr + m * N + n[None, :], acc * ml.load(scale_ptr + n)[None, :])


@zoo(*[{"m": m, "n": n, "k": k} for m, n, k in ((16, 16, 16), (33, 24, 64), (64, 64, 32))])
def mixed_weights_case(rng: Any, m: int, n: int, k: int) -> Run:
    x, w = data(rng, (m, k), "bf16"), data(rng, (k, n), "i8")
    scale, out = data(rng, n, "f32"), empty((m, n), "f32")
    a, b, s = wide(x), w.astype(np.float64), wide(scale)
    bound = np.abs(a) @ np.abs(b) * np.abs(s) * k * 2.0**-22
    return Run(mixed_weights, (1,), (x, w, scale, out), [(out, near(a @ b * s, 2, bound))], {"M": m, "N": n, "K": k})


@mimw.kernel
def gram(x_ptr, out_ptr, n, S: ml.constexpr, BLOCK: ml.constexpr):
    # x.T @ x: one tile is both operands, once transposed.
    c = ml.arange(0, S)
    acc = ml.zeros((S, S), ml.float32)
    for start in range(0, n, BLOCK):
        r = start + ml.arange(0, BLOCK)
        x = ml.load(x_ptr + r[:, None] * S + c[None, :], mask=(r < n)[:, None], other=0.0)
        acc = ml.dot(x.T, x, acc)
    ml.store(out_ptr + c[:, None] * S + c[None, :], acc)


@zoo(*[{"n": n, "s": s} for n, s in ((16, 16), (50, 32), (100, 64))])
def gram_case(rng: Any, n: int, s: int) -> Run:
    x, out = data(rng, (n, s), "bf16"), empty((s, s), "f32")
    return Run(
        gram,
        (1,),
        (x, out, n),
        [(out, product(np.ascontiguousarray(x.T), np.array(x), "ieee", "f32"))],
        {"S": s, "BLOCK": 32},
    )


@mimw.kernel
def grouped_order(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    BLOCK: ml.constexpr,
    K: ml.constexpr,
    GROUP: ml.constexpr,
):
    # The L2-friendly walk of the tiles: swizzle2d.
    tiles_m = ml.cdiv(M, BLOCK)
    tiles_n = ml.cdiv(N, BLOCK)
    pid = ml.program_id(0)
    pid_m, pid_n = ml.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, GROUP)
    m = pid_m * BLOCK + ml.arange(0, BLOCK)
    n = pid_n * BLOCK + ml.arange(0, BLOCK)
    k = ml.arange(0, K)
    a = ml.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None], other=0.0)
    b = ml.load(b_ptr + k[:, None] * N + n[None, :], mask=(n < N)[None, :], other=0.0)
    ml.store(c_ptr + m[:, None] * N + n[None, :], ml.dot(a, b), mask=(m < M)[:, None] & (n < N)[None, :])


@zoo(*[{"m": m, "n": n, "group": g} for m, n, g in ((16, 16, 1), (60, 40, 2), (90, 33, 4))])
def grouped_order_case(rng: Any, m: int, n: int, group: int) -> Run:
    a, b, c = data(rng, (m, 16), "f16"), data(rng, (16, n), "f16"), empty((m, n), "f32")
    tiles = mimw.cdiv(m, 16) * mimw.cdiv(n, 16)
    constants = {"BLOCK": 16, "K": 16, "GROUP": group}
    return Run(grouped_order, (tiles,), (a, b, c, m, n), [(c, product(a, b, "ieee", "f32"))], constants, num_warps=1)
