"""Imports every family, so that the table of lowerings is full."""

from mimw.codegen.shared import casts, control, elementwise, memory, tensor

__all__ = ["casts", "control", "elementwise", "memory", "tensor"]
