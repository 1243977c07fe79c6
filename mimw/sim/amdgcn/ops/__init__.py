# pyright: reportUnusedImport=false
"""Families of AMDGCN instructions: each module registers its decoders on import, and importing this package imports all."""

from mimw.sim.amdgcn.ops import (  # noqa: F401
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
