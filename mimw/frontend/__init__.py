"""A Python function to tile IR: the source is parsed and traced, never run by Python. Knows no target."""
