"""Passes on flat bodies with physical registers: EXEC, pseudo instructions, waits, hazards. `finish.py` says in which order."""
