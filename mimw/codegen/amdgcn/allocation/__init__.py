"""Physical registers for SSA machine code: live ranges, allocation, spilling, and the way to a flat body. `regalloc.py` is where to begin."""
