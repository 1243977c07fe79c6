"""Arguments of a launch against the compiled signature.

Owns: what is checked of arguments (number, place, dtype, range, promised alignment), the errors, the value that is
packed. Assumes the descriptions of `arrays.py`. Must not know drivers or how a launch is made.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NoReturn

from mimw.diagnostics import LaunchError
from mimw.runtime.arrays import ArrayInfo, DescriptorInfo, ScalarInfo, describe
from mimw.runtime.convention import POINTER, TENSOR_MAP, KernelMetadata, Param
from mimw.runtime.launch_errors import caller_loc

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})


def describe_arguments(meta: KernelMetadata, args: Sequence[Any]) -> list[ArrayInfo | ScalarInfo]:
    """What each argument is; `LaunchError` when their number is wrong or one is of no use to any kernel."""
    params = meta.arguments
    if len(args) != len(params):
        names = ", ".join(p.name for p in params) or "none"
        few = "few" if len(args) < len(params) else "many"
        message = (
            f"kernel {meta.name!r}: too {few} arguments: it takes {len(params)} ({names}), the launch gives {len(args)}"
        )
        hint = "constexprs and arguments compiled in as constants are not passed to a compiled kernel"
        raise LaunchError("launch-arguments", message, caller_loc(), hint=hint)
    infos: list[ArrayInfo | ScalarInfo] = []
    for param, arg in zip(params, args, strict=True):
        try:
            infos.append(describe(arg))
        except (TypeError, RuntimeError, BufferError) as error:  # the last two are the array's own library's
            message = f"kernel {meta.name!r}: argument {param.name!r}: {error}"
            raise LaunchError("launch-arguments", message, caller_loc()) from None
    return infos


def argument_device(meta: KernelMetadata, infos: Sequence[ArrayInfo | ScalarInfo]) -> int | None:
    """The CUDA device of all array arguments, None without any; `LaunchError` for host arrays and two devices."""
    device: int | None = None
    first = ""
    for param, info in zip(meta.arguments, infos, strict=True):
        if not isinstance(info, ArrayInfo):
            continue
        if info.kind != "cuda":
            message = f"kernel {meta.name!r}, compiled for {meta.target}: argument {param.name!r} lies in host memory"
            hint = "move it to the device; `kernel[grid](...)` with host arrays only runs in the simulator"
            raise LaunchError("launch-host-array", message, caller_loc(), hint=hint)
        if device is None:
            device, first = info.device, param.name
        elif info.device != device:
            message = (
                f"kernel {meta.name!r}: arguments lie on two devices: {first!r} on cuda:{device}, "
                f"{param.name!r} on cuda:{info.device}"
            )
            raise LaunchError("launch-device", message, caller_loc(), hint="move them to one device")
    return device


def checked_value(kernel: str, param: Param, info: ArrayInfo | ScalarInfo) -> int | float | bool:
    """The number to pack for an argument; `LaunchError` when it does not suit the parameter.

    For a tensor descriptor it is the address; the tensor map is made of it later; `check_block` looks at its blocks.
    """
    if param.kind == POINTER:
        return _checked_pointer(kernel, param, info)
    if param.kind == TENSOR_MAP:
        return _checked_descriptor(kernel, param, info).ptr
    if not isinstance(info, ScalarInfo):
        _refuse(kernel, param, f"an array of {info.dtype}", "launch-dtype")
    value = info.value
    if param.kind in FLOATS:
        return _checked_float(kernel, param, info)
    if isinstance(value, float):
        _refuse(kernel, param, f"the float {value!r}", "launch-dtype")
    bits = 1 if param.kind == "i1" else int(param.kind[1:])
    low, high = (0, 2**bits) if param.kind[0] == "u" or bits == 1 else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    if not low <= value < high:
        _refuse(kernel, param, f"{value}, which does not fit", "launch-dtype")
    if value % param.divisor:
        _refuse(kernel, param, f"{value}, but was compiled for multiples of {param.divisor}", "launch-alignment")
    if param.below and not 0 <= value < param.below:
        _refuse(kernel, param, f"{value}, but was compiled for 0 to {param.below - 1}", "launch-range")
    return bool(value) if param.kind == "i1" else int(value)


def check_block(kernel: str, param: Param, info: ArrayInfo | ScalarInfo, block: tuple[int, ...]) -> None:
    """`LaunchError` unless the descriptor cuts its tensor into the blocks that the code was compiled for."""
    found = _checked_descriptor(kernel, param, info).block_shape
    if found != block:
        got = f"one with blocks of {list(found)}, but was compiled for blocks of {list(block)}"
        _refuse(kernel, param, got, "launch-dtype")


def _checked_descriptor(kernel: str, param: Param, info: ArrayInfo | ScalarInfo) -> DescriptorInfo:
    if not isinstance(info, DescriptorInfo):
        _refuse(
            kernel,
            param,
            f"an array of {info.dtype}" if isinstance(info, ArrayInfo) else f"{info.value!r}",
            "launch-dtype",
        )
    if info.dtype != param.dtype:
        _refuse(kernel, param, f"a tensor descriptor of {info.dtype}", "launch-dtype")
    return info


def _checked_pointer(kernel: str, param: Param, info: ArrayInfo | ScalarInfo) -> int:
    if isinstance(info, DescriptorInfo):
        _refuse(kernel, param, "a tensor descriptor", "launch-dtype")
    if not isinstance(info, ArrayInfo):
        _refuse(kernel, param, f"the scalar {info.value!r}", "launch-dtype")
    if param.dtype and info.dtype != param.dtype:
        _refuse(kernel, param, f"an array of {info.dtype}", "launch-dtype")
    if info.ptr % param.divisor:
        _refuse(
            kernel,
            param,
            f"an array at {info.ptr:#x}, but was compiled for addresses divisible by {param.divisor}",
            "launch-alignment",
        )
    return info.ptr


def _checked_float(kernel: str, param: Param, info: ScalarInfo) -> int | float:
    value = float(info.value)
    if param.kind == "bf16":
        return bf16_bits(value)
    if param.kind != "f64" and math.isfinite(value):
        try:
            struct.pack("<e" if param.kind == "f16" else "<f", value)
        except OverflowError:
            _refuse(kernel, param, f"{value!r}, which is beyond its range", "launch-dtype")
    return value


def _refuse(kernel: str, param: Param, got: str, code: str) -> NoReturn:
    message = f"kernel {kernel!r}: argument {param.name!r} is a {param.describe()}, the launch gives {got}"
    raise LaunchError(code, message, caller_loc())


def bf16_bits(value: float) -> int:
    """The 16 bits of a float as bf16, rounded once to nearest even from its 53 bits."""
    if math.isnan(value):
        return 0x7FC0
    sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
    magnitude = abs(value)
    if math.isinf(magnitude):
        return sign | 0x7F80
    if magnitude == 0:
        return sign
    # 8 bits of precision from 2^-126 up, a fixed step of 2^-133 below; `round` is to nearest even, and the scaling is
    # exact.
    exponent = max(math.frexp(magnitude)[1], -125)
    steps = round(math.ldexp(magnitude, 8 - exponent))
    # A carry out of the significand walks into the exponent, and past the largest finite value to infinity, as it
    # should.
    return sign | min(((exponent + 125) << 7) + steps, 0x7F80)
