"""Tensor copies, clusters and a TMA matmul: the same text in the simulator and on the device give equal bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.run import run_ptx

from . import test_ptx_cluster as cluster
from . import test_ptx_tma as tma
from . import test_ptx_tma_matmul as matmul
from .device import launch
from .mimw_programs import kernel

pytestmark = pytest.mark.gpu


def same(text: str, make: Any, grid: int = 1, threads: int = 32, shared: int = 4096) -> None:
    """`make()` gives (arguments, arrays to compare), afresh for each engine."""
    results: list[list[bytes]] = []
    for device in (False, True):
        args, arrays = make()
        if device:
            launch(text, "k", (grid, 1, 1), (threads, 1, 1), args, shared)
        else:
            run_ptx(text, "k", (grid, 1, 1), args, shared_bytes=shared)
        results.append([np.ascontiguousarray(a).tobytes() for a in arrays])
    assert results[0] == results[1]


@pytest.mark.parametrize(("shape", "box", "coords", "span"), tma.RANKS)
def test_loads_and_stores(shape: tuple[int, ...], box: tuple[int, ...], coords: tuple[int, ...], span: int) -> None:
    nbytes = 2 * int(np.prod(box))

    def load() -> tuple[list[Any], list[Any]]:
        x, out = tma.tensor(shape), np.zeros(nbytes, np.uint8)
        return [tma.map_of(x, box, swizzle=span), out, x][:2], [out, x]

    def store() -> tuple[list[Any], list[Any]]:
        x = tma.tensor(shape)
        return [tma.map_of(x, box, swizzle=span), np.ascontiguousarray(tma.tensor(box[::-1]))], [x]

    same(tma.load_text(coords, nbytes), load)
    same(tma.store_text(tuple(max(0, c) for c in coords), nbytes), store)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_nan_fill(dtype: Any) -> None:
    """The fill is 0x7FF7 over and over, whatever the type: bits are compared."""
    text = tma.load_text((16, 3), 64 * np.dtype(dtype).itemsize)
    results: list[Any] = []
    for device in (False, True):
        x, out = tma.tensor((5, 24), dtype), np.zeros((4, 16), dtype)
        args = [tma.map_of(x, (16, 4), fill="nan"), out.view(np.uint8)]
        if device:
            launch(text, "k", (1, 1, 1), (32, 1, 1), args, 4096)
        else:
            run_ptx(text, "k", (1, 1, 1), args, shared_bytes=4096)
        results.append(out)
    assert np.isnan(results[0].astype(np.float64)).any()
    assert results[0].tobytes() == results[1].tobytes()


def test_element_strides() -> None:
    def make() -> tuple[list[Any], list[Any]]:
        x, out = tma.tensor((12, 40), np.float32), np.zeros((3, 8), np.float32)
        return [tma.map_of(x, (8, 7), element_strides=(1, 3)), out], [out, x]

    same(tma.load_text((4, 1), 96), make)
    same(tma.load_text((4, 6), 96), make)
    same(tma.load_text((4, -2), 96), make)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("add", np.float32), ("add", np.int32), ("add", ml_dtypes.bfloat16), ("add", np.float16), ("min", np.int32), ("max", np.float16),
     ("max", ml_dtypes.bfloat16), ("xor", np.uint32), ("inc", np.uint32), ("add", np.uint64), ("min", np.int64)],
)  # fmt: skip
def test_reductions(op: str, dtype: Any) -> None:
    def make() -> tuple[list[Any], list[Any]]:
        x, tile = tma.tensor((6, 24), dtype), tma.tensor((4, 16), dtype)[:, ::-1].copy()
        return [tma.map_of(x, (16, 4)), tile], [x]

    same(tma.store_text((16, 3), 64 * np.dtype(dtype).itemsize, op), make)


def test_plain_copies_and_maps_made_on_the_device() -> None:
    def make() -> tuple[list[Any], list[Any]]:
        x, y = np.arange(64, dtype=np.uint32), np.full(64, 1000, np.uint32)
        return [x, y], [x, y]

    same(kernel(tma.PLAIN, pointers=2), make)

    def edit() -> tuple[list[Any], list[Any]]:
        x, out = np.arange(6 * 24, dtype=np.float32).reshape(6, 24), np.zeros((4, 16), np.float32)
        return [out, np.zeros(128, np.uint8), x], [out]

    same(kernel(tma.EDIT, pointers=3), edit)


def test_clusters() -> None:
    def out(*shape: int) -> Any:
        def make() -> tuple[list[Any], list[Any]]:
            array = np.zeros(shape, np.uint32)
            return [array], [array]

        return make

    same(kernel(cluster.EXCHANGE, pointers=1, cluster=4), out(8, 32), grid=8)
    same(kernel(cluster.OWN_ADDRESS, pointers=1, cluster=2), out(2, 3), grid=2)
    same(cluster.remote(cluster.ST), out(2, 32), grid=2)
    same(cluster.remote(cluster.RED), out(2, 32), grid=2)

    def multicast() -> tuple[list[Any], list[Any]]:
        x = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float16)
        array = np.zeros((2, 16, 64), np.float16)
        return [tensor_map.encode(x, "f16", (64, 16), (128,), (64, 8)), array], [array, x]

    same(kernel(cluster.MULTICAST, 1, 1, cluster=2), multicast, grid=2)


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_matmul(steps: int) -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(-4, 5, (512, 64 * steps)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-4, 5, (matmul.N, 64 * steps)).astype(ml_dtypes.bfloat16)

    def make() -> tuple[list[Any], list[Any]]:
        out = np.zeros((512, matmul.N), ml_dtypes.bfloat16)
        maps = [
            tensor_map.encode(x, "bf16", x.shape[::-1], x.strides[:1], box, swizzle=128)
            for x, box in ((a, (64, 128)), (b, (64, matmul.N // 2)), (out, (64, 128)))
        ]
        return [*maps, steps], [out]

    same(matmul.text(), make, grid=4, threads=384, shared=matmul.SHARED)
