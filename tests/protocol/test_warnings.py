"""Warnings of the protocol checks: each at its line, silenced by a comment there; none on the ready kernels and the examples.

``# ! code`` marks the line that is told.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import mimw
import mimw.language as ml
from mimw import MimwWarning
from mimw.diagnostics import Loc, silenced_codes, warn
from mimw.passes.protocol.warn import WARNINGS

KERNELS: list[Any] = []
SIGNATURE = {"x": "tensor_desc<64x64xf16>", "y": "*f32:16", "n": "i32"}


def suspect(fn: Any) -> Any:
    KERNELS.append(mimw.kernel(fn))
    return fn


@suspect
def unused_barrier(y, n):
    full = ml.alloc_barriers(1)
    _other = ml.alloc_barriers(2)  # ! barrier-unused
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_wait(full[0], 0)
        with ml.async_task(num_warps=4):
            ml.barrier_arrive(full[0])


@suspect
def unawaited_barrier(y, n):
    full = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.store(y, 1.0)
        with ml.async_task(num_warps=4):
            ml.barrier_arrive(full[0])  # ! barrier-unawaited


@suspect
def same_phase(y, n):
    full = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            for _i in range(n):
                ml.barrier_wait(full[0], 0)  # ! barrier-same-phase
        with ml.async_task(num_warps=4):
            for _i in range(n - 1):  # an odd number, for the samples that the checks take: no deadlock to be seen
                ml.barrier_arrive(full[0])


@suspect
def read_after_release(x, y, n):
    ring = ml.local_alloc((64, 64), ml.float16, 2)
    full, empty = ml.alloc_barriers(2), ml.alloc_barriers(2)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(n):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(empty[slot], phase ^ 1)
                ml.barrier_expect_bytes(full[slot], 8192)
                ml.async_descriptor_load(x, ring[slot], [i * 64, 0], full[slot])
        with ml.async_task(num_warps=4):
            for i in range(n):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(full[slot], phase)
                ml.barrier_arrive(empty[slot])
                total = ml.sum(ml.local_load(ring[slot]).to(ml.float32))  # ! read-after-release
                ml.store(y + i, total)


@suspect
def slots_that_differ(x, y, n):
    ring = ml.local_alloc((64, 64), ml.float16, 2)
    full, empty = ml.alloc_barriers(2), ml.alloc_barriers(2)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(n):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(empty[slot], phase ^ 1)
                ml.barrier_expect_bytes(full[slot], 8192)
                ml.async_descriptor_load(x, ring[(i + 1) % 2], [i * 64, 0], full[slot])  # ! slot-mismatch
        with ml.async_task(num_warps=4):
            for i in range(n):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(full[slot], phase)
                total = ml.sum(ml.local_load(ring[slot]).to(ml.float32))
                ml.barrier_arrive(empty[slot])
                ml.store(y + i, total)


@suspect
def stores_that_nobody_waits_for(x, y, n):
    buf = ml.local_alloc((64, 64), ml.float16, 1)
    for i in range(n):
        ml.local_store(buf[0], ml.full((64, 64), 1.0, ml.float16))
        ml.async_descriptor_store(x, buf[0], [i * 64, 0])  # ! store-wait
    ml.async_descriptor_store_wait(0)


@suspect
def products_that_nobody_waits_for(x, y, n):
    ring = ml.local_alloc((64, 64), ml.float16, 2)
    full, empty = ml.alloc_barriers(2), ml.alloc_barriers(2)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(n):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(empty[slot], phase ^ 1)
                ml.barrier_expect_bytes(full[slot], 8192)
                ml.async_descriptor_load(x, ring[slot], [i * 64, 0], full[slot])
        with ml.async_task(num_warps=4):
            acc = ml.alloc_accumulator((64, 64), ml.float32)
            for i in range(n):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(full[slot], phase)
                acc = ml.async_dot(ring[slot], ring[slot], acc)
                ml.barrier_arrive(empty[slot])  # ! dot-wait
            total = ml.sum(ml.async_dot_wait(0, acc))
            ml.store(y, total)


@mimw.kernel
def silenced(y, n):
    full = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.store(y, 1.0)
        with ml.async_task(num_warps=4):
            ml.barrier_arrive(full[0])  # the next launch waits   # mimw: ignore[barrier-unused, barrier-unawaited]


@mimw.kernel
def silenced_by_another_code(y, n):
    full = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.store(y, 1.0)
        with ml.async_task(num_warps=4):
            ml.barrier_arrive(full[0])  # mimw: ignore[barrier-unused]


@mimw.kernel
def arrive(bar):
    ml.barrier_arrive(bar)


@mimw.kernel
def silenced_where_it_is_called(y, n):
    full = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.store(y, 1.0)
        with ml.async_task(num_warps=4):
            arrive(full[0])  # mimw: ignore[barrier-unawaited]


def told(kernel: mimw.Kernel) -> list[MimwWarning]:
    """What compiling says."""
    types = {name: SIGNATURE[name] for name in kernel.parameter_names}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel.compile(types, assembled=False)
    assert all(w.category is MimwWarning and w.filename == __file__ for w in caught)
    return [w.message for w in caught if isinstance(w.message, MimwWarning)]


def marked(kernel: mimw.Kernel) -> tuple[int, str]:
    source = kernel.fn.__code__
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1):
        found = re.search(r"# ! ([\w-]+)", line)
        if found and number > source.co_firstlineno:
            return number, found[1]
    raise AssertionError(kernel.name)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_the_line_is_told(kernel: mimw.Kernel) -> None:
    (warning,) = told(kernel)
    assert (warning.loc.line, warning.code) == marked(kernel), str(warning)
    assert warning.code in WARNINGS and f"silence it by # mimw: ignore[{warning.code}]" in str(warning)


def test_every_code_has_a_kernel() -> None:
    assert {marked(k)[1] for k in KERNELS} == set(WARNINGS)


def test_a_comment_at_the_line_silences_its_codes_only() -> None:
    assert told(silenced) == [] and told(silenced_where_it_is_called) == []
    assert [w.code for w in told(silenced_by_another_code)] == ["barrier-unawaited"]


def test_a_warning_can_be_made_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MimwWarning)
        with pytest.raises(MimwWarning):
            warn(MimwWarning("some-code", "text", Loc(__file__, 1)))


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("x = 1", []),
        ("x = 1  # mimw: ignore[a-b]", ["a-b"]),
        ("x = 1  #mimw:ignore[a, b-c ,d]  # and more", ["a", "b-c", "d"]),
        ("x = 1  # mimw: ignore", []),
        ("x = 1  # type: ignore[a]", []),
    ],
)
def test_comments(line: str, codes: list[str]) -> None:
    assert silenced_codes(line) == codes
