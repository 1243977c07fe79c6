"""Blocks through descriptors, shared storage, chosen layouts, sorting, random numbers on a CUDA device: as the tile simulator computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.language import test_descriptor_blocks as blocks
from tests.language import test_layout_pins as pins
from tests.language import test_small_functions as small
from tests.language import test_sorting as sorting
from tests.language import test_storage as storage
from tests.language.engines_kit import arrays, copies

pytestmark = pytest.mark.gpu


def described(a: Any, block: list[int]) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(a, block)


def floats(*shape: int) -> Any:
    return blocks.numbers(shape)


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


SQUARE = floats(64, 64).astype(np.float16)
INDEX = np.random.default_rng(1).integers(0, 48, (8, 100))
CASES: dict[str, tuple[Any, tuple[int, ...], list[Any], dict[str, Any]]] = {
    "blocks in a loop": (
        blocks.doubled_blocks, (2,), [described(floats(50, 72), [32, 32]), described(zeros(50, 72), [32, 32]), 72], {"BM": 32, "BN": 32},
    ),
    "made on the device": (blocks.made_on_the_device, (3, 2), [floats(80, 48), zeros(80, 48), 80, 48], {"BM": 32, "BN": 32, "PAD": "nan"}),
    "product of blocks": (
        blocks.tma_matmul, (1, 1), [described(SQUARE, [64, 64]), described(SQUARE.copy(), [64, 64]), described(SQUARE.copy(), [64, 64]), 64],
        {"BM": 64, "BN": 64, "BK": 64},
    ),
    "branches": (blocks.in_branches, (1,), [described(floats(224).astype(np.int32), [32]), np.zeros(32, np.int32), 7], {"B": 32}),
    "tasks": (blocks.in_tasks, (1,), [described(np.arange(512, dtype=np.int32), [64]), described(np.zeros(512, np.int32), [64]), 512], {"B": 64}),
    "atomic blocks": (
        blocks.combined, (2,), [floats(40, 16).astype(np.int32), np.ones((40, 16), np.int32), 40], {"KIND": "add", "B": 32},
    ),
    "made by another task": (blocks.made_elsewhere, (1,), [floats(80, 32), zeros(80, 32), 80], {"STEPS": 5, "B": 16}),
    "upon another buffer": (storage.one_after_the_other, (1,), [floats(32, 32), zeros(32, 32)], {"N": 32}),
    "groups": (storage.grouped, (1,), [floats(3, 32, 32), zeros(3, 32, 32)], {"N": 32, "SLOTS": 3}),
    "shared by tasks": (storage.handed_over, (1,), [described(floats(160, 32), [32, 32]), described(zeros(160, 32), [32, 32])], {"N": 32, "STEPS": 5}),
    "sort": (sorting.sort_rows, (1,), [sorting.shuffled((6, 32)), zeros(6, 32)], {"M": 6, "N": 32, "DIM": 1, "DOWN": True}),
    "topk": (sorting.best, (1,), [sorting.shuffled((4, 64)), zeros(4, 4)], {"M": 4, "N": 64, "K": 4}),
    "flip": (sorting.turned, (1,), [sorting.shuffled((3, 40), np.int32), np.zeros((3, 40), np.int32)], {"M": 3, "N": 40, "DIM": 1}),
    "gather": (sorting.picked, (1,), [sorting.shuffled((8, 48), np.float16), INDEX, np.zeros((8, 100), np.float16)], {"M": 8, "N": 48, "K": 100}),
    "histogram": (sorting.counted, (1,), [np.arange(300) % 37 - 3, np.zeros(30, np.int32), 77], {"N": 300, "BINS": 30}),
    "batched product": (
        small.batched, (1,), [SQUARE[:6].reshape(2, 12, 16), SQUARE[:8].reshape(2, 16, 16), zeros(2, 12, 16)], {"B": 2, "M": 12, "N": 16, "K": 16},
    ),
    **{f"layout {kind}": (pins.turned, (1,), [floats(32, 64), zeros(64, 32)], {"M": 32, "N": 64, "KIND": kind}) for kind in pins.KINDS},
}  # fmt: skip


def on_device(args: list[Any]) -> list[Any]:
    """Arguments as torch tensors."""
    import torch

    out: list[Any] = []
    for a in args:
        if isinstance(a, TensorDescriptor):
            out.append(TensorDescriptor.from_tensor(torch.from_numpy(a.base.copy()).cuda(), a.block_shape, a.padding))
        else:
            out.append(torch.from_numpy(a.copy()).cuda() if isinstance(a, np.ndarray) else a)
    return out


@pytest.mark.parametrize("name", list(CASES))
def test_as_in_the_tile_simulator(name: str) -> None:
    kernel, grid, args, constants = CASES[name]
    mine, theirs = copies(args), on_device(args)
    kernel[grid](*mine, **constants)
    kernel[grid](*theirs, **constants)
    for want, got in zip(arrays(mine), arrays(theirs), strict=True):
        np.testing.assert_array_equal(got.cpu().numpy(), want)


def test_random_words() -> None:
    import torch

    want = np.zeros(256, np.uint32), np.zeros(256, np.float32)
    sorting.words[(1,)](*want, 99, N=256)
    got = torch.zeros(256, dtype=torch.int32, device="cuda"), torch.zeros(256, device="cuda")
    sorting.words[(1,)](*got, 99, N=256)
    np.testing.assert_array_equal(got[0].cpu().numpy().view(np.uint32), want[0])
    np.testing.assert_array_equal(got[1].cpu().numpy(), want[1])
