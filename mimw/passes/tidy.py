"""Drops carried values, branch results and ops that nobody takes, and nothing else: for programs that have layouts already."""

from __future__ import annotations

from mimw.ir.core import Module
from mimw.passes.canonicalize import erase_dead, trim
from mimw.target import Target

NAME = "tidy"


def run(module: Module, target: Target) -> None:
    """Until nothing changes."""
    body = module.function.block
    while trim(body) | erase_dead(body):
        pass
