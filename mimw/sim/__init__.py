"""Executes tile IR, and emitted text, without a GPU. Knows instruction tables and parsers, never a lowering."""
