"""The instruction table says of thousands of forms what ptxas says of them."""

from __future__ import annotations

import re

import pytest

from mimw.codegen.ptx.assemble import find_ptxas
from tests.codegen.ptx.form_families import changed, families, verdicts

pytestmark = pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas on this machine")

# Operands that ptxas looks at more closely than the table: tuples on both sides, registers of sparse products, an element type.
CLOSER = re.compile(r"mov\.b64 \{.*\}, \{|mma\.sp|tensormap\.replace\.tile\.elemtype")


def disagreements(target: str, forms: list[str]) -> tuple[list[str], list[str]]:
    """Forms that only ptxas takes, and forms that only the table takes."""
    theirs, ours = verdicts(target, forms)
    both = list(zip(forms, theirs, ours, strict=True))
    return [form for form, a, b in both if a and not b], [form for form, a, b in both if b and not a]


def test_a_part_of_the_families() -> None:
    forms = list(families())[::9]
    assert len(forms) > 400
    assert disagreements("sm_90a", forms) == ([], [])


@pytest.mark.deep
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_families(target: str) -> None:
    forms = list(families())
    assert len(forms) > 4000
    assert disagreements(target, forms) == ([], [])


def test_a_part_of_the_changed_operands() -> None:
    _no_operand_is_overlooked("sm_80", changed("sm_80")[::15])


@pytest.mark.deep
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_changed_operands(target: str) -> None:
    forms = changed(target)
    assert len(forms) > 3000
    _no_operand_is_overlooked(target, forms)


def _no_operand_is_overlooked(target: str, forms: list[tuple[str, str]]) -> None:
    """What ptxas refuses for an operand's kind, the table refuses; the values of immediates are ptxas's."""
    _, overlooked = disagreements(target, [form for what, form in forms if what != "3"])
    assert [form for form in overlooked if not CLOSER.match(form)] == []
    _, overlooked = disagreements(target, [form for what, form in forms if what == "3"])
    assert [
        form
        for form in overlooked
        if re.match(r"(add|sub|mul|fma|div|min|max|mad|ex2|rcp|abs|setp|selp|mov\.[fp])", form)
    ] == []
