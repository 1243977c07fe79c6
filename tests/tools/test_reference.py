"""The generated reference: up to date, every name documented, signatures as a kernel would write them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import mimw.language as ml
from mimw.ir.opdef import OPS
from mimw.ir.types import DType
from mimw.tools.reference import OTHER_CODES, error_reference, language_reference

ROOT = Path(__file__).parents[2]
# The code is the first argument of these.
RAISED = re.compile(r'(?:CompilationError|LaunchError|SimulationError|\brefuse|\.error)\(\s*"([a-z][a-z0-9-]*)"')


@pytest.mark.parametrize(("name", "text"), [("language", language_reference()), ("errors", error_reference())])
def test_the_reference_is_up_to_date(name: str, text: str) -> None:
    assert (ROOT / "docs" / f"{name}.md").read_text() == text, "run `make docs`"


@pytest.mark.parametrize("name", ml.__all__)
def test_every_name_is_documented(name: str) -> None:
    value = getattr(ml, name)
    assert isinstance(value, DType) or inspect.getdoc(value), name


def test_every_op_is_documented() -> None:
    assert [name for name, spec in OPS.items() if not spec.doc.strip()] == []


def test_signatures_are_as_a_kernel_writes_them() -> None:
    text = language_reference()
    assert "- `ml.storage_kind`: Where `local_alloc` puts a buffer. One of `smem`" in text
    assert "propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor`" in text
    assert "- `ml.tensor`: A tile" in text
    assert "qualname" not in text
    assert " object at 0x" not in text


def test_every_code_that_is_raised_is_listed() -> None:
    listed = error_reference()
    codes = {code for file in (ROOT / "mimw").rglob("*.py") for code in RAISED.findall(file.read_text())}
    assert len(codes) > len(OTHER_CODES) / 2
    assert sorted(code for code in codes if f"| `{code}` |" not in listed) == []
