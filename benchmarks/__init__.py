"""Every figure that the project states, one module a figure; ``python -m benchmarks`` runs those that this machine can, but for `gemm_peers` and `hang_cost`."""
