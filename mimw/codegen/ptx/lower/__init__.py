"""Lowerings that only PTX has, one module a family. Importing `all_lowerings` fills the table."""
