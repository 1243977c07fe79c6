# pyright: basic
"""`matmul`: the product of two matrices by the kernels of `gemm`, with a configuration chosen by shape.

Owns: what operands it takes, and the plans it keeps: by shapes, strides, types and alignment, so that a call costs little more than its
launch. Assumes arrays that `describe` knows: CUDA arrays run on their device, host arrays in a simulator.
"""

from __future__ import annotations

from typing import Any, NoReturn

from mimw.diagnostics import LaunchError
from mimw.kernels.gemm_config import GemmConfig
from mimw.kernels.gemm_plan import FNUZ, Epilogue, PlainPlan, Plan, plan_for, simulated_machine
from mimw.runtime.arrays import ArrayInfo, describe
from mimw.runtime.launch_errors import caller_loc
from mimw.runtime.tensor_descriptor import ALIGNMENT, TensorDescriptor

ACTIVATIONS = (None, "relu", "gelu", "gelu_tanh", "silu")
OPERANDS = ("bf16", "f16", "f8e4m3", "f8e5m2", *FNUZ)
RESULTS = ("bf16", "f16", "f32")
_HOST_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
_PLANS: dict[tuple[Any, ...], Plan] = {}
_PLANS_KEPT = 4096


def matmul(
    a: Any, b: Any, out: Any = None, *, bias: Any = None, activation: str | None = None, scale: Any = None, residual: Any = None,
    out_dtype: Any = None, fast_accumulation: bool = True, config: GemmConfig | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """activation(scale * (a @ b) + bias) + residual for a: [M, K], b: [K, N], bias: [N], residual: [M, N]; gives `out`: [M, N], new unless given.

    a and b are of one type: bf16, fp16, fp8 e4m3 or e5m2, or the FNUZ kinds of these, which CDNA3 multiplies as they are, other machines as f16. Sums
    are f32, rounded once to the result's type: `out`'s, else `out_dtype` (a dtype of the arrays' own library), else a's, bf16 for fp8. scale is a
    number, or an f32 array of one element beside the operands. activation is None, "relu", "gelu", "gelu_tanh" or "silu". Any extents (0 too) and
    strides: TMA copies operands that are dense along one dimension and aligned to 16 bytes, fp8 ones along K; others go through plain pointers, more
    slowly. `config` overrides the choice by shape and is for operands that TMA takes. The result is the same, bit for bit, in every run. fp8 sums
    keep what the tensor core's fast accumulation keeps; without `fast_accumulation` each 128 of K are added in f32. `LaunchError` for what does not
    fit.
    """
    left, right = _matrix(a, "a"), _matrix(b, "b")
    M, N = left.shape[0], right.shape[1]
    _check_operands(left, right, activation)
    if out is None:
        out = _empty(a, M, N, left.dtype, out_dtype)
    result = _matrix(out, "out")
    _check_result(result, M, N, left)
    kinds = (_bias_kind(bias, left, N), _scale_kind(scale, left), _residual_kind(residual, left, M, N))
    if M == 0 or N == 0:
        return out
    precise = not fast_accumulation and left.dtype.startswith("f8")
    factor = float(scale) if isinstance(scale, (int, float)) else scale
    end = Epilogue(bias, factor, residual, activation, precise, stream, kinds)
    _plan(left, right, result, config, precise).run(a, b, out, end)
    return out


def _plan(a: ArrayInfo, b: ArrayInfo, out: ArrayInfo, config: GemmConfig | None, precise: bool) -> Plan:
    """The plan for these operands: a kept one, or a new one."""
    shape = (*a.shape, b.shape[1], *a.strides, *b.strides, *out.strides)
    where = a.device if a.kind == "cuda" else simulated_machine().name
    key = (a.dtype, out.dtype, where, config, precise, _aligned(a, b, out), *shape)
    plan = _PLANS.get(key)
    if plan is None:
        plan = plan_for(a, b, out, config, precise)
        if config is not None and a.shape[1] > 0 and isinstance(plan, PlainPlan):
            why = "neither dimension is dense" if config.kernel == "tiled" else "TMA cannot copy these operands"
            if a.dtype in FNUZ and config.kernel != "tiled":
                why = f"wgmma does not take {a.dtype}"
            _refuse(f"cannot run {config!r}: {why}", "leave config out")
        if len(_PLANS) >= _PLANS_KEPT:
            _PLANS.clear()
        _PLANS[key] = plan
    return plan


def _aligned(*arrays: ArrayInfo) -> tuple[bool, ...]:
    return tuple(x.ptr % ALIGNMENT == 0 for x in arrays)


def _matrix(x: Any, name: str) -> ArrayInfo:
    try:
        info = describe(x)
    except (TypeError, RuntimeError, BufferError) as error:
        _refuse(f"cannot take {name}: {error}")
    if not isinstance(info, ArrayInfo) or isinstance(x, TensorDescriptor):
        _refuse(f"takes arrays; {name} is a {type(x).__name__}")
    if len(info.shape) != 2:
        _refuse(f"takes matrices; {name} has the shape {list(info.shape)}")
    return info


def _check_operands(a: ArrayInfo, b: ArrayInfo, activation: str | None) -> None:
    if a.dtype != b.dtype or a.dtype not in OPERANDS:
        _refuse(f"takes a and b of one type, {', '.join(OPERANDS)}; they are {a.dtype} and {b.dtype}")
    if a.shape[1] != b.shape[0]:
        _refuse(f"cannot multiply {list(a.shape)} by {list(b.shape)}: {a.shape[1]} columns meet {b.shape[0]} rows")
    if activation not in ACTIVATIONS:
        _refuse(f"knows the activations {', '.join(repr(name) for name in ACTIVATIONS)}; it was given {activation!r}")
    if (a.kind, a.device) != (b.kind, b.device):
        _refuse("takes a and b of one device")


def _check_result(out: ArrayInfo, M: int, N: int, a: ArrayInfo) -> None:
    """`LaunchError` unless out fits."""
    if out.shape != (M, N):
        _refuse(f"makes a result of shape [{M}, {N}]; out has the shape {list(out.shape)}")
    if out.dtype not in RESULTS:
        _refuse(f"makes {', '.join(RESULTS)}; out is {out.dtype}")
    if (out.kind, out.device) != (a.kind, a.device):
        _refuse("takes an out that lies where a does")


def _bias_kind(bias: Any, a: ArrayInfo, N: int) -> tuple[Any, ...] | None:
    """What of the bias is code; `LaunchError` unless it fits."""
    if bias is None:
        return None
    info = describe(bias)
    if not isinstance(info, ArrayInfo) or info.shape != (N,) or (info.strides != (1,) and N > 1):
        _refuse(f"takes a dense bias of shape [{N}]")
    return _kind(info, "a bias", a)


def _residual_kind(residual: Any, a: ArrayInfo, M: int, N: int) -> tuple[Any, ...] | None:
    """As for the bias."""
    if residual is None:
        return None
    info = _matrix(residual, "residual")
    if info.shape != (M, N):
        _refuse(f"takes a residual of shape [{M}, {N}], not {list(info.shape)}")
    return (*_kind(info, "a residual", a), *info.strides)


def _scale_kind(scale: Any, a: ArrayInfo) -> tuple[Any, ...] | str | None:
    """As for the bias."""
    if scale is None or isinstance(scale, (int, float)):
        return None if scale is None else "number"
    try:
        info = describe(scale)
    except (TypeError, RuntimeError, BufferError):
        info = None
    if not isinstance(info, ArrayInfo) or any(n != 1 for n in info.shape) or info.dtype != "f32":
        _refuse(f"takes a number or an f32 array of one element as scale, not a {type(scale).__name__}")
    return _kind(info, "a scale", a)


def _kind(info: ArrayInfo, what: str, a: ArrayInfo) -> tuple[Any, ...]:
    if (info.kind, info.device) != (a.kind, a.device) or info.dtype not in RESULTS:
        _refuse(f"takes {what} of {', '.join(RESULTS)} that lies where a does")
    return info.dtype, info.ptr % ALIGNMENT == 0


def _empty(a: Any, M: int, N: int, dtype: str, asked: Any) -> Any:
    """A new result beside a, of the type asked for or of a's (bf16 for fp8)."""
    name = _HOST_NAMES.get(dtype, "bfloat16")
    if hasattr(a, "new_empty"):
        import torch  # pyright: ignore[reportMissingImports]

        return a.new_empty((M, N), dtype=getattr(torch, name) if asked is None else asked)
    if describe(a).kind == "cuda":
        _refuse("makes results for torch tensors and NumPy arrays only", "give out=")
    import ml_dtypes
    import numpy as np

    return np.empty((M, N), asked if asked is not None else ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _refuse(text: str, hint: str | None = None) -> NoReturn:
    raise LaunchError("matmul", f"matmul {text}", caller_loc(), hint=hint)
