"""Executes CDNA3 and CDNA4 machine code (gfx942, gfx950): code objects, or assembly text in LLVM's syntax."""
