"""Arguments and their types as a kernel is compiled for them: keys of specialisation, and signatures written as text.

Owns what of an argument becomes part of the code, and the spelling of types in `Kernel.compile`. Launches and compiles nothing; knows a
kernel only by its parameters.

Specialisation: a pointer is known by its dtype and whether its address is a multiple of 16 bytes; an integer by its width (i32, i64 beyond 2^31, u64
beyond 2^63), by whether it is a multiple of 16, by being 1 (then it is a constant), and on AMD's machines by being in [0, 2^15) or [0, 2^20), as
offsets that small strides give fit into 32 bits; bool is i1, float is f32, None and constexprs are
constants; a tensor descriptor is known by its dtype and block shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mimw.diagnostics import LaunchError
from mimw.frontend.source import KernelFunction
from mimw.frontend.trace import Arg, Const, Signature
from mimw.ir.types import DTYPES, I1, I32, I64, U64, DType, PointerType, TensorDescType
from mimw.language.core import constexpr
from mimw.runtime.arrays import ArrayInfo, ScalarInfo
from mimw.runtime.tensor_descriptor import TensorDescriptor

_class_of: Callable[[Any], Any] = type
POINTER_DIVISOR = 16
INTEGER_DIVISOR = 16
SHORT, SHORTER = 1 << 20, 1 << 15
"""Below these an integer is small: 2047 rows with so many bytes between them, and so many rows with so many bf16 in each, stay below 2 GiB."""


class Parameters(Protocol):
    """What is asked of a kernel here."""

    parameter_names: tuple[str, ...]
    constexpr_flags: tuple[bool, ...]
    defaults: dict[str, Any]

    def is_constant(self, name: str) -> bool:
        """Whether a keyword of a launch is a constexpr parameter or an option, not a run-time parameter."""
        ...

    def refuse(self, code: str, text: str, hint: str | None = None) -> LaunchError:
        """The error that this kernel `text`, at the caller's line."""
        ...

    def describe(self, index: int, value: Any) -> ArrayInfo | ScalarInfo:
        """What an argument is; `LaunchError` when it is neither array nor scalar."""
        ...


def specialise(kernel: Parameters, values: list[Any]) -> tuple[Any, ...]:
    """What of the values becomes part of the code, as a hashable key: one entry a parameter.

    An entry is ("c", type, value) of a constant, ("c", "kernel", kernel, version) of a kernel,
    ("p", dtype, aligned), ("s", dtype, divisible) (with a bound as fourth after `with_bounds`), or ("d", dtype, block shape).
    """
    key: list[Any] = []
    constexprs = kernel.constexpr_flags
    for i, v in enumerate(values):
        key.append(_constant_key(kernel, i, v) if constexprs[i] else _value_key(kernel, i, v))
    return tuple(key)


def with_bounds(key: tuple[Any, ...], values: list[Any]) -> tuple[Any, ...]:
    """A key of `specialise` that also says which i32 are in [0, `SHORTER`) or [0, `SHORT`): for machines whose addresses profit."""
    return tuple(
        (*k, _bound(v)) if k[:2] == ("s", "i32") and isinstance(v, int) and _bound(v) else k
        for k, v in zip(key, values, strict=True)
    )


def _bound(v: int) -> int:
    return 0 if v < 0 or v >= SHORT else SHORTER if v < SHORTER else SHORT


