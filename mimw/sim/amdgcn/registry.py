"""The table from mnemonic to decoder, and what a decoder gives back.

A decoder looks once at an instruction's `Operands` and returns a step: a function of the executing waves that returns None
(go on), or where to go: one index for all, or one a wave. Families register themselves on import.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mimw.sim.amdgcn.operands import Operands
from mimw.sim.amdgcn.state import Ctx

Step = Callable[[Ctx], Any]
Decoder = Callable[[Operands], Step]
Family = Callable[[Operands, "re.Match[str]"], Step]
DECODERS: dict[str, Decoder] = {}
_FAMILIES: list[tuple[re.Pattern[str], Family]] = []


def executes(*mnemonics: str) -> Callable[[Decoder], Decoder]:
    """Register a decoder for mnemonics (without the encoding suffix)."""

    def register(fn: Decoder) -> Decoder:
        for name in mnemonics:
            DECODERS[name] = fn
        return fn

    return register


def family(pattern: str) -> Callable[[Family], Family]:
    """Register a decoder for all mnemonics that match a regular expression; it is given the match."""

    def register(fn: Family) -> Family:
        _FAMILIES.append((re.compile(pattern), fn))
        return fn

    return register


def find(mnemonic: str) -> Decoder | None:
    """The decoder of a mnemonic, or None."""
    found = DECODERS.get(mnemonic)
    if found is not None:
        return found
    for pattern, fn in _FAMILIES:
        match = pattern.fullmatch(mnemonic)
        if match:
            DECODERS[mnemonic] = _bound(fn, match)
            return DECODERS[mnemonic]
    return None


def _bound(fn: Family, match: re.Match[str]) -> Decoder:
    return lambda d: fn(d, match)
