"""Mutants of the ready kernels and the examples: every one is noticed, by the compiler or in the tile simulator; the right kernels by nobody."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.diagnostics import InternalError
from mimw.ir.core import Module
from mimw.ir.verifier import verify
from mimw.kernels import GemmConfig, matmul
from tests.protocol.mutants import (
    Launch,
    Mutant,
    caught_by_checks,
    caught_in_text,
    caught_in_tile,
    last_store_wait,
    mutants,
    noticed_in,
    outcome_in_tile,
    text_mutants,
    wait_for_a_result,
)

pytestmark = pytest.mark.filterwarnings("ignore::mimw.MimwWarning")

EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDS = 12


def numbers(rows: int, columns: int, dtype: Any) -> Any:
    """Small integers: sums are exact, in whatever order."""
    return np.random.default_rng(rows).integers(-3, 4, (rows, columns)).astype(dtype)


def gemm(*config: Any, sizes: tuple[int, int, int] = (256, 128, 192), **more: Any) -> Launch:
    m, n, k = sizes
    a, b = numbers(m, k, ml_dtypes.bfloat16), numbers(k, n, ml_dtypes.bfloat16)
    return Launch(lambda: matmul(a, b, config=GemmConfig(*config, **more)))


def example(name: str, kernel: str | None = None, **constants: Any) -> Launch:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    m, n = 4 * constants["BM"], constants["BN"]  # every task has more than one tile
    a, b, c = numbers(m, 192, np.float16), numbers(192, n, np.float16), np.zeros((m, n), np.float16)
    if kernel is not None:
        constants["kernel"] = getattr(module, kernel)
    return Launch(lambda: module.matmul(a, b, c, **constants))


BLOCK = {"BM": 64, "BN": 64, "BK": 64, "STAGES": 2}
LAUNCHES: dict[str, Any] = {
    "cooperative": lambda: gemm("cooperative", 128, 64, 64, 2),
    "pingpong": lambda: gemm("pingpong", 64, 64, 64, 2),
    "cluster": lambda: gemm("cooperative", 128, 64, 64, 3, COLUMNS=32, CLUSTER_M=2),
    "pipeline": lambda: example("05_warp_specialized_matmul", "with_pipeline", **(BLOCK | {"BM": 128})),
    "barriers": lambda: example("05_warp_specialized_matmul", "with_barriers", **(BLOCK | {"BM": 128})),
    "turns": lambda: example("06_pingpong_matmul", programs=1, **BLOCK),
    "multicast": lambda: example("07_cluster_multicast", **(BLOCK | {"BM": 128})),
    "split": lambda: gemm("split", 64, 64, 64, 2, SPLITS=2, sizes=(64, 64, 512)),
}
EQUIVALENT: dict[str, list[str]] = {
    # The last slot is given back behind the loop; this kernel computes one tile, and nobody fills that slot again.
    "split": ["barrier.arrive: dropped"],
}
"""Mutants that no run can tell from the kernel, and why."""
SYNCS_WITHOUT_EFFECT = {
    # The line after it: the arrival on a slot that nobody fills again; the choice behind the last use of the word through which the result of
    # the atomic goes to all threads. (Before that atomic a third one orders other warps' stores to global memory, which the PTX simulator does
    # not follow between CTAs: it counts as unnoticed.)
    "split": [r"mbarrier\.arrive\S* _, \[%r\d+\+32784\]", r"setp\.eq\.s32 %p3, %r60, 1"],
}
"""Syncs in a text that may go without anybody being able to tell, and why."""


@functools.cache
def launch_of(name: str) -> Launch:
    return LAUNCHES[name]()


@functools.cache
def mutants_of(name: str) -> list[Mutant]:
    return mutants(launch_of(name).module)


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_right_kernel_is_noticed_by_nobody(name: str) -> None:
    launch = launch_of(name)
    assert not caught_by_checks(launch.module)
    assert caught_in_tile(launch, launch.module, SEEDS) == ""
    assert caught_in_text(launch, launch.module, 2) == ""


def noticed(name: str, seeds: int) -> tuple[Counter[str], list[str]]:
    """How many mutants who notices first, and those that nobody does."""
    launch = launch_of(name)
    by: Counter[str] = Counter()
    missed: list[str] = []
    for mutant in mutants_of(name):
        module = mutant.apply(launch.module)
        who = "compiler" if caught_by_checks(module) else caught_in_tile(launch, module, seeds)
        by[who] += 1
        if not who:
            missed.append(mutant.what)
    return by, missed


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_mutant_is_noticed(name: str) -> None:
    by, missed = noticed(name, SEEDS)
    assert by.total() >= 12
    assert without_lines(missed) == EQUIVALENT.get(name, []), by


def without_lines(mutants: list[str]) -> list[str]:
    """What was changed, without where: ``line 7: barrier.wait: dropped``."""
    return [m.split(": ", 1)[1] for m in mutants]


@pytest.mark.deep
@pytest.mark.parametrize("name", LAUNCHES)
def test_every_mutant_can_change_the_outcome(name: str) -> None:
    """Unwatched: wrong, or it never ends, under one of 1000 schedules. What is noticed is no false alarm."""
    launch = launch_of(name)
    assert outcome_in_tile(launch, launch.module, 50) == ""
    same = [m.what for m in mutants_of(name) if not outcome_in_tile(launch, m.apply(launch.module), 1000)]
    assert without_lines(same) == EQUIVALENT.get(name, [])


def without(launch: Launch, op: Any) -> Module:
    """The kernel without one op."""
    place = list(launch.module.function.walk()).index(op)
    return Mutant(place, "dropped", lambda fn, op: op.erase()).apply(launch.module)


@pytest.mark.deep
@pytest.mark.parametrize("name", LAUNCHES)
def test_what_is_no_mutant_changes_nothing(name: str) -> None:
    launch = launch_of(name)
    left_out = [op for op in launch.module.function.walk() if last_store_wait(op)]
    assert bool(left_out) == (name != "split")  # which stores by pointers
    assert [outcome_in_tile(launch, without(launch, op), 1000) for op in left_out] == [""] * len(left_out)


@pytest.mark.parametrize("name", LAUNCHES)
def test_what_is_no_mutant_cannot_be_written(name: str) -> None:
    launch = launch_of(name)
    left_out = [op for op in launch.module.function.walk() if wait_for_a_result(op)]
    assert left_out
    for op in left_out:
        place = list(launch.module.function.walk()).index(op)
        mutant = Mutant(place, "one more", lambda fn, op: op.attrs.update(pendings=op.attrs["pendings"] + 1))
        with pytest.raises(InternalError):
            verify(mutant.apply(launch.module))


@pytest.mark.deep
@pytest.mark.parametrize("name", LAUNCHES)
def test_mutants_are_noticed_in_their_text(name: str) -> None:
    """Without the compiler's checks: what the PTX simulator sees of a mutant that is compiled all the same."""
    launch = launch_of(name)
    missed = [m.what for m in mutants_of(name) if caught_in_text(launch, m.apply(launch.module), 6) == ""]
    assert without_lines(missed) == EQUIVALENT.get(name, [])


