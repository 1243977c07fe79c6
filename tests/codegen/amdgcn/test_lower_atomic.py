"""Atomics for AMD: every kind and type with many lanes on few elements, against NumPy, in the simulator of machine code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
import mimw.language as ml
from tests.amdgcn_kit import run_compiled

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "f16": np.float16, "bf16": BF16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


@mimw.kernel
def counted(x_ptr, where_ptr, out_ptr, n, KIND: ml.constexpr, BLOCK: ml.constexpr):
    at = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = at < n
    place = ml.load(where_ptr + at, mask=mask, other=0)
    value = ml.load(x_ptr + at, mask=mask)
    if KIND == "add":
        ml.atomic_add(out_ptr + place, value, mask=mask)
    elif KIND == "max":
        ml.atomic_max(out_ptr + place, value, mask=mask)
    elif KIND == "min":
        ml.atomic_min(out_ptr + place, value, mask=mask)
    elif KIND == "and":
        ml.atomic_and(out_ptr + place, value, mask=mask)
    elif KIND == "or":
        ml.atomic_or(out_ptr + place, value, mask=mask)
    else:
        ml.atomic_xor(out_ptr + place, value, mask=mask)


@mimw.kernel
def tickets(counter_ptr, out_ptr, BLOCK: ml.constexpr):
    mine = ml.atomic_add(counter_ptr + ml.arange(0, BLOCK) // BLOCK, 1)
    ml.store(out_ptr + ml.program_id(0) * BLOCK + ml.arange(0, BLOCK), mine)


@mimw.kernel
def first_come(lock_ptr, out_ptr):
    pid = ml.program_id(0)
    old = ml.atomic_cas(lock_ptr, 0, pid + 1)
    ml.store(out_ptr + pid, old)
    ml.atomic_xchg(out_ptr + ml.num_programs(0) + pid, pid * 3)


def _run(kernel: Any, types: list[str], constants: dict[str, Any], target: str, grid: int, args: list[Any]) -> None:
    run_compiled(kernel.compile(types, constants, target=target), (grid,), args)


_UFUNCS = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
CASES = [(k, d) for d in TYPES for k in _UFUNCS if d[0] in "iu" or k in ("add", "max", "min")]


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_every_lane_counts_once(kind: str, dtype: str) -> None:
    target = "gfx942" if len(kind) + len(dtype) & 1 else "gfx950"
    element = np.dtype(TYPES[dtype])
    rng = np.random.default_rng(1)
    n = 200
    x = rng.integers(0, 4, n).astype(element)
    where = rng.integers(0, 7, n).astype(np.int32)
    out = np.full(8, 1, element)
    want = out.copy()
    for place, value in zip(where, x, strict=True):
        want[place] = _UFUNCS[kind](want[place], value).astype(element)
    types = [f"*{dtype}", "*i32", f"*{dtype}", "i32"]
    _run(counted, types, {"KIND": kind, "BLOCK": 128}, target, 2, [x, where, out, n])
    np.testing.assert_array_equal(out.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_results_are_all_different(target: str) -> None:
    counter, out = np.zeros(1, np.int32), np.full(512, -1, np.int32)
    _run(tickets, ["*i32", "*i32"], {"BLOCK": 256}, target, 2, [counter, out])
    assert counter[0] == 512
    assert sorted(out) == list(range(512))


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_one_compare_and_swap_wins(target: str) -> None:
    lock, out = np.zeros(1, np.int32), np.full(8, -1, np.int32)
    _run(first_come, ["*i32", "*i32"], {}, target, 4, [lock, out])
    winner = int(lock[0]) - 1
    assert 0 <= winner < 4
    assert [int(v) for v in out[:4]] == [0 if i == winner else winner + 1 for i in range(4)]
    np.testing.assert_array_equal(out[4:], np.arange(4) * 3)


@mimw.kernel
def own_tickets(counter_ptr, out_ptr, BLOCK: ml.constexpr):
    at = ml.arange(0, BLOCK)
    mine = ml.atomic_add(counter_ptr + at, 1)
    ml.store(out_ptr + at, mine)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_an_acquire_is_done_before_the_waves_meet(target: str) -> None:
    """Between the atomic and the barrier its wave waits; behind the barrier the caches go."""
    kernel = own_tickets.compile(["*i32:16", "*i32:16"], {"BLOCK": 256}, target=target)
    lines = [line.split() for line in str(kernel.asm["amdgcn"]).splitlines() if line.startswith("  ")]
    names = [line[0] for line in lines if line[0] not in (";", "s_mov_b64", "s_nop")]
    behind = names[max(i for i, name in enumerate(names) if name == "global_atomic_add") :]
    assert behind[1:4] == ["s_waitcnt", "s_barrier", "buffer_inv"]
