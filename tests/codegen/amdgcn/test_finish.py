"""Random SSA programs before and after `finish` do the same to memory, with many registers and with few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.codegen.amdgcn.allocation.regalloc import Budget, budget
from mimw.codegen.amdgcn.binary.assemble import assemble
from mimw.codegen.amdgcn.finish import finish
from mimw.codegen.amdgcn.isa import check
from mimw.codegen.amdgcn.printer import print_inst
from mimw.codegen.machine import Inst, Label
from mimw.target import get_target
from tests.codegen.amdgcn.flat_kit import text
from tests.codegen.amdgcn.machine_kit import After, Before, Generator, entry_values

LIMITS = {
    "plenty": budget(4),
    "sixteen waves": budget(16),
    "few": Budget(20, 48, 0),
    "few, accumulators": Budget(24, 46, 48),
    "very few": Budget(14, 44, 0),
}


def same(seed: int, limits: Budget, size: int = 12) -> None:
    """One random program, both ways."""
    fn = Generator(seed, size).make()
    before = Before(fn, entry_values()).run()
    done = finish(fn, get_target("gfx942"), waves=4, limits=limits)
    for item in done.flat.body:
        if isinstance(item, Inst):
            check(item, get_target("gfx942"), flat=True)
    after = After(done.flat, entry_values()).run()
    assert after.stores == before.stores
    assert done.vgprs <= limits.v and done.agprs <= limits.a and done.sgprs <= limits.s


@pytest.mark.parametrize("name", LIMITS)
@given(seed=st.integers(0, 1 << 32))
def test_random_programs(name: str, seed: int) -> None:
    same(seed, LIMITS[name])


@pytest.mark.deep
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("start", range(0, 400, 50))
def test_long_programs(name: str, start: int) -> None:
    for seed in range(start, start + 50):
        same(seed, LIMITS[name], size=40)


@pytest.mark.parametrize("name", LIMITS)
def test_the_assembler_takes_it(name: str) -> None:
    for seed in range(6):
        done = finish(Generator(seed, 20).make(), get_target("gfx942"), waves=4, limits=LIMITS[name])
        lines = [f"{item.name}:" if isinstance(item, Label) else print_inst(item) for item in done.flat.body]  # type: ignore[arg-type]
        assert len(assemble("\n".join([".text", "k:", *lines, ""]), "gfx942").code) >= 4 * len(lines) // 2


def test_same_program_same_code() -> None:
    """Nothing depends on where objects lie in memory."""

    def lines(seed: int) -> list[str]:
        fn = Generator(seed, 20).make()
        return text(finish(fn, get_target("gfx950"), waves=4, limits=LIMITS["few, accumulators"]).flat.body)

    for seed in range(12):
        assert lines(seed) == lines(seed)


def test_the_function_is_not_changed() -> None:
    fn = Generator(3, 20).make()
    before = [(id(block), list(block.params), list(block.insts)) for block in fn.blocks]
    finish(fn, get_target("gfx942"), waves=4, limits=LIMITS["very few"])
    assert before == [(id(block), block.params, block.insts) for block in fn.blocks]
