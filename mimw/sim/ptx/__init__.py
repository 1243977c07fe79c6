"""Executes PTX text, of any compiler, as the ISA says; finds races, deadlocks and misuse on the way."""
