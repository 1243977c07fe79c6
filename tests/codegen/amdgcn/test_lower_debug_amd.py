"""Printing, assertions and the clock on AMD: the lines of the tile simulator, from the machine code's records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.codegen.amdgcn.builder import printing
from mimw.diagnostics import CompilationError
from mimw.runtime import device_print
from tests.amdgcn_kit import Told, run_compiled
from tests.codegen.ptx.print_kernels import assert_add, cases, check_positive, print_add, print_vector, reduce_with
from tests.codegen.ptx.test_lower_debug import signature


def run_case(
    case: tuple[Any, Any, list[Any], dict[str, Any]], target: str = "gfx942", seed: int = 0, **options: Any
) -> Told:
    """The case's machine code in the simulator."""
    kernel, grid, args, constants = case
    compiled = kernel.compile(signature(kernel, args), constants, target=target, **options)
    return run_compiled(compiled, grid, args, seed)


def test_both_sides_mean_the_same_layout() -> None:
    assert printing.WORDS == device_print.WORDS


@pytest.mark.parametrize("name", list(cases()))
def test_the_lines_are_those_of_the_tile_simulator(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, grid, args, constants = cases()[name]
    kernel[grid](*args, **constants)
    expected = sorted(capsys.readouterr().out.splitlines())
    told = run_case(cases()[name], "gfx950" if name in ("matrix", "scalars") else "gfx942", seed=len(name) % 3)
    assert sorted(told.printed) == expected and expected


def test_a_full_buffer_counts_what_is_lost() -> None:
    kernel, grid, args, constants = cases()["large"]
    compiled = kernel.compile(signature(kernel, args), constants, target="gfx942")
    told = Told(compiled)
    text = str(compiled.asm["amdgcn"])
    limit, size = device_print.WORDS, 6  # a header, the program's id, the index, the value
    assert text.count(hex(limit)) == text.count(hex(limit - size + 1)) == 1
    small = text.replace(hex(limit), hex(100)).replace(hex(limit - size + 1), hex(100 - size + 1))
    told = run_compiled(compiled, grid, args, text=small)
    assert len(told.printed) == 100 // size
    claimed, lost, _, _ = told.memory["print_state"].view(np.uint32).tolist()
    assert lost == 512 - len(told.printed) and 100 <= claimed <= 100 + 512 * size


def assert_case(bad: int) -> tuple[Any, tuple[int, ...], list[Any], dict[str, Any]]:
    x = np.arange(1, 301, dtype=np.float32)
    x[bad] = -3
    return check_positive, (1,), [x, np.zeros_like(x), 300], {"B": 512}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_assertion_says_where_and_what_and_protects(seed: int) -> None:
    case = assert_case(211)
    told = run_case(case, debug=True, seed=seed)
    (line,) = told.printed
    place, _, rest = line.partition(": ")
    assert rest == "assertion failed: 100% positive, pid (0, 0, 0), idx (211)"
    assert place.rpartition(":")[0].endswith("print_kernels.py")
    assert told.failed == 1
    assert not case[2][1].any()  # no wave came to the store


def test_an_assertion_that_holds_is_silent() -> None:
    case = assert_case(299)
    case[2][0][299] = 5
    told = run_case(case, "gfx950", debug=True)
    assert told.printed == [] and told.failed == 0
    assert (case[2][1] == case[2][0]).all()


@mimw.kernel
def assert_in_a_task(x, out, N: ml.constexpr):
    """The producer fails in its third round; the consumer waits for what never comes, and must end too."""
    full = ml.alloc_barriers(4, 1)
    ring = ml.local_alloc((N,), ml.int32, 4)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(4):
                ml.barrier_wait(full[i], 0)
                ml.store(out + i * N + ml.arange(0, N), ml.local_load(ring[i]))
        with ml.async_task(num_warps=2, name="producer"):
            for i in range(4):
                values = ml.load(x + i * N + ml.arange(0, N))
                ml.device_assert(values < 1000, "small")
                ml.local_store(ring[i], values)
                ml.barrier_arrive(full[i])


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("timeout", [0, "1s"])
def test_waves_of_other_tasks_end_where_they_wait(seed: int, timeout: Any) -> None:
    x, out = np.arange(512, dtype=np.int32), np.zeros(512, np.int32)
    x[300] = x[301] = 5000
    kernel = assert_in_a_task.compile(
        ["*i32:16", "*i32:16"], {"N": 128}, target="gfx942", debug=True, hang_timeout=timeout
    )
    told = run_compiled(kernel, (1,), [x, out], seed)
    assert {line.partition(": ")[2] for line in told.printed} <= {
        f"assertion failed: small, pid (0, 0, 0), idx ({i})" for i in (44, 45)
    }
    assert told.failed >= 1 and not out[256:].any()
    assert (out[:256] == x[:256])[out[:256] != 0].all()
    assert run_compiled(kernel, (1,), [np.minimum(x, 999), out], seed).printed == []
    assert (out == np.minimum(x, 999)).all()


@mimw.kernel
def print_in_tasks(x, out):
    """Each task prints what it has; the default one while its copies are under way."""
    start = ml.load(x)
    with ml.async_tasks():
        with ml.async_task("default"):
            total = 0
            for i in range(3):
                values = ml.load(x + i * 64 + ml.arange(0, 64))
                ml.device_print("round", i)
                total += ml.sum(values)
            ml.device_print("total", total, hex=True)
            ml.store(out, total)
        with ml.async_task(num_warps=2, name="other"):
            ml.device_print("other", ml.load(x + ml.arange(0, 16)), start)


@pytest.mark.parametrize("seed", [0, 4])
def test_tasks_print(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    x, out, want = np.arange(5, 197, dtype=np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    print_in_tasks[(2,)](x, want, num_warps=4)
    expected = sorted(capsys.readouterr().out.splitlines())
    kernel = print_in_tasks.compile(["*i32:16", "*i32"], target="gfx942", num_warps=4)
    assert sorted(run_compiled(kernel, (2,), [x, out], seed).printed) == expected and out[0] == want[0]
    assert len(expected) == 2 * (3 + 1 + 16 + 1)


def test_a_build_without_assertions_has_no_trace_of_them() -> None:
    kernel, _, args, constants = assert_case(0)
    plain = kernel.compile(signature(kernel, args), constants, target="gfx942", debug=False)
    assert "prints" not in plain.metadata.extra and [p.name for p in plain.metadata.params] == ["x", "out", "n"]
    assert plain.metadata.shared_bytes == 0
    loud = kernel.compile(signature(kernel, args), constants, target="gfx942", debug=True)
    assert [p.name for p in loud.metadata.params if p.hidden] == ["print_records", "print_state", "print_texts"]
    assert loud.metadata.extra["prints"]["asserts"]


def test_code_that_is_never_reached_asks_for_no_arguments() -> None:
    @mimw.kernel
    def silent(x):
        ml.store(x, 1.0)
        return
        ml.device_print("never")

    out = np.zeros(1, np.float32)
    told = run_compiled(silent.compile(["*f32"], target="gfx942"), (1,), [out])
    assert out[0] == 1 and told.arguments == []


def test_a_combine_function_cannot_print() -> None:
    types, options = {"x": "*f32", "out": "*f32"}, {"target": "gfx942", "debug": True}
    for loud in (print_add, assert_add):
        with pytest.raises(CompilationError, match="combine function of a reduction") as caught:
            reduce_with.compile(types, {"ADD": loud}, **options)
        assert caught.value.code == "unsupported"


def test_text_of_one_print() -> None:
    types, constants = {"x": "*f32", "n": "i32"}, {"B": 64, "HEX": False}
    text = str(print_vector.compile(types, constants, target="gfx942", num_warps=1).asm["amdgcn"])
    assert text.count("global_atomic_add") == 2
    header = text[text.index("buffer_wbl2 sc0 sc1") :]
    assert header.index("s_waitcnt vmcnt(0)") < header.index("global_store_dword ")  # the header comes last


def test_the_clock_goes_up() -> None:
    @mimw.kernel
    def timed(x, out):
        start = ml.clock64()
        total = ml.sum(ml.load(x + ml.arange(0, 256)))
        ml.store(out + 1, total.to(ml.int64))
        ml.store(out, ml.clock64() - start)

    out = np.zeros(2, np.int64)
    kernel = timed.compile(["*i32", "*i64"], target="gfx950")
    run_compiled(kernel, (1,), [np.arange(256, dtype=np.int32), out])
    assert out[1] == 32640 and 0 < out[0] < 10**6
    assert str(kernel.asm["amdgcn"]).count("s_memtime") == 2

    @mimw.kernel
    def decides(out):
        if ml.clock64() > 5:
            ml.store(out, 1)

    with pytest.raises(CompilationError, match="condition depends on the clock"):
        decides.compile(["*i32"], target="gfx942")
