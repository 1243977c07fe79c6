"""Tensor descriptors at run time: a tensor in global memory, cut into blocks that a copying engine moves.

Made from the host's `TensorDescriptor` arguments (anything with `tensor`, `shape`, `strides`, `block_shape`, `padding`) and by the
device. The limits are the driver's (cuTensorMapEncodeTiled): 16-byte aligned base and strides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimw.ir.types import DType, TensorDescType
from mimw.sim.errors import SimulationError
from mimw.sim.tile.address_space import AddressSpace
from mimw.sim.tile.numerics import Array, numpy_dtype


class TensorDescriptor:
    """A descriptor argument for `run`: `tensor` is an array whose memory the blocks lie in."""

    __slots__ = ("block_shape", "padding", "shape", "strides", "tensor")

    def __init__(
        self,
        tensor: Array,
        block_shape: Sequence[int],
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        padding: str = "zero",
    ) -> None:
        self.tensor = tensor
        self.shape = tuple(shape) if shape is not None else tensor.shape
        self.strides = tuple(strides) if strides is not None else tuple(s // tensor.itemsize for s in tensor.strides)
        self.block_shape = tuple(block_shape)
        self.padding = padding


class Descriptor:
    """What a copy needs: base address, sizes and strides (elements), element type, block, what fills the holes."""

    __slots__ = ("base", "block", "dtype", "padding", "sizes", "strides")

    def __init__(
        self, base: int, sizes: Sequence[int], strides: Sequence[int], t: TensorDescType, padding: str
    ) -> None:
        self.base = base
        self.sizes = tuple(int(n) for n in sizes)
        self.strides = tuple(int(n) for n in strides)
        self.dtype: DType = t.dtype
        self.block = t.block_shape
        self.padding = padding
        self._check()

    def _check(self) -> None:
        size = self.dtype.itemsize
        if not 1 <= len(self.block) <= 5 or len(self.sizes) != len(self.block) or len(self.strides) != len(self.block):
            raise _bad(f"{len(self.sizes)} sizes and {len(self.strides)} strides for blocks of {list(self.block)}")
        if any(n < 1 for n in self.sizes):
            raise _bad(f"sizes {list(self.sizes)}: none may be below 1")
        if self.strides[-1] != 1 and self.sizes[-1] > 1:
            raise _bad(f"the last stride is {self.strides[-1]}, not 1")
        if self.base % 16:
            raise _bad(f"the tensor's address {self.base:#x} is not a multiple of 16")
        for d, stride in enumerate(self.strides[:-1]):
            if self.sizes[d] > 1 and (stride < 0 or stride * size % 16):
                raise _bad(f"stride {d} is {stride * size} bytes, not a multiple of 16")
        if self.block[-1] * size % 16:
            raise _bad(f"the block's innermost extent is {self.block[-1] * size} bytes, not a multiple of 16")

    @property
    def bytes(self) -> int:
        """Bytes of a whole block: what a copy counts, wherever it lies."""
        return int(np.prod(self.block)) * self.dtype.itemsize

    def _clip(self, coords: Sequence[int]) -> tuple[list[int], tuple[int, ...], tuple[slice, ...]]:
        """The part of the block at `coords` that lies in the tensor: where it starts, its extent, its place in the block."""
        low = [max(c, 0) for c in coords]
        high = [min(c + b, n) for c, b, n in zip(coords, self.block, self.sizes, strict=True)]
        extent = tuple(max(0, h - x) for x, h in zip(low, high, strict=True))
        place = tuple(slice(x - c, x - c + n) for x, c, n in zip(low, coords, extent, strict=True))
        return low, extent, place

    def _at(self, low: list[int]) -> int:
        return self.base + sum(x * s for x, s in zip(low, self.strides, strict=True)) * self.dtype.itemsize

    def view(self, memory: AddressSpace, coords: Sequence[int], what: str) -> tuple[Array | None, tuple[slice, ...]]:
        """The part of the block at `coords` that lies in the tensor, as a view of it (None: nothing), and its place in the
        block. `what` is "load" or "store"."""
        start = coords[-1] * self.dtype.itemsize
        if start % 16:  # an H200 stops with CUDA_ERROR_ILLEGAL_INSTRUCTION
            raise SimulationError(
                "misaligned",
                f"a TMA {what} at offset {coords[-1]} of the last dimension, byte {start} of its row: TMA takes multiples of 16 bytes",
            )
        if what == "store" and min(coords) < 0:  # loads may begin outside; stores stop an H200 with the same error
            raise SimulationError(
                "negative-offset", f"a TMA store at offsets {tuple(coords)}: a store cannot begin below 0"
            )
        low, extent, place = self._clip(coords)
        if 0 in extent:
            return None, place
        return memory.box(self._at(low), self.dtype, extent, self.strides, what), place

    def filled(self, view: Array | None, place: tuple[slice, ...]) -> Array:
        """A block with `view` at its place, and padding around it."""
        fill = np.nan if self.padding == "nan" and self.dtype.kind == "float" else 0
        out = np.full(self.block, fill, numpy_dtype(self.dtype))
        if view is not None:
            out[place] = view
        return out


def _bad(text: str) -> SimulationError:
    return SimulationError("descriptor", f"tensor descriptor: {text}")
