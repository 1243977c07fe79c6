"""Softmax over rows of any width: each program holds one row in registers, reads it once and writes it once.

    python examples/02_softmax.py

A width that is not a power of two is padded to the next one; what lies past the row's end is masked and counts as -inf.
"""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def softmax_rows(x_ptr, out_ptr, x_stride, out_stride, width, BLOCK: ml.constexpr):
    row = ml.program_id(0)
    columns = ml.arange(0, BLOCK)
    mask = columns < width
    x = ml.load(x_ptr + row * x_stride + columns, mask=mask, other=-float("inf")).to(ml.float32)
    e = ml.exp(x - ml.max(x, axis=0))
    y = e / ml.sum(e, axis=0)
    ml.store(out_ptr + row * out_stride + columns, y.to(out_ptr.dtype.element_ty), mask=mask)


def softmax(x, out):
    """Row softmax of x: [rows, width] into out; the last dimension of both must be contiguous."""
    rows, width = x.shape
    block = mimw.next_power_of_2(width)
    warps = min(16, max(1, block // 512))
    row_stride = [a.stride(0) if hasattr(a, "data_ptr") else a.strides[0] // a.itemsize for a in (x, out)]
    softmax_rows[(rows,)](x, out, row_stride[0], row_stride[1], width, BLOCK=block, num_warps=warps)
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    for width in (1, 33, 781, 1024):
        x = rng.standard_normal((7, width), dtype=np.float32) * 4
        out = softmax(x, np.full_like(x, np.nan))
        want = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        want /= want.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(out, want, rtol=2e-6, atol=1e-7)
        print(f"softmax: 7 rows of {width}, largest error {np.abs(out - want).max():.1e}")


if __name__ == "__main__":
    main()
