"""What every op must have: a documentation, a simulator handler, an instance that the other tests can make."""

from __future__ import annotations

import pytest

import mimw.ir.ops
import mimw.sim.tile  # noqa: F401  (fills the handler tables)
from mimw.ir.opdef import OPS, ElementwiseOp
from mimw.sim.tile.registry import COMPUTES, EXECUTES, handled
from tests.ir.programs import FILLERS, TERMINATORS


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_is_complete(name: str) -> None:
    spec = OPS[name]
    assert name.count(".") == 1, "op names are family.verb"
    assert len(spec.doc) > 10, "an op says what it means"
    assert name in handled(), "every op has a meaning in the tile simulator"
    assert name in TERMINATORS or name in FILLERS or issubclass(spec.cls, ElementwiseOp)


def test_no_handler_without_an_op() -> None:
    assert handled() <= OPS.keys()
    assert not COMPUTES.keys() & EXECUTES.keys()


def test_handlers_stand_in_the_file_of_their_family() -> None:
    for name, handler in [*COMPUTES.items(), *EXECUTES.items()]:
        assert handler.__module__ == f"mimw.sim.tile.{name.split('.')[0]}", name


def test_effects_name_operands() -> None:
    for spec in OPS.values():
        names = {f.name for f in spec.operands}
        for effect in spec.effects:
            assert effect.operand is None or effect.operand in names, spec.name
            assert effect.kind in ("read", "write")


def test_error_bounds_are_declared() -> None:
    for spec in OPS.values():
        assert spec.ulp >= 0
        if spec.name.startswith("math."):
            assert spec.ulp > 0 or spec.name in ("math.floor", "math.ceil", "math.rint", "math.trunc"), spec.name
