"""Small helpers of warp-specialised kernels."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.language.core import const_int, tensor, unwrap
from mimw.language.errors import fail
from mimw.language.handles import scalar_i32


def get_bufidx_phase(accum_cnt: Any, NUM_BUFFERS: int) -> tuple[Any, Any]:
    """Slot and phase of the `accum_cnt`-th use of a ring: ``(cnt % NUM_BUFFERS, (cnt // NUM_BUFFERS) & 1)``."""
    current_builder("get_bufidx_phase")
    n = const_int(NUM_BUFFERS, "get_bufidx_phase: NUM_BUFFERS")
    count = unwrap(accum_cnt)
    if n < 1 or (isinstance(count, int) and count < 0):
        fail("bad-argument", f"get_bufidx_phase: {count} in a ring of {n}")
    if isinstance(count, tensor):
        count = tensor(scalar_i32(count, "get_bufidx_phase: accum_cnt"))
    else:
        count = const_int(count, "get_bufidx_phase: accum_cnt")
    return count % n, (count // n) & 1
