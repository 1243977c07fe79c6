"""How functions of the language refuse: an error of the user's, at the place that is being traced."""

from __future__ import annotations

from typing import NoReturn

from mimw.diagnostics import CompilationError
from mimw.ir.builder import current_builder


def fail(code: str, message: str, hint: str | None = None) -> NoReturn:
    """Raise a `CompilationError` at the builder's place."""
    raise CompilationError(code, message, current_builder(message).loc, hint=hint)
