"""Every declared op has a lowering for AMD, or says why not; what is refused is refused at the user's line."""

from __future__ import annotations

import pytest

import mimw
import mimw.codegen.amdgcn.emit
import mimw.language as ml
from mimw.codegen.lowering import lowering_of, reason_of
from mimw.diagnostics import CompilationError
from mimw.ir.opdef import OPS
from mimw.target import get_target

# Terminators of regions that the op around handles.
_PARTS = {"control.yield"}


@pytest.mark.parametrize("name", sorted(set(OPS) - _PARTS))
def test_the_op_has_a_lowering_or_a_reason_on_amd(name: str) -> None:
    target = get_target("gfx942")
    assert lowering_of(name, target) is not None or reason_of(name, target)


@mimw.kernel
def told(x_ptr):
    ml.device_print("x", ml.load(x_ptr))


@mimw.kernel
def met(x_ptr):
    ml.store(x_ptr, 1.0)
    ml.cluster_barrier()


@pytest.mark.parametrize(
    ("kernel", "line", "message"),
    [
        (met, 2, "cluster.sync is not supported on gfx950: there are no clusters of CTAs, each"),
    ],
)
def test_what_is_not_there_is_refused_at_its_line(kernel, line: int, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CompilationError, match=message) as caught:
        kernel.compile(["*f32"], {}, target="gfx950")
    assert caught.value.loc.line == kernel.fn.__code__.co_firstlineno + 1 + line


@mimw.kernel
def told_of_nothing(x_ptr, n):
    ml.device_assert(n > 0, "n")
    ml.store(x_ptr, 1.0)


def test_asserts_are_dropped_unless_asked_for() -> None:
    kernel = told_of_nothing.compile(["*f32", "i32"], {}, target="gfx942")
    assert "print_records" not in [p.name for p in kernel.metadata.params]
    loud = told_of_nothing.compile(["*f32", "i32"], {}, target="gfx942", debug=True)
    assert "print_records" in [p.name for p in loud.metadata.params]


def test_too_many_waves_are_refused() -> None:
    with pytest.raises(CompilationError, match="2048 threads; gfx942 has 1024"):
        told.compile(["*f32"], {}, target="gfx942", num_warps=32)
