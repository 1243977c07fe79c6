"""Imports every family of AMDGCN's own lowerings, so that the table is full."""

from mimw.codegen.amdgcn.lower import (
    async_copy,
    atomic,
    barrier,
    block_copy,
    bulk_copy,
    debug,
    descriptor,
    local_count,
    local_load,
    mma,
    not_on_amd,
    task,
)

__all__ = [
    "async_copy",
    "atomic",
    "barrier",
    "block_copy",
    "bulk_copy",
    "debug",
    "descriptor",
    "local_count",
    "local_load",
    "mma",
    "not_on_amd",
    "task",
]
