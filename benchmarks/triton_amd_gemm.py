"""The kernel of `benchmarks.amd_gemm` in Triton, compiled for AMD's machines without one: a program of its own, so that any Triton can run it.

    python benchmarks/triton_amd_gemm.py

Prints one line of JSON: {"version": .., "gfx942": {"text": .., "image": hex, "shared": bytes, "warps": 8}, "gfx950": ..}. Imports nothing of mimw.
"""

from __future__ import annotations

import json

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BLOCK = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 64}
WARPS, STAGES = 8, 2


@triton.jit
def gemm(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty))


def compiled(target: str, buffers: bool) -> dict[str, object]:
    """The kernel for a target; `buffers` promises arrays below 2 GiB, for which Triton takes buffer instructions."""
    names = gemm.arg_names[:9]
    kinds = {name: "*bf16" if i < 3 else "i32" for i, name in enumerate(names)} | dict.fromkeys(BLOCK, "constexpr")
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(9)}
    for i in range(3 if buffers else 0):
        attrs[i,].append(["tt.pointer_range", 32])
    source = ASTSource(gemm, signature=kinds, constexprs=BLOCK, attrs=attrs)
    options = {"num_warps": WARPS, "num_stages": STAGES}
    made = triton.compile(source, target=GPUTarget("hip", target, 64), options=options)
    return {
        "text": made.asm["amdgcn"],
        "image": made.asm["hsaco"].hex(),
        "shared": made.metadata.shared,
        "warps": WARPS,
    }


if __name__ == "__main__":
    found: dict[str, object] = {"version": triton.__version__}
    for arch in ("gfx942", "gfx950"):
        found[arch] = compiled(arch, buffers=False)
        found[f"{arch} buffers"] = compiled(arch, buffers=True)
    print(json.dumps(found))
