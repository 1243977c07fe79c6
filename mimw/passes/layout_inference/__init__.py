"""Gives every tile a layout: constraints as data, a solver, rules of ops, and the conversions that remain."""
