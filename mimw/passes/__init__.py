"""Tile IR to tile IR; `pipeline.py` lists the passes in order and says why. Knows a `Target` as a value, and no machine code."""
