"""Every declared op has a lowering for NVIDIA targets, or says why not."""

from __future__ import annotations

import pytest

import mimw.codegen.ptx.emit  # noqa: F401  (fills the table)
from mimw.codegen import lowering
from mimw.codegen.lowering import lowering_of, reason_of
from mimw.diagnostics import CompilationError
from mimw.ir.opdef import OPS
from mimw.ir.types import F32, F64, PointerType
from mimw.target import get_target
from tests.codegen.ptx.lowering_kit import Kernel

# Terminators of regions that the op around handles.
_PARTS = {"control.yield"}


@pytest.mark.parametrize("name", sorted(set(OPS) - _PARTS))
def test_the_op_has_a_lowering_or_a_reason(name: str) -> None:
    target = get_target("sm_90a")
    assert lowering_of(name, target) is not None or reason_of(name, target)


def test_a_declared_reason_reaches_the_user_at_his_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "_TABLE", {k: v for k, v in lowering._TABLE.items() if k[0] != "debug.device_print"})
    monkeypatch.setitem(lowering._REASONS, ("debug.device_print", "nvidia"), "it has no paper")
    k = Kernel([("x", PointerType(F32))])
    k.op("debug.device_print", [k.op("control.program_id", 0)], "pid")
    with pytest.raises(CompilationError, match="it has no paper") as caught:
        k.ptx()
    assert caught.value.code == "unsupported" and "device_print" in str(caught.value)
    assert caught.value.loc.line == 1


def test_a_function_without_a_double_sequence_is_refused() -> None:
    k = Kernel([("x", PointerType(F64))])
    k.op("memory.store", k.args[0], k.op("math.erf", k.op("memory.load", k.args[0])))
    with pytest.raises(CompilationError, match="erf of f64"):
        k.ptx()
