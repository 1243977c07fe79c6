"""Lowerings for every target, written against `LaneBuilder`. Importing `all_lowerings` fills the table."""
