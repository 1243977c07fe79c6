"""Tile IR to AMDGCN: instruction table, builder, registers, printer; LLVM only assembles and disassembles."""
