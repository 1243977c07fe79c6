"""The language of kernels: ``import mimw.language as ml``. Names, signatures and meaning of `triton.language`.

Grouped by family: `core` (dtypes, constexpr, tensor), `arith`, `math`, `tensor`, `reduce`, `memory`, `mma`, `control`, `debug`.
"""

from mimw.language.control import (
    assume,
    max_constancy,
    max_contiguous,
    multiple_of,
    num_programs,
    program_id,
    range,
    static_range,
)
from mimw.language.core import (
    bfloat16,
    constexpr,
    dtype,
    float8_e4m3fn,
    float8_e5m2,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pointer_type,
    tensor,
    uint8,
    uint16,
    uint32,
    uint64,
)
from mimw.language.memory import load, store
from mimw.language.tensor import (
    arange,
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    full,
    interleave,
    join,
    permute,
    ravel,
    reshape,
    split,
    trans,
    view,
    zeros,
    zeros_like,
)
