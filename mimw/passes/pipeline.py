"""The passes between frontend and codegen, in order, one line each saying why it stands there.

A pass is a module (or object) with `NAME` and `run(module, target)`. The verifier can run after each one (MIMW_VERIFY=each): a pass that leaves
bad IR is then found at once and by name.
"""

from __future__ import annotations

import os
from typing import Protocol

from mimw.diagnostics import InternalError
from mimw.ir.core import Module
from mimw.ir.verifier import verify
from mimw.passes import (
    address_split,
    blocks_by_pointers,
    blocks_by_tma,
    canonicalize,
    carried_tiles,
    drop_asserts,
    fusion,
    limits,
    memdesc_layout,
    pipelining,
    products_by_waves,
    shapes_through_memory,
    shared_allocation,
    stage_dot,
    storage_overlap,
    sync_insertion,
    task_partition,
    tidy,
)
from mimw.passes.layout_inference import check, infer
from mimw.passes.protocol import check as check_protocol
from mimw.target import Target


class Pass(Protocol):
    """What the pipeline runs."""

    @property
    def NAME(self) -> str:
        """The pass's name in messages and dumps."""
        ...

    def run(self, module: Module, target: Target) -> None:
        """Change the module in place."""
        ...


PASSES: tuple[Pass, ...] = (
    drop_asserts,  # before canonicalize, which then finds what only they used
    blocks_by_pointers,  # where there is no TMA: the passes after it then make the addresses cheap
    canonicalize,  # first: what follows sees folded constants and no dead ops
    carried_tiles,  # loops carry steps, not tiles of pointers: fewer registers, and addresses keep their structure
    canonicalize,  # again, over what that left
    address_split,  # then: the steps of loops join the scalar part; before layouts, which 32-bit offsets take with fewer registers
    fusion,  # before anything looks at rounding: every engine then rounds alike
    task_partition,  # after the last pass that merges equal ops: tasks compute their own scalars from here on
    check_protocol,  # needs the ids and scalars of the tasks, and barrier ops that nothing has touched yet
    products_by_waves,  # after the checks of how products are waited for; before the passes that look at buffers
    blocks_by_tma,  # after the checks, which look at the user's barriers; before the passes that look at buffers
    shapes_through_memory,  # reshapes that are no renaming become buffers before layouts are chosen
    stage_dot,  # products become explicit buffers and instructions, which layouts and pipelining need to see
    memdesc_layout,  # when all buffers are there; inference prices accesses by where the elements lie
    storage_overlap,  # once slots have their sizes; inference does not care, but its buffers' types change here
    infer,  # every tile gets its layout, conversions become ops
    limits,  # what no machine holds is refused before anybody works on it
    pipelining,  # needs the loads' layouts to know how wide a copy is; before allocation, since it makes rings of buffers
    tidy,  # pipelining leaves carried values behind that only the copies needed
    check,  # proves that all layouts fit
    shared_allocation,  # needs the conversions' scratch
    sync_insertion,  # needs to know who shares bytes with whom
)


SIMULATED: tuple[Pass, ...] = (
    canonicalize,  # so that fusion finds the uses that it finds in a compile
    fusion,  # the tile simulator rounds as the targets do
)

PROTOCOL: tuple[Pass, ...] = PASSES[: PASSES.index(check_protocol) + 1]
"""As far as the checks of how tasks talk to each other."""


def run(module: Module, target: Target, *, verify_each: bool | None = None, passes: tuple[Pass, ...] = PASSES) -> None:
    """Run all passes; with `passes` those (`SIMULATED` is what the tile simulator's input gets).

    `verify_each`: after each pass, or only after the last one, which takes a fifth off a compile; None: as MIMW_VERIFY says, which is "each"
    in all tests.
    """
    if verify_each is None:
        verify_each = os.environ.get("MIMW_VERIFY") == "each"
    for each in passes:
        each.run(module, target)
        if verify_each or each is passes[-1]:
            try:
                verify(module)
            except InternalError as e:
                raise InternalError(f"after pass {each.NAME}: {e.args[0]}", e.loc, e.dump) from e
