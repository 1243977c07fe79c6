"""Imports every family, so that the table of lowerings is full."""

from mimw.codegen.shared import casts, control, convert, elementwise, memory, reduce, tensor

__all__ = ["casts", "control", "convert", "elementwise", "memory", "reduce", "tensor"]