def quick_key(kernel: Parameters, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """What a launch that was seen before is known by, made without describing its arguments. None where that takes a closer look.

    For torch tensors on a GPU, descriptors of such, and Python scalars: equal keys mean equal specialisations and options.
    """
    flags = kernel.constexpr_flags
    if len(args) > len(flags):
        return None
    key: list[Any] = [len(args)]
    for v, constant in zip(args, flags, strict=False):
        key.append(_quick_part(v, constant))
    for name, v in kwargs.items():
        if name != "stream":
            key.append(name)
            key.append(_quick_part(v, kernel.is_constant(name)))
    return None if None in key else tuple(key)


def _quick_part(v: Any, constant: bool) -> tuple[Any, ...] | None:
    if isinstance(v, KernelFunction):
        return ("c", "kernel", v, v.version())
    if constant or v is None or is_meta(v):
        return ("c", _class_of(v), v)
    kind = _class_of(v)
    if kind is int:
        return (*_integer_key(v), _bound(v))
    if kind is float or kind is bool:
        return ("s", kind)
    if kind is TensorDescriptor:
        return ("d", v.dtype, v.block_shape, v.device) if v.device >= 0 else None
    if not hasattr(v, "data_ptr") or not hasattr(v, "get_device"):
        return None
    device = v.get_device()
    return ("p", v.dtype, v.data_ptr() % POINTER_DIVISOR == 0, device) if device >= 0 else None


def signature_of(names: tuple[str, ...], key: tuple[Any, ...], values: list[Any]) -> Signature:
    """The frontend's signature for a key of `specialise`."""
    specs: dict[str, Arg | Const] = {}
    for name, k, v in zip(names, key, values, strict=True):
        if k[0] == "c":
            specs[name] = Const(v)
        elif k[0] == "p":
            specs[name] = Arg(PointerType(DTYPES[k[1]]), POINTER_DIVISOR if k[2] else 1)
        elif k[0] == "d":
            specs[name] = Arg(TensorDescType(k[2], DTYPES[k[1]]))
        else:
            specs[name] = Arg(DTYPES[k[1]], INTEGER_DIVISOR if k[2] else 1, *k[3:])
    return specs


def is_constexpr(annotation: Any) -> bool:
    """Whether a parameter's annotation says constexpr: the class itself, or its name in a string (postponed annotations)."""
    if not isinstance(annotation, str):
        return annotation is constexpr
    return annotation.strip("'\"").partition("[")[0].rpartition(".")[2] == "constexpr"


def is_meta(v: Any) -> bool:
    """Values that are constants wherever they stand: dtypes, kernels, strings, tuples."""
    return isinstance(v, (DType, KernelFunction, str, tuple))


def _constant_key(kernel: Parameters, index: int, v: Any) -> tuple[Any, ...]:
    if isinstance(v, KernelFunction):
        return ("c", "kernel", v, v.version())
    try:
        hash(v)
    except TypeError:
        name = kernel.parameter_names[index]
        what = f"a {type(v).__name__}"
        raise kernel.refuse(
            "launch-constexpr",
            f"cannot take {what} for {name!r}: it is a constexpr, which must be hashable",
            hint="constants are numbers, strings, dtypes, and tuples of them; an array is passed to a parameter without annotation",
        ) from None
    return ("c", type(v).__name__, v)


def _value_key(kernel: Parameters, index: int, v: Any) -> tuple[Any, ...]:
    if isinstance(v, bool):
        return ("s", "i1", False)
    if isinstance(v, int):
        return _integer_key(v)
    if v is None or is_meta(v):
        return _constant_key(kernel, index, v)
    if type(v) is float:  # NumPy's float64 is a float too, and keeps its own type
        return ("s", "f32", False)
    if isinstance(v, TensorDescriptor):  # the padding is the launch's alone
        return ("d", v.dtype, v.block_shape)
    info = kernel.describe(index, v)
    if isinstance(info, ArrayInfo):
        return ("p", info.dtype, info.ptr % POINTER_DIVISOR == 0)
    if isinstance(info.value, int) and not isinstance(info.value, bool):
        return ("s", info.dtype, info.value % INTEGER_DIVISOR == 0)
    return ("s", info.dtype, False)


def _integer_key(v: int) -> tuple[Any, ...]:
    if v == 1:
        return ("c", "int", 1)
    if -(1 << 31) <= v < 1 << 31:
        dtype: DType = I32
    elif -(1 << 63) <= v < 1 << 63:
        dtype = I64
    else:
        dtype = U64
    return ("s", dtype.name, v % INTEGER_DIVISOR == 0)


def parse_signature(
    kernel: Parameters, types: dict[str, Any] | list[Any] | tuple[Any, ...], constants: dict[str, Any]
) -> Signature:
    """The textual signature of `Kernel.compile` as the frontend's."""
    names = kernel.parameter_names
    flags = kernel.constexpr_flags
    if isinstance(types, dict):
        signature = types
    else:
        runtime = [n for n, c in zip(names, flags, strict=True) if not c and n not in constants]
        if len(types) != len(runtime):
            text = f"has {len(runtime)} run-time parameters ({', '.join(runtime)}), {len(types)} types were given"
            raise kernel.refuse("launch-signature", text)
        signature = dict(zip(runtime, types, strict=True))
    unknown = [n for n in (*signature, *constants) if n not in names]
    if unknown:
        raise kernel.refuse("launch-signature", f"has no parameter {unknown[0]!r}; it has {', '.join(names)}")
    specs: dict[str, Arg | Const] = {}
    for name, constant in zip(names, flags, strict=True):
        if name in constants:
            specs[name] = Const(constants[name])
        elif name in signature:
            specs[name] = Const(signature[name]) if constant else _parse_type(kernel, name, signature[name])
        elif name in kernel.defaults:
            specs[name] = Const(kernel.defaults[name])
        else:
            raise kernel.refuse("launch-signature", f"misses the {'value' if constant else 'type'} of {name!r}")
    return specs


_TYPE_NAMES = {
    "fp16": "f16", "fp32": "f32", "fp64": "f64", "fp8e4nv": "f8e4m3", "fp8e5": "f8e5m2", "fp8e4b8": "f8e4m3fnuz",
    "fp8e5b16": "f8e5m2fnuz", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "i1",
}  # fmt: skip


def _parse_type(kernel: Parameters, name: str, text: Any) -> Arg | Const:
    if isinstance(text, DType):
        return Arg(text, 1)
    if isinstance(text, TensorDescriptor):
        return Arg(TensorDescType(text.block_shape, DTYPES[text.dtype]))
    if hasattr(text, "__array_interface__") or hasattr(text, "data_ptr"):  # an example; NumPy's scalars are ones too
        info = kernel.describe(kernel.parameter_names.index(name), text)
        if isinstance(info, ArrayInfo):
            return Arg(PointerType(DTYPES[info.dtype]), POINTER_DIVISOR if info.ptr % POINTER_DIVISOR == 0 else 1)
    if not isinstance(text, str):
        return Const(text)
    if text.startswith(_DESCRIPTOR_HEADS):
        return _parse_descriptor(kernel, name, text)
    body, _, bound = text.partition("<")
    body, _, promise = body.partition(":")
    if body.startswith("="):
        return Const(int(body[1:]))
    pointer = body.startswith("*")
    body = body.lstrip("*")
    dtype = DTYPES.get(_TYPE_NAMES.get(body, body))
    if dtype is None or any(word and not word.isdigit() for word in (promise, bound)) or (bound and pointer):
        raise kernel.refuse(
            "launch-signature",
            f"cannot take the type {text!r} for {name!r}",
            hint="types are written '*bf16', '*f32:16', 'i32', 'i32:16', 'i32:16<1048576' (from 0 on and below that), '=1'",
        )
    divisor = int(promise) if promise else 1
    if pointer:
        return Arg(PointerType(dtype), divisor)
    if dtype is I1:
        divisor = 1
    return Arg(dtype, divisor, int(bound) if bound and dtype.kind in ("int", "uint") else 0)


_DESCRIPTOR_HEADS = ("tensor_desc<", "tensordesc<")


def _parse_descriptor(kernel: Parameters, name: str, text: str) -> Arg:
    """A descriptor's type: as in tile IR, ``tensor_desc<128x64xbf16>``, or Triton's ``tensordesc<bf16[128, 64]>``."""
    body = text.partition("<")[2].removesuffix(">").replace(" ", "")
    if body.endswith("]"):
        word, _, sizes = body[:-1].partition("[")
        dims = sizes.split(",")
    else:
        *dims, word = body.split("x")
    dtype = DTYPES.get(_TYPE_NAMES.get(word, word))
    if dtype is None or not dims or not all(d.isdigit() and int(d) for d in dims):
        hint = "a descriptor is written 'tensor_desc<128x64xbf16>'"
        raise kernel.refuse("launch-signature", f"cannot take the type {text!r} for {name!r}", hint=hint)
    return Arg(TensorDescType(tuple(map(int, dims)), dtype))
