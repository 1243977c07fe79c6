"""Run the benchmarks that this machine can: compile time, import time and AMD's code everywhere, the rest on a CUDA device with torch.

Left out, to be run by name: `gemm_peers` (needs one version of Triton) and `hang_cost` (changes how launches wait).
"""

from __future__ import annotations

from benchmarks import amd_gemm, bandwidth, compile_time, gemm, import_time, matmul
from mimw.runtime import driver_api


def main() -> None:
    import_time.main()
    compile_time.main()
    amd_gemm.main()
    if not driver_api.available():
        print("no CUDA device: bandwidth, matmul and gemm are left out")
        return
    bandwidth.main()
    matmul.main()
    gemm.main(["--quick"])


if __name__ == "__main__":
    main()
