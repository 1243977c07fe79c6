"""All families of instructions: importing this module registers their decoders."""

from __future__ import annotations

from mimw.sim.amdgcn.ops import (
    compare,
    control,
    convert,
    floating,
    integer,
    lanes,
    lds_access,
    matrix,
    packed,
    scalar,
    scalar_memory,
    scaled_convert,
    vector_memory,
)

FAMILIES = (
    compare,
    control,
    convert,
    floating,
    integer,
    lanes,
    lds_access,
    matrix,
    packed,
    scalar,
    scalar_memory,
    scaled_convert,
    vector_memory,
)


def load_families() -> int:
    """How many families there are (a call that keeps the import honest)."""
    return len(FAMILIES)
