"""Vector add: the smallest kernel. Each program adds one block of elements; the last block is masked.

    python examples/01_vector_add.py

With NumPy arrays the kernel runs in the tile simulator; with torch CUDA tensors the same call runs on the GPU.
"""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offsets = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offsets < n
    x = ml.load(x_ptr + offsets, mask=mask)
    y = ml.load(y_ptr + offsets, mask=mask)
    ml.store(out_ptr + offsets, x + y, mask=mask)


def vector_add(x, y, out, block: int = 1024):
    """out = x + y for arrays of one dimension (NumPy, or torch on a GPU)."""
    n = x.shape[0]
    add[(mimw.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(10_000, dtype=np.float32)
    y = rng.standard_normal(10_000, dtype=np.float32)
    out = vector_add(x, y, np.full_like(x, np.nan))
    np.testing.assert_array_equal(out, x + y)
    print("vector_add: 10000 elements, equal to NumPy bit for bit")


if __name__ == "__main__":
    main()
