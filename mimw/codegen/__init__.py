"""Tile IR with layouts to machine IR and text. Knows no language; a target has its own package."""
