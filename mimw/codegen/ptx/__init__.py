"""PTX: the table of instructions, the builder and lowerings, printer and parser, and the assembler."""
