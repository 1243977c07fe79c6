# pyright: reportUnusedImport=false
"""What each PTX instruction does, one module a family. Importing a module enters its decoders in the registry; importing this package imports all."""

from mimw.sim.ptx.ops import (  # noqa: F401
    access,
    async_copy,
    atomic,
    bits,
    bulk,
    calls,
    compare,
    control,
    convert,
    extremes,
    fence,
    floating,
    integer,
    launch,
    maps,
    mbarrier,
    mma,
    moves,
    remote,
    sync,
    warp,
    wgmma,
)
