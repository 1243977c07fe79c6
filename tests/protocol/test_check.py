"""`Kernel.check`: several schedules of one launch in the tile simulator."""

from __future__ import annotations

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw import CompilationError, LaunchError, SimulationError, TensorDescriptor


@mimw.kernel
def accumulate(x, y, n, SIZE: ml.constexpr = 16):
    at = ml.program_id(0) * SIZE + ml.arange(0, SIZE)
    ml.store(y + at, ml.load(y + at, mask=at < n) + ml.load(x + at, mask=at < n), mask=at < n)


@mimw.kernel
def phase_by_data(x, y):
    """The phase that the reader waits for is data: 0 is right, 1 passes at once."""
    buf = ml.local_alloc((16,), ml.float32, 1)
    done = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.local_store(buf[0], ml.load(x + ml.arange(0, 16)))
            ml.barrier_arrive(done[0])
        with ml.async_task(num_warps=4):
            ml.barrier_wait(done[0], ml.load(y).to(ml.int32))
            ml.store(y + ml.arange(0, 16), ml.local_load(buf[0]))


@mimw.kernel
def waits_for_nobody(x):
    bars = ml.alloc_barriers(1)
    ml.barrier_wait(bars[0], 0)


@mimw.kernel
def through_shared(a, d):
    buf = ml.local_alloc((8, 16), ml.float32, 1)
    full = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], 512)
    ml.async_descriptor_load(a, buf[0], [0, 0], full[0])
    ml.barrier_wait(full[0], 0)
    ml.async_descriptor_store(d, buf[0], [0, 0], store_reduce="add")
    ml.async_descriptor_store_wait(0)


def test_a_right_kernel_passes_and_every_run_starts_from_the_same_arrays() -> None:
    x, y = np.arange(40, dtype=np.float32), np.ones(40, np.float32)
    accumulate.check(x, y, 40, grid=lambda meta: (mimw.cdiv(meta["n"], meta["SIZE"]),), schedules=3)
    np.testing.assert_array_equal(y, x + 1)
    accumulate.check(x, y[20:], 20, grid=(2,), SIZE=32, num_warps=1)
    np.testing.assert_array_equal(y, np.r_[x[:20] + 1, x[20:] + 1 + x[:20]])


def test_descriptors() -> None:
    a, d = np.full((8, 16), 2.0, np.float32), np.ones((8, 16), np.float32)
    blocks = [TensorDescriptor(v, v.shape, (16, 1), (8, 16)) for v in (a, d)]
    through_shared.check(*blocks, grid=1)
    assert (d == 3.0).all()


def test_what_compilation_says_comes_first() -> None:
    with pytest.raises(CompilationError) as caught:
        waits_for_nobody.check(np.zeros(1, np.float32), grid=1)
    assert caught.value.code == "barrier-never-arrived" and caught.value.loc.file == __file__


def test_faults_are_raised_with_their_line() -> None:
    x, y = np.ones(16, np.float32), np.zeros(16, np.float32)
    phase_by_data.check(x, y, grid=1)
    y[:] = 1.0
    with pytest.raises(SimulationError) as caught:
        phase_by_data.check(x, y, grid=1)
    assert caught.value.code in ("race", "deadlock") and caught.value.loc is not None
    assert caught.value.loc.file == __file__


@mimw.kernel
def read_unwritten(y):
    buf = ml.local_alloc((16,), ml.float32, 2)
    ml.local_store(buf[0], ml.full((16,), 1.0, ml.float32))
    ml.store(y + ml.arange(0, 16), ml.local_load(buf[1]))


@mimw.kernel
def last_one_wins(y):
    ml.store(y, ml.program_id(0).to(ml.float32))


def test_what_is_found_beside_faults_is_returned() -> None:
    checked = read_unwritten.check(np.zeros(16, np.float32), grid=1, schedules=3)
    (finding,) = checked.findings
    assert (finding.code, finding.severity, finding.seed, finding.kernel) == (
        "unwritten-read",
        "warning",
        0,
        "read_unwritten",
    )
    as_json = checked.to_json()
    assert as_json["seeds"] == [0, 1, 2] and as_json["findings"][0] == finding.to_json()
    assert as_json["findings"][0]["slot"] == "buf[1]" and as_json["findings"][0]["location"]["file"] == __file__
    codes = [f.code for f in last_one_wins.check(np.zeros(1, np.float32), grid=2).findings]
    assert codes == ["global-race"]
    assert accumulate.check(np.zeros(16, np.float32), np.zeros(16, np.float32), 16, grid=1).findings == []


def test_an_error_names_its_seed_and_that_seed_shows_it_again() -> None:
    def fault(**how: int) -> SimulationError:
        with pytest.raises(SimulationError) as caught:
            phase_by_data.check(np.ones(16, np.float32), np.ones(16, np.float32), grid=1, **how)
        return caught.value

    first = fault(schedules=4)
    assert first.seed is not None and first.kernel == "phase_by_data"
    again = fault(seed=first.seed)
    assert again.to_json() == first.to_json() and str(again) == str(first)


@pytest.mark.parametrize("seed", [-1, 1.0, True])
def test_a_seed_is_a_number(seed: object) -> None:
    with pytest.raises(LaunchError) as caught:
        last_one_wins.check(np.zeros(1, np.float32), grid=1, seed=seed)
    assert caught.value.code == "launch-option" and "seed=" in str(caught.value)


@pytest.mark.parametrize("schedules", [0, -1, 2.0])
def test_schedules_is_a_positive_integer(schedules: object) -> None:
    with pytest.raises(LaunchError) as caught:
        accumulate.check(np.zeros(1, np.float32), np.zeros(1, np.float32), 1, grid=1, schedules=schedules)
    assert caught.value.code == "launch-option" and "schedules=" in str(caught.value)


def test_both_simulators_raise_one_error() -> None:
    from mimw.sim.ptx.errors import SimulationError as FromText

    error = FromText("something")
    assert (
        isinstance(error, SimulationError)
        and error.code == "ptx-fault"
        and error.loc is None
        and str(error) == "something"
    )
