"""Imports every family of PTX's own lowerings, so that the table is full."""

__all__: list[str] = []
