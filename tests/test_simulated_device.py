"""Launches on host arrays as machine code for AMD: chosen by MIMW_SIM or by `mimw sim --target`; what they return, print and raise, and where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError, LaunchError
from mimw.runtime.hang import KernelHang
from mimw.runtime.launch import CompiledKernel
from mimw.sim.errors import SimulationError
from mimw.tools.main import main

TARGETS = ("gfx942", "gfx950")


@pytest.fixture(params=TARGETS)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MIMW_SIM", request.param)
    return request.param


@mimw.kernel
def scaled(x, y, n, factor, BLOCK: ml.constexpr):
    i = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    ml.store(y + i, ml.load(x + i, mask=i < n) * factor, mask=i < n)


def test_a_launch_runs_the_target_s_code_in_place(machine: str):
    x = np.arange(300, dtype=np.float32)
    y = np.full(300, -1, np.float32)
    done = scaled[(3,)](x, y, 299, 0.5, BLOCK=128)
    assert isinstance(done, CompiledKernel) and done.metadata.target == machine
    np.testing.assert_array_equal(y[:299], x[:299] / 2)
    assert y[299] == -1
    assert scaled[(3,)](x, y, 299, 0.5, BLOCK=128) is done


def test_arrays_that_are_views(machine: str):
    """Addresses that no 16 bytes divide, arrays that share memory, and one that runs backwards."""
    x = np.arange(301, dtype=np.float32)
    scaled[(3,)](x[1:], x[1:], 300, 2.0, BLOCK=128)
    np.testing.assert_array_equal(x, np.r_[0, 2 * np.arange(1, 301)])
    y = np.zeros(8, np.float32)
    backwards[(1,)](x[7::-1], y, N=8)
    np.testing.assert_array_equal(y, x[7::-1])


@mimw.kernel
def backwards(x, y, N: ml.constexpr):
    i = ml.arange(0, N)
    ml.store(y + i, ml.load(x - i))


@mimw.kernel
def programs(y):
    ml.store(y + ml.program_id(0), ml.num_programs(0))


def test_the_grid_is_known(machine: str):
    y = np.zeros(5, np.int32)
    programs[(5,)](y)
    assert (y == 5).all()
    programs[(0,)](y)


@mimw.kernel
def blocks(x, y, B: ml.constexpr):
    tile = x.load([ml.program_id(0) * B, 0])
    y.store([ml.program_id(0) * B, 0], tile + 1)


def test_descriptors(machine: str):
    x, y = np.arange(60 * 16, dtype=np.float32).reshape(60, 16), np.zeros((60, 16), np.float32)
    described = [mimw.TensorDescriptor.from_tensor(a, [32, 16]) for a in (x, y)]
    blocks[(2,)](*described, B=32)
    np.testing.assert_array_equal(y, x + 1)


@mimw.kernel
def past_the_end(x, N: ml.constexpr):
    i = ml.arange(0, N)
    ml.store(x + i, i)  # the line


def line_of(text: str) -> int:
    return Path(__file__).read_text().splitlines().index(text) + 1


def test_a_fault_is_told_at_the_user_s_line(machine: str):
    with pytest.raises(SimulationError) as caught:
        past_the_end[(1,)](np.zeros(100, np.int32), N=128)
    error = caught.value
    assert error.code == "amdgcn-fault" and error.loc is not None
    assert (error.loc.file, error.loc.line) == (__file__, line_of("    ml.store(x + i, i)  # the line"))
    assert "global store of 4 bytes" in str(error) and "ml.store(x + i, i)  # the line" in str(error)
    assert "workgroup (0,0,0) wave 1 lane 36" in str(error) and "at `global_store_dword" in str(error)


@mimw.kernel
def read_only(x, y):
    ml.store(y, ml.load(x))


def test_memory_that_is_read_only(machine: str):
    x, y = np.ones(1, np.int32), np.zeros(1, np.int32)
    x.flags.writeable = False
    read_only[(1,)](x, y)
    assert y[0] == 1
    with pytest.raises(SimulationError, match=r"read.only"):
        read_only[(1,)](y, x)


@mimw.kernel
def tells(x):
    print("value", ml.load(x))
    ml.device_assert(ml.load(x) == 1, "one is wanted")


def test_prints_and_assertions(machine: str, capsys: pytest.CaptureFixture[str]):
    tells[(1,)](np.ones(1, np.int32), debug=True)
    assert "value" in capsys.readouterr().out
    tells[(1,)](np.zeros(1, np.int32))  # without debug
    capsys.readouterr()
    with pytest.raises(LaunchError, match="one is wanted") as caught:
        tells[(1,)](np.zeros(1, np.int32), debug=True)
    assert caught.value.code == "device-assert"
    assert "value" in capsys.readouterr().out


@mimw.kernel
def stuck(x):
    bar = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_wait(bar[0], 0)
            ml.store(x, 1)
        with ml.async_task(num_warps=1, name="arrives"):
            if ml.load(x) > 5:
                ml.barrier_arrive(bar[0])


def test_waves_that_wait_for_ever(machine: str):
    with pytest.raises(SimulationError) as caught:
        stuck[(1,)](np.zeros(1, np.int32))
    assert caught.value.loc is not None and caught.value.loc.line == line_of("            ml.barrier_wait(bar[0], 0)")
    with pytest.raises(KernelHang) as hung:
        stuck[(1,)](np.zeros(1, np.int32), hang_timeout="1ms")
    assert hung.value.records and "bar[0]" in str(hung.value)


@mimw.kernel
def large(x):
    buffer = ml.local_alloc((512, 256), ml.float32, 1)
    ml.local_store(buffer[0], ml.zeros((512, 256), ml.float32))
    ml.store(x, 1)


def test_what_cannot_be_compiled_is_told_as_on_a_device(machine: str):
    with pytest.raises(CompilationError) as caught:
        large[(1,)](np.zeros(1, np.int32))
    assert caught.value.code == "shared-memory"


@pytest.mark.parametrize("name", ["sm_90a", "gfx90a"])
def test_machines_that_it_cannot_be(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIMW_SIM", name)
    with pytest.raises(LaunchError, match="MIMW_SIM") as caught:
        programs[(1,)](np.zeros(1, np.int32))
    assert caught.value.code == "launch-target"


def test_the_tile_simulator_by_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIMW_SIM", "tile")
    y = np.zeros(2, np.int32)
    assert not isinstance(programs[(2,)](y), CompiledKernel)
    assert (y == 2).all()


@mimw.kernel
def counted(x, N: ml.constexpr):
    ml.atomic_add(x + ml.arange(0, N) % 7, 1)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint16])
def test_atomics_on_words_that_reach_past_the_array(dtype: type, machine: str):
    whole = np.zeros(20, dtype)
    counted[(1,)](whole[1:8], N=70)  # neither end lies between words
    np.testing.assert_array_equal(whole, np.r_[0, np.full(7, 10), np.zeros(12)])


@mimw.kernel
def alone(x):
    ml.store(x, ml.cluster_cta_rank())
    ml.store(x + 1, ml.cluster_size_1d())


def test_a_cta_is_a_cluster_of_its_own(machine: str):
    x = np.full(2, 7, np.int32)
    alone[(1,)](x)
    assert x.tolist() == [0, 1]
    with pytest.raises(CompilationError, match="has no clusters") as caught:
        alone[(2,)](x, ctas_per_cga=(2, 1, 1))
    assert (
        caught.value.hint == "launch without ctas_per_cga: every CTA then is a cluster of its own, of rank 0 and size 1"
    )


@mimw.kernel
def copied_to_two(x):
    buffer, bar = ml.local_alloc((8, 16), ml.float32, 1), ml.alloc_barriers(1)
    ml.barrier_expect_bytes(bar[0], 8 * 16 * 4)
    ml.async_descriptor_load(x, buffer[0], [0, 0], bar[0], multicast_targets=[0])
    ml.barrier_wait(bar[0], 0)


def test_multicast_is_refused(machine: str):
    with pytest.raises(CompilationError, match="no clusters of CTAs") as caught:
        copied_to_two[(1,)](mimw.TensorDescriptor.from_tensor(np.zeros((8, 16), np.float32), [8, 16]))
    assert caught.value.hint == "leave multicast_targets out: each CTA copies for itself"


@mimw.kernel
def pressing(x, y, N: ml.constexpr):
    i = ml.arange(0, N)
    v = ml.load(x + i)
    ml.store(y + i, v * ml.sum(v, 0))


def test_spills_are_told_and_right(machine: str):
    """More values than registers, all of them needed behind a sum."""
    x = np.random.default_rng(0).integers(-9, 9, 64 * 96).astype(np.float32)
    y = np.zeros_like(x)
    done = pressing[(1,)](x, y, N=64 * 96, num_warps=1, maxnreg=64)
    np.testing.assert_array_equal(y, x * x.sum())
    assert done.metadata.registers <= 64 and done.metadata.spill_bytes > 0
    told = [r for r in done.metadata.extra["remarks"] if r["kind"] == "spilled to memory"]
    assert len(told) == 1 and f"{done.metadata.spill_bytes} bytes a lane: " in told[0]["text"]
    assert told[0]["line"] == line_of("def pressing(x, y, N: ml.constexpr):")


@mimw.kernel
def erf(x):
    ml.store(x, ml.erf(ml.load(x)))


def test_functions_that_f64_has_not(machine: str):
    with pytest.raises(CompilationError, match=r"math\.erf of f64 is not supported") as caught:
        erf[(1,)](np.ones(1, np.float64))
    assert caught.value.hint == "convert to f32 and back: x.to(ml.float32)"


# --- mimw sim --target

PROGRAM = """
import numpy as np, mimw, mimw.language as ml