def test_a_text_without_its_proxy_fences_is_noticed() -> None:
    launch = launch_of("pipeline")
    kernel, texts = text_mutants(launch, r"fence\.proxy\.async\S*")
    assert texts and all(noticed_in(launch, kernel, text, 2) for _, text in texts)


def is_without_effect(name: str, line: str, text: str) -> bool:
    """Whether a sync is one of `SYNCS_WITHOUT_EFFECT`; `text` is without it, so that what followed it stands in its place."""
    number, inst = line.split(": ", 1)
    after = text.splitlines()[int(number) - 1]
    return inst.startswith("bar.sync") and any(re.search(p, after) for p in SYNCS_WITHOUT_EFFECT.get(name, ()))


@pytest.mark.deep
@pytest.mark.parametrize("name", LAUNCHES)
def test_what_the_compiler_inserts_is_missed_in_the_text(name: str) -> None:
    """All but syncs in front of an arrive: without them a warp may spin on a phase that is two ahead, which short runs do not reach."""
    launch = launch_of(name)
    kernel, texts = text_mutants(launch)
    texts = [(line, text) for line, text in texts if not is_without_effect(name, line, text)]
    unnoticed = [line for line, text in texts if not noticed_in(launch, kernel, text, 4)]
    assert all(": bar.sync " in line for line in unnoticed), unnoticed
    assert len(unnoticed) <= 0.15 * len(texts), unnoticed


@pytest.mark.deep
@pytest.mark.parametrize("name", LAUNCHES)
def test_the_right_kernel_under_many_schedules(name: str) -> None:
    launch = launch_of(name)
    assert caught_in_tile(launch, launch.module, 200) == ""
    assert caught_in_text(launch, launch.module, 12) == ""
