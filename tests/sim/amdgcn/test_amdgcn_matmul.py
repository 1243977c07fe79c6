"""A hand-written matrix product is right, and every broken variant of it is told."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.run import run
from tests.sim.amdgcn.matmul import matmul_text, operands

FORMS = [("gfx942", True), ("gfx942", False), ("gfx950", True), ("gfx950", False)]


def product(text: str, arch: str, k: int = 48, seed: int = 0) -> float:
    """The largest error of the product that the text computes."""
    a, b, c, want = operands(k)
    run(text, None, (1, 1, 1), (128, 1, 1), [a, b, c, k], arch=arch, seed=seed)
    return float(np.abs(c - want).max())


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("arch", "by_dma"), FORMS)
def test_product(arch: str, by_dma: bool, seed: int) -> None:
    assert product(matmul_text(arch, by_dma), arch, seed=seed) < 1e-4


def weakened(line: str) -> list[str]:
    """What may become of a wait, a barrier, wait states or nothing at all."""
    counts = re.search(r"(vm|lgkm)cnt\((\d+)\)", line)
    return ["", line.replace(counts[0], f"{counts[1]}cnt({int(counts[2]) + 1})")] if counts else [""]


def broken_variants() -> list[tuple[str, bool, int, str]]:
    out: list[tuple[str, bool, int, str]] = []
    for arch, by_dma in FORMS:
        for number, line in enumerate(matmul_text(arch, by_dma).splitlines()):
            if re.match(r"\s+(s_waitcnt|s_barrier|s_nop)", line):
                out += [(arch, by_dma, number, new) for new in weakened(line)]
    return out


VARIANTS = broken_variants()


def test_there_are_many_variants() -> None:
    assert len(VARIANTS) >= 60


@pytest.mark.parametrize(("arch", "by_dma", "number", "new"), VARIANTS)
def test_broken_variant_is_told(arch: str, by_dma: bool, number: int, new: str) -> None:
    lines = matmul_text(arch, by_dma).splitlines()
    lines[number] = new
    with pytest.raises(SimulationError) as error:
        product("\n".join(lines), arch)
    assert error.value.kind in ("wait", "race", "hazard")


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("offset:2560", "offset:3000", "bounds"),
    ("s_add_i32 s16, s16, 16", "s_add_i32 s16, s16, 8", "bounds"),
    ("v_mov_b32_e32 v40, 0", "v_mov_b32_e32 v48, 0", "uninitialised"),
    ("s_mov_b32 s16, 0", "s_mov_b32 s19, 0", "uninitialised"),
    ("    s_mov_b32 s16, 0", "forever:\n s_cmp_eq_u32 s11, 0\n s_cbranch_scc1 forever\n s_mov_b32 s16, 0", "deadlock"),
    ("v_lshl_or_b32 v20, v21, 2, v20", "v_lshl_or_b32 v20, v21, 8, v20", "bounds"),
])  # fmt: skip
def test_other_faults(old: str, new: str, kind: str) -> None:
    text = matmul_text("gfx942", False)
    assert text.count(old) == 1
    with pytest.raises(SimulationError) as error:
        product(text.replace(old, new), "gfx942")
    assert error.value.kind == kind