@mimw.kernel
def first_come(y):
    if ml.program_id(0) == 0:
        ml.store(y, 1)
    else:
        ml.store(y, 2)

@mimw.kernel
def add(x, y, N: ml.constexpr):
    i = ml.arange(0, N)
    ml.store(y + i, ml.load(x + i) + 1)

x, y = np.zeros(128, np.int32), np.zeros(128, np.int32)
add[(1,)](x, y, N=128)
assert (y == 1).all()
"""


def sim(tmp_path: Path, text: str, *options: str) -> int:
    (tmp_path / "program.py").write_text(text)
    return main(["sim", str(tmp_path / "program.py"), *options])


@pytest.mark.parametrize("target", TARGETS)
def test_a_program(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert sim(tmp_path, PROGRAM, "--target", target, "--schedules", "3") == 0
    said = capsys.readouterr().out
    assert f"mimw sim: add (1) as code for {target}; 3 schedules each: 0 errors, 0 warnings" in said


def test_a_program_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert sim(tmp_path, PROGRAM + "add[(1,)](x, y, N=256)\nprint('not reached')\n", "--target", "gfx942") == 1
    said = capsys.readouterr().out
    assert "ml.store(y + i, ml.load(x + i) + 1)" in said and "error[amdgcn-fault]" in said and "not reached" not in said
    assert "program.py:add --target gfx942 --seed 0" in said


def test_a_result_that_depends_on_who_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = PROGRAM + "first_come[(2,)](x)\n"
    assert sim(tmp_path, text, "--target", "gfx950", "--schedules", "8") == 1
    assert "warning[schedule-result]" in capsys.readouterr().out


def test_the_machine_of_mimw_sim_goes_before_the_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MIMW_SIM", "gfx950")
    assert sim(tmp_path, PROGRAM) == 0
    assert "mimw sim: add (1); 1 schedule each" in capsys.readouterr().out
    assert sim(tmp_path, PROGRAM, "--target", "gfx942") == 0
    assert "as code for gfx942" in capsys.readouterr().out


def test_there_is_no_timeline_for_amd(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert sim(tmp_path, PROGRAM, "--target", "gfx942", "--timeline", str(tmp_path / "x.svg")) == 1
    assert "no model of the times on gfx942" in capsys.readouterr().err


def test_other_kernels_run_unwatched(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "program.py").write_text(PROGRAM)
    assert main(["sim", f"{tmp_path / 'program.py'}:nothing", "--target", "gfx942"]) == 1
    assert "it launches add" in capsys.readouterr().out
