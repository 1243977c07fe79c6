"""Tile IR to AMDGCN, in this order:

* `emit` runs the lowerings (`lower/` and `codegen.shared`) against the lane builder (`builder/`), which makes SSA machine code;
* `finish` runs what comes after: passes on SSA code (`ssa/`), registers (`allocation/`), passes on the flat body (`flat/`);
* `printer` writes the text, `parser` reads it back, `binary/` makes a code object of it: LLVM only assembles and disassembles.

All stand on the instruction table (`isa`, `isa_table`) and the register files (`registers`); `module` is the kernel as data.
"""
