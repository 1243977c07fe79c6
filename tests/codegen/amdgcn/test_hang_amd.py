"""Builds for AMD that explain hangs: machine code in the simulator, whose clock goes on when nobody does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import UNKNOWN
from mimw.runtime import hang
from mimw.sim.amdgcn import scheduler
from tests.amdgcn_kit import Told, run_compiled
from tests.codegen.amdgcn.test_mimw_examples import SMALL, load, product
from tests.gpu.hang_kernels import CASES, Case, endless

ENDLESS = Case(endless, 2, "default", "full", 0, 4)
HERE = [name for name in CASES if name not in ("cluster", "lost_slot")]
"""Without clusters, which these machines do not have."""


def compiled(case: Case, timeout: str = "400ms", target: str = "gfx942") -> Any:
    """A case's kernel that gives up."""
    pointers = ["*i32"] + ["*i32:16"] * (len(case.arrays()) - 1)
    return case.kernel.compile([*pointers, "*i32"], hang_timeout=timeout, target=target, **case.options)


def flag(good: int) -> Any:
    return np.array([good], np.int32)


def explain(told: Told) -> str:
    return str(hang.explain("it", told.extra["hang"], told.hang_records, told.hang_total, "", UNKNOWN))


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("name", HERE)
def test_a_hang_ends_and_is_told(name: str, seed: int) -> None:
    case = CASES[name]
    told = run_compiled(compiled(case), (case.grid,), [*case.arrays(), flag(0)], seed)
    waits = [r for r in told.hang_records if r.line == case.line()]
    assert len(waits) == case.warps * case.grid
    assert told.hang_total == len(told.hang_records) and told.hang_first >= 400_000_000
    for r in waits:
        assert (r.task, r.barrier, r.slot) == (case.task, case.barrier, case.slot)
        assert 0.4 < r.seconds < 0.9 and not r.after
        assert case.first_warp <= r.warp < case.first_warp + case.warps


@pytest.mark.parametrize("name", HERE)
def test_nothing_is_told_where_nothing_hangs(name: str) -> None:
    case = CASES[name]
    arrays = case.arrays()
    told = run_compiled(compiled(case, target="gfx950"), (case.grid,), [*arrays, flag(1)], 3)
    assert (told.hang_records, told.hang_total, told.hang_first) == ([], 0, 0)
    assert (arrays[0] == 1).all()


def test_the_report_reads_as_on_other_machines() -> None:
    case = CASES["cycle"]
    told = run_compiled(compiled(case), (3,), [*case.arrays(), flag(0)])
    lines = explain(told).splitlines()
    assert lines[0].endswith("it hangs: 24 warps gave up waiting, the first after 0.4 s")
    assert any(
        line.startswith("  task default, ctas 0-2, warps 0-3: waited 0.4") and "phase 0 of y[0]" in line
        for line in lines
    )
    assert any(
        line.startswith("  task other, ctas 0-2, warps 4-7: waited 0.4") and "phase 0 of x[0]" in line for line in lines
    )
    assert "  a phase of x (line " in explain(told) and "barrier_arrive in task default" in explain(told)
    assert "these tasks wait for each other" in explain(told)


def test_a_loop_that_only_a_message_ends_ends_too() -> None:
    told = run_compiled(compiled(ENDLESS), (2,), [np.zeros(128, np.int32), flag(0)])
    assert {(r.line, r.task) for r in told.hang_records} == {(ENDLESS.line(), "default")}
    assert told.hang_total == 8


def test_ctas_that_start_after_a_hang_give_up_at_once() -> None:
    case = CASES["never_arrived"]
    told = run_compiled(compiled(case), (120,), [*case.arrays(), flag(0)])  # more than the simulator runs at once
    after = {r.cta[0] for r in told.hang_records if r.after}
    assert after and after == set(range(min(after), 120)) and told.hang_total == 120 * 4
    assert f"ctas 0-{min(after) - 1}, warps 0-3" in explain(told)


def test_more_records_than_there_is_room_for_are_counted() -> None:
    case = CASES["never_arrived"]
    kernel = compiled(case)
    text = str(kernel.asm["amdgcn"])
    assert text.count(hex(hang.MAX_RECORDS)) == 1
    few = text.replace(hex(hang.MAX_RECORDS), "7")
    told = run_compiled(kernel, (3,), [*case.arrays(), flag(0)], text=few)
    assert len(told.hang_records) == 7 and told.hang_total == 12


@pytest.mark.parametrize(("timeout", "least", "pause"), [("3600s", 3600.0, 10**11), ("1us", 1e-6, 10)])
def test_long_and_short_times(timeout: str, least: float, pause: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_PAUSE", pause)
    case = CASES["never_arrived"]
    told = run_compiled(compiled(case, timeout), (1,), [*case.arrays(), flag(0)])
    assert told.hang_total == 4 and all(least <= r.seconds <= 1.5 * least + 1e-4 for r in told.hang_records)


def test_named_barriers_whose_number_is_known_at_run_time() -> None:
    @mimw.kernel
    def turns(out, flag):
        good = ml.load(flag)
        with ml.async_tasks():
            with ml.async_task("default"):
                for i in range(4):
                    ml.named_barrier_arrive(8 + i, 256)
                ml.store(out + ml.arange(0, 128), 1)
            with ml.async_task(num_warps=4, name="other"):
                for i in range(3 + good):
                    ml.named_barrier_wait(8 + i, 256)
                if good == 0:
                    ml.named_barrier_wait(12, 256)

    k = turns.compile(["*i32", "*i32"], hang_timeout="1s", target="gfx942")
    told = run_compiled(k, (1,), [np.zeros(128, np.int32), flag(0)])
    assert {(r.task, r.kind, r.barrier, r.threads) for r in told.hang_records} == {
        ("other", "named", "named barrier 12", 256)
    }
    assert not run_compiled(k, (1,), [np.zeros(128, np.int32), flag(1)], 2).hang_records


@pytest.mark.parametrize("seed", [0, 3])
def test_an_example_does_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six tiles for two programs, with waits that give up and a clock that goes on."""
    monkeypatch.setenv("MIMW_HANG_TIMEOUT", "1s")
    module = load("06_pingpong_matmul.py")
    types = ["tensor_desc<64x32xf16>", "tensor_desc<32x64xf16>", "tensor_desc<64x64xf16>", *["i32"] * 3]
    kernel = module.matmul_kernel.compile(types, SMALL, target="gfx942")
    assert len(kernel.metadata.extra["hang"]["sites"]) > 2
    product(kernel, lambda a, b, c: module.plan(a, b, c, 2, **SMALL), (136, 104, 72), seed, ())


def test_without_waits_and_without_the_option_nothing_changes() -> None:
    case = CASES["never_arrived"]
    plain = case.kernel.compile(["*i32", "*i32"], target="gfx942")
    assert "s_memrealtime" not in str(plain.asm["amdgcn"]) and "hang" not in plain.metadata.extra
    watched = compiled(case)
    assert [(p.name, p.hidden) for p in watched.metadata.params[2:]] == [("hang_records", True), ("hang_state", True)]

    @mimw.kernel
    def copy(x, y):
        ml.store(y + ml.arange(0, 128), ml.load(x + ml.arange(0, 128)))

    texts = [copy.compile(["*i32", "*i32"], target="gfx942", **o).asm["amdgcn"] for o in ({"hang_timeout": "2s"}, {})]
    assert texts[0] == texts[1]
