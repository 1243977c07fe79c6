"""What an asynchronous product on Hopper cannot be: refused at the user's line, with what to do."""

from __future__ import annotations

import pytest

import mimw
import mimw.language as ml


@mimw.kernel
def product(a, b, o, K: ml.constexpr, WARPS: ml.constexpr):
    left = ml.local_alloc((64, K), ml.dtype_of(a), 1)
    right = ml.local_alloc((K, 64), ml.dtype_of(b), 1)
    done = ml.alloc_barriers(1)
    m, k, n = ml.arange(0, 64), ml.arange(0, K), ml.arange(0, 64)
    ml.local_store(left[0], ml.load(a + m[:, None] * K + k[None, :]))
    ml.local_store(right[0], ml.load(b + k[:, None] * 64 + n[None, :]))
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_arrive(done[0])
        with ml.async_task(num_warps=WARPS):
            ml.barrier_wait(done[0], 0)
            acc = ml.async_dot_wait(0, ml.async_dot(left[0], right[0]))
            ml.store(o + ml.arange(0, 64)[:, None] * 64 + ml.arange(0, 64)[None, :], acc)


def compiled(dtype: str, K: int, WARPS: int = 4) -> mimw.CompiledKernel:
    result = "*i32:16" if dtype == "i8" else "*f32:16"
    return product.compile([f"*{dtype}:16", f"*{dtype}:16", result], {"K": K, "WARPS": WARPS}, assembled=False)


def refusal(dtype: str, K: int, WARPS: int = 4) -> mimw.CompilationError:
    with pytest.raises(mimw.CompilationError) as caught:
        compiled(dtype, K, WARPS)
    error = caught.value
    assert error.code == "unsupported" and error.loc is not None
    assert error.loc.file == __file__ and "ml.async_dot(left[0], right[0])" in str(error)
    return error


@pytest.mark.parametrize("warps", [1, 2])
def test_a_product_by_less_than_a_warp_group(warps: int) -> None:
    error = refusal("f16", 64, warps)
    assert f"async_dot by {warps} warp" in error.message and "whole warp groups" in error.message
    assert "num_warps=4 or 8" in str(error)


@pytest.mark.parametrize(("dtype", "K", "step"), [("f16", 40, 16), ("f16", 8, 16), ("i8", 16, 32), ("f8e4m3", 40, 32), ("f32", 12, 8)])  # fmt: skip
def test_a_product_whose_k_is_no_multiple_of_an_instructions(dtype: str, K: int, step: int) -> None:
    assert f"async_dot of K = {K}: of this type the tensor core takes multiples of {step}" in refusal(dtype, K).message


@pytest.mark.parametrize(("dtype", "K"), [("f16", 48), ("i8", 32), ("f32", 8)])
def test_the_smallest_steps_compile(dtype: str, K: int) -> None:
    assert "wgmma" in compiled(dtype, K).asm["ptx"]
