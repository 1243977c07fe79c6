"""Programs of the MIMW layer in tile IR, for the tests of the tile simulator beside this file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.ir.core import Module
from mimw.ir.parser import parse_module
from mimw.ir.verifier import verify
from mimw.sim.tile import SimulationError, run


def kernel(arguments: str, body: str, options: str = "") -> Module:
    """A kernel from its body. Line 1 of the file is the first line of the body."""
    text = f"kernel @k({arguments}) num_warps = 4 {options} {{ {body.strip()}\n  control.return\n}}"
    module = parse_module(text, file="k.mir")
    verify(module)
    return module


def line_of(body: str, mark: str) -> int:
    """The line, in messages, of the first line of a body that holds `mark`."""
    for n, line in enumerate(body.strip().splitlines()):
        if mark in line:
            return n + 1
    raise AssertionError(f"{mark!r} is not in the program")


def fault(module: Module, args: Sequence[Any], grid: tuple[int, ...] = (1,), **kwargs: Any) -> SimulationError:
    """The error that a run ends in."""
    with pytest.raises(SimulationError) as caught:
        run(module, args, grid, **kwargs)
    return caught.value


# A producer copies T blocks [8, 8] of x through a ring of two slots; the consumer (the default task) doubles them into y.
RING = """
%zero = arith.constant {value = 0} : i32
%one = arith.constant {value = 1} : i32
%two = arith.constant {value = 2} : i32
%eight = arith.constant {value = 8} : i32
%ring = memory.local_alloc : memdesc<2x8x8xf32, shared>
%out = memory.local_alloc : memdesc<8x8xf32, shared>
%full = barrier.alloc : barrier<2, arrive 1>
%empty = barrier.alloc : barrier<2, arrive 1>
task.partition {tasks = ["default/4/0/-1/0", "producer/1/0/-1/0"]} bodies {
  control.for %zero, %n, %one, [] body(%i: i32) {
    %slot = arith.rem %i, %two : i32
    %trip = arith.div %i, %two : i32
    %phase = arith.and %trip, %one : i32
    %f = barrier.view %full, %slot : barrier<0, arrive 1>
    %e = barrier.view %empty, %slot : barrier<0, arrive 1>
    %a = memory.local_view %ring, %slot : memdesc<8x8xf32, shared, alloc 2x8x8>
    barrier.wait %f, %phase
    %v = memory.local_load %a : tensor<8x8xf32>
    barrier.arrive %e
    %w = arith.add %v, %v : tensor<8x8xf32>
    async_copy.tma_store_wait {pendings = 0}
    memory.local_store %out, %w
    %row = arith.mul %i, %eight : i32
    async_copy.tma_store %y, %out, [%row, %zero]
    control.yield
  }
  control.yield
} bodies {
  control.for %zero, %n, %one, [] body(%i: i32) {
    %slot = arith.rem %i, %two : i32
    %trip = arith.div %i, %two : i32
    %turn = arith.add %trip, %one : i32
    %phase = arith.and %turn, %one : i32
    %f = barrier.view %full, %slot : barrier<0, arrive 1>
    %e = barrier.view %empty, %slot : barrier<0, arrive 1>
    %a = memory.local_view %ring, %slot : memdesc<8x8xf32, shared, alloc 2x8x8>
    barrier.wait %e, %phase
    barrier.expect %f {bytes = 256}
    %row = arith.mul %i, %eight : i32
    async_copy.tma_load %x, %a, %f, [%row, %zero]
    control.yield
  }
  control.yield
}
"""
RING_ARGUMENTS = "%x: tensor_desc<8x8xf32>, %y: tensor_desc<8x8xf32>, %n: i32"
