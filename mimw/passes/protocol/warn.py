"""Warnings of the protocol checks: likely faults, which a comment ``# mimw: ignore[code]`` at the line silences. Errors cannot be silenced."""

from __future__ import annotations

from mimw.diagnostics import Loc, MimwWarning, Note, warn
from mimw.ir.core import Module

WARNINGS: dict[str, str] = {
    "barrier-same-phase": "A wait in a loop for the same phase of the same barrier in every trip: phases alternate.",
    "barrier-unawaited": "Arrivals on an mbarrier that nobody waits for.",
    "barrier-unused": "An mbarrier that nobody uses.",
    "dot-wait": "A slot is given back in a loop whose products that read it are never waited for there.",
    "read-after-release": "A slot is read after it was given back to who fills it.",
    "slot-mismatch": "A copy into one slot of a ring counts on the barrier of another slot.",
    "store-wait": "A loop writes a buffer, and starts stores from it that it never waits for.",
}
"""Code to its meaning in one line; docs/errors.md is made from this table."""


def tell(
    module: Module, code: str, loc: Loc, text: str, notes: list[Note] | None = None, hint: str | None = None
) -> None:
    """Warn at a line; what is told also stays as a remark of the module."""
    if warn(MimwWarning(code, text, loc, notes=notes, hint=hint)):
        module.remark("protocol", loc, text)
