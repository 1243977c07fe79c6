"""Loops over blocks that TMA brings: any number of trips, phases that go on from loop to loop, several groups, memory that is short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.language.engines_kit import both, compile_for


@mimw.kernel
def products(
    a, b, c, K, times, M: ml.constexpr, N: ml.constexpr, BK: ml.constexpr, BIAS: ml.constexpr, EARLY: ml.constexpr
):
    """`times` products one after the other, each from the same blocks: the barriers' phases go on."""
    for t in range(times):
        acc = ml.zeros((M, N), ml.float32)
        at = 0
        for k in range(0, K, BK):
            x = a.load([0, k])
            y = b.load([0, at])
            acc = ml.dot(x, y.T, acc)
            if BIAS:  # a product's operand that is looked at too, and a second group of copies
                z = b.load([0, k])
                acc += ml.sum(x.to(ml.float32), 1)[:, None] + ml.sum(z.to(ml.float32), 1)[None, :]
            at += BK
            if EARLY and k > 64:
                break
        c.store([t * M, 0], acc)


def case(trips: int, times: int = 2, warps: int = 4, **rest: Any) -> tuple[list[Any], dict[str, Any], Any]:
    """Arguments, constants and what comes out."""
    m, n, bk = 64, 32, 32
    k = max(1, trips) * bk
    rng = np.random.default_rng(trips)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(np.float16) for rows in (m, n))
    c = np.full((times * m, n), 7, np.float32)
    args = [
        TensorDescriptor(a, a.shape, [k, 1], [m, bk]),
        TensorDescriptor(b, b.shape, [k, 1], [n, bk]),
        TensorDescriptor(c, c.shape, [n, 1], [m, n]),
        trips * bk,
        times,
    ]
    wide = [x.astype(np.float32) for x in (a, b)]
    want = wide[0] @ wide[1].T
    if rest.get("BIAS"):
        want = want + wide[0].sum(1)[:, None] + wide[1].sum(1)
    constants = {"M": m, "N": n, "BK": bk, "BIAS": False, "EARLY": False, "num_warps": warps, **rest}
    return args, constants, np.concatenate([want if trips else np.zeros((m, n), np.float32)] * times)


def remarks(args: list[Any], constants: dict[str, Any]) -> list[str]:
    constants = dict(constants)
    options = {k: constants.pop(k) for k in ("num_warps", "num_stages") if k in constants}
    compiled = compile_for(products, args, constants, "sm_90a", **options)
    assert not compiled.metadata.warnings
    return [r["text"] for r in compiled.metadata.extra["remarks"] if r["kind"] == "pipeline"]


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 7])
@pytest.mark.parametrize(("stages", "warps"), [(2, 4), (3, 8), (4, 4)])
def test_trips(trips: int, stages: int, warps: int) -> None:
    args, constants, want = case(trips, 2, warps, num_stages=stages)
    got = both(products, (1,), args, schedules=1, **constants)
    np.testing.assert_array_equal(got[2], want)


def test_several_groups_and_reads() -> None:
    args, constants, want = case(5, 3, 8, BIAS=True, num_stages=3)
    got = both(products, (1,), args, schedules=1, **constants)
    np.testing.assert_array_equal(got[2], want)
    assert "pipelined: 3 slots, copies start 2 trips ahead" in remarks(args, constants)


def test_what_is_said() -> None:
    args, constants, _ = case(3)
    assert "pipelined: 3 slots, copies start 1 trip ahead, one product stays in flight" in remarks(args, constants)
    assert "pipelined: 2 slots, copies start 1 trip ahead" in remarks(args, {**constants, "num_stages": 2})
    assert any("it may be left early" in text for text in remarks(args, {**constants, "EARLY": True}))


def test_a_loop_that_is_left_early_still_runs() -> None:
    args, constants, _ = case(6, 1, EARLY=True)
    got = both(products, (1,), args, schedules=1, **constants)
    wide = [x.base[:, : 4 * 32].astype(np.float32) for x in args[:2]]
    np.testing.assert_array_equal(got[2], wide[0] @ wide[1].T)


@mimw.kernel
def large(a, b, c, K, M: ml.constexpr, N: ml.constexpr, BK: ml.constexpr):
    acc = ml.zeros((M, N), ml.float32)
    for k in range(0, K, BK):
        acc = ml.dot(a.load([0, k]), b.load([0, k]).T, acc)
    c.store([0, 0], acc.to(ml.float16))


@pytest.mark.parametrize(("bk", "said"), [(128, "pipelined: 3 slots"), (256, "not pipelined: two slots do not fit")])
def test_fewer_slots_where_memory_is_short(bk: int, said: str) -> None:
    a = np.zeros((128, 256), np.float16)
    c = np.zeros((128, 128), np.float16)
    args = [
        TensorDescriptor(x, x.shape, [x.shape[1], 1], [128, min(n, x.shape[1])])
        for x, n in ((a, bk), (a, bk), (c, 128))
    ]
    compiled = compile_for(large, [*args, 256], {"M": 128, "N": 128, "BK": bk}, "sm_90a", num_warps=8, num_stages=4)
    assert any(r["text"].startswith(said) for r in compiled.metadata.extra["remarks"])


def test_what_is_waited_for_gives_its_bytes_back() -> None:
    """The block that is stored after the loop lies where the rings were; two loops in turn use one room."""
    a, c = np.zeros((128, 256), np.float16), np.zeros((128, 128), np.float16)
    args = [TensorDescriptor(x, x.shape, [x.shape[1], 1], [128, n]) for x, n in ((a, 64), (a, 64), (c, 128))]
    compiled = compile_for(large, [*args, 256], {"M": 128, "N": 128, "BK": 64}, "sm_90a", num_warps=8, num_stages=3)
    rings = 3 * 2 * 128 * 64 * 2
    assert rings <= compiled.metadata.shared_bytes < rings + 1024
    args, constants, want = case(2, 3, num_stages=4)
    got = both(turns, (1,), args, schedules=1, **{k: v for k, v in constants.items() if k not in ("BIAS", "EARLY")})
    np.testing.assert_array_equal(got[2], 2 * want)


@mimw.kernel
def turns(a, b, c, K, times, M: ml.constexpr, N: ml.constexpr, BK: ml.constexpr):
    for t in range(times):
        acc = ml.zeros((M, N), ml.float32)
        for k in range(0, K, BK):
            acc = ml.dot(a.load([0, k]), b.load([0, k]).T, acc)
        for k in range(0, K, BK):
            acc = ml.dot(a.load([0, k]), b.load([0, k]).T, acc)
        c.store([t * M, 0], acc)
