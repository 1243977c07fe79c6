"""Triton kernels as PTX texts: compiled without a GPU, and run in the PTX simulator as Triton's own launcher would launch them.

Owns what the text does not say by itself: the types of the arguments, the order of the parameters (the user's without constants, descriptors
taken apart, then the two scratch areas), shared memory and clusters from Triton's metadata. Knows nothing of mimw's compiler.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mimw.sim.ptx.run import RunReport, run_ptx
from mimw.sim.ptx.tensor_map import encode

triton = pytest.importorskip("triton", reason="needs the extra `peers`")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

_TYPES = {
    "float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "i1", "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}  # fmt: skip
_SPANS = {0: 0, 1: 32, 2: 64, 3: 128}


class Described:
    """An array passed as a tensor descriptor made by the host, with boxes of shape `block`; both row-major."""

    def __init__(self, array: Any, block: Sequence[int]) -> None:
        self.array = array
        self.block = tuple(block)

    @property
    def strides(self) -> list[int]:
        """Strides in elements."""
        return [stride // self.array.itemsize for stride in self.array.strides]


def type_of(value: Any) -> str:
    """Triton's name for the type of an argument."""
    if isinstance(value, np.ndarray):
        return "*" + _TYPES[value.dtype.name]
    if isinstance(value, Described):
        return f"tensordesc<{_TYPES[value.array.dtype.name]}[{','.join(map(str, value.block))}]>"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


class Text:
    """A compiled kernel: `ptx`, and Triton's metadata."""

    def __init__(
        self, fn: Any, signature: dict[str, str], constants: dict[str, Any], attrs: Any, arch: int, options: Any
    ) -> None:
        source = ASTSource(fn, signature=signature, constexprs=constants, attrs=attrs)
        self.made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
        self.ptx: str = self.made.asm["ptx"]
        self.metadata = self.made.metadata


@functools.cache
def _compiled(fn: Any, types: tuple[tuple[str, str], ...], constants: tuple[tuple[str, Any], ...], even: tuple[int, ...], arch: int,
              options: tuple[tuple[str, Any], ...]) -> Text:  # fmt: skip
    attrs = {(i,): [["tt.divisibility", 16]] for i in even}
    return Text(fn, dict(types), dict(constants), attrs, arch, dict(options))


def compiled(fn: Any, values: dict[str, Any], arch: int = 90, **options: Any) -> Text:
    """The text for these arguments. Pointers count as 16-byte aligned, ints that 16 divides as such, ints
    of one are constants, all as in a launch by Triton."""
    constexprs = {p.name for p in fn.params if p.is_constexpr}
    constexprs |= {name for name in fn.arg_names if type(values[name]) is int and values[name] == 1}
    types = tuple((name, "constexpr" if name in constexprs else type_of(values[name])) for name in fn.arg_names)
    even = tuple(
        i for i, (name, kind) in enumerate(types) if kind[0] == "*" or (kind[0] == "i" and values[name] % 16 == 0)
    )
    constants = tuple((name, values[name]) for name in fn.arg_names if name in constexprs)
    return _compiled(fn, types, constants, even, arch, tuple(sorted(options.items())))


def _parameters(text: Text, fn: Any, values: dict[str, Any], programs: int) -> list[Any]:
    """The arguments as the entry's parameters want them."""
    out: list[Any] = []
    described = iter(text.metadata.tensordesc_meta or ())
    for p in fn.params:
        value = values[p.name]
        if p.is_constexpr or (type(value) is int and value == 1):
            continue
        if not isinstance(value, Described):
            out.append(value)
            continue
        meta = next(described)
        shape, strides = list(value.array.shape), value.strides
        bytes_of = [stride * value.array.itemsize for stride in strides]
        out.append(encode(value.array, value.array.dtype.name, shape[::-1], bytes_of[-2::-1], list(meta["block_size"])[::-1],
                          swizzle=_SPANS[meta["swizzle"]]))  # fmt: skip
        out += [*shape, *strides]
    size = text.metadata.global_scratch_size
    out.append(np.zeros(size * programs * text.metadata.num_ctas, np.uint8) if size else 0)
    out.append(0)
    return out


def fenced(ptx: str) -> str:
    """The text with the fences for the async proxy that the ISA asks for and Triton leaves out.

    mbarrier.init and cp.async go through the generic proxy (PTX ISA, "Async proxy"): bulk copies that signal the barrier, and wgmma
    that reads the bytes, come after a fence.
    """
    ptx = re.sub(r"(mbarrier\.init\.[^;]*;)", r"\1 fence.proxy.async.shared::cta;", ptx)
    if "wgmma" in ptx:
        ptx = re.sub(r"(cp\.async\.wait_group\s+\d+;)", r"\1 fence.proxy.async.shared::cta;", ptx)
    return ptx


def launch(
    fn: Any,
    grid: Sequence[int],
    values: dict[str, Any],
    arch: int = 90,
    seed: int = 0,
    as_made: bool = False,
    **options: Any,
) -> RunReport:
    """Compile for sm_`arch` with Triton's options (num_warps, num_stages, ...) and run `grid` programs; arrays are written in place.

    The text is `fenced` unless `as_made`.
    """
    text = compiled(fn, values, arch, **options)
    x, y, z = (*grid, 1, 1)[:3]
    ctas = text.metadata.num_ctas
    shown = os.environ.get("MIMW_SHOW_PTX")
    if shown:
        with open(shown, "w") as file:
            file.write(text.ptx)
    return run_ptx(
        text.ptx if as_made else fenced(text.ptx), None, (x * ctas, y, z), _parameters(text, fn, values, x * y * z), shared_bytes=text.metadata.shared,
        cluster=(ctas, 1, 1) if ctas > 1 else None, seed=seed, strict=False,
    )  # fmt: skip
