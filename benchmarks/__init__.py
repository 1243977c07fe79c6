"""Every figure that the project states, one module a figure; ``python -m benchmarks`` runs those that this machine can, save two."""
