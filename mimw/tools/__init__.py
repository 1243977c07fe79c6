"""The `mimw` command and the generator of the reference."""
