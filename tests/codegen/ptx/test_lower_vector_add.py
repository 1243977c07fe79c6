"""Vector add: the whole text, and what vector width the facts allow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mimw.codegen.ptx.assemble import assemble
from mimw.ir.types import BF16, F32, F64, I8, I64, DType, PointerType
from tests.codegen.ptx.lowering_kit import TARGETS, Kernel, vector_add

GOLDEN = Path(__file__).parent / "golden"


def test_the_text_is_unchanged() -> None:
    text = vector_add(n=False).ptx("sm_90a")
    path = GOLDEN / "vector_add.ptx"
    if os.environ.get("MIMW_BLESS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_takes_it(target: str) -> None:
    found = assemble(vector_add().ptx(target), target)
    assert found.spill_loads == found.spill_stores == 0


@pytest.mark.parametrize(
    ("dtype", "opcode"),
    [(F32, "ld.global.v4.f32"), (BF16, "ld.global.v4.b32"), (F64, "ld.global.v2.f64"), (I8, "ld.global.v4.b32")],
    ids=str,
)
def test_accesses_are_16_bytes_wide(dtype: DType, opcode: str) -> None:
    text = vector_add(2048, n=False, dtype=dtype, vec=16 // dtype.itemsize).ptx()
    loads = [line for line in text.splitlines() if "ld.global" in line]
    assert loads and all(opcode in line for line in loads)


def test_a_mask_of_unknown_length_narrows_the_accesses() -> None:
    assert "ld.global.v4" not in vector_add(n=True).ptx()


def test_comments_and_places_name_the_source() -> None:
    text = vector_add().ptx()
    assert ".loc 1 1 1" in text and '.file 1 "kernel.py"' in text
    assert "%offs" in text and "%c_" in text


def test_a_constant_too_long_for_an_immediate_is_added() -> None:
    k = Kernel([("x", PointerType(F32))], num_warps=1)
    far = k.op("memory.ptr_add", k.args[0], k.const(1 << 40, I64))
    k.op("memory.store", far, k.const(1.0, F32))
    text = k.ptx()
    assemble(text, "sm_90a")
    assert str(1 << 42) in text and f"+{1 << 42}]" not in text
