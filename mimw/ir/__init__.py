"""What a program is: ops, types, layouts, and how they are printed, parsed and verified. Knows no target and no language."""
