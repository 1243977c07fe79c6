"""The table from op names to what they do in the tile simulator, filled by the family modules beside this one.

A *computing* handler maps the operands' run-time values to the results': ``(op, *values) -> value`` (a tuple for
several results). It may neither touch memory nor control flow; on a combine function of a reduction it sees whole
arrays in place of scalars. An *executing* handler is ``(machine, op) -> Exit | None``: it may do anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mimw.sim.tile.machine import Exit, Machine

COMPUTES: dict[str, Callable[..., Any]] = {}
EXECUTES: dict[str, Callable[[Machine, Any], Exit | None]] = {}

_C = TypeVar("_C", bound=Callable[..., Any])
_E = TypeVar("_E", bound="Callable[[Machine, Any], Exit | None]")


def computes(name: str) -> Callable[[_C], _C]:
    """Register a computing handler of op `name`."""

    def register(fn: _C) -> _C:
        COMPUTES[name] = fn
        return fn

    return register


def executes(name: str) -> Callable[[_E], _E]:
    """Register an executing handler of op `name`."""

    def register(fn: _E) -> _E:
        EXECUTES[name] = fn
        return fn

    return register


def handled() -> set[str]:
    """The names of all ops that the simulator can run."""
    return COMPUTES.keys() | EXECUTES.keys()
