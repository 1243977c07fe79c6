"""Passes on SSA machine code, before it gets registers. `finish.py` says in which order; all assume what `prepare` leaves."""
