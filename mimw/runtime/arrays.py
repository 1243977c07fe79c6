# pyright: basic
"""What an argument of a launch is: where its memory lies, what elements it has, in which shape.

Owns: `describe`, `ArrayInfo`, `ScalarInfo`, the names of foreign dtypes. Assumes nothing to be installed: torch is
known by what its tensors can do, NumPy and ml_dtypes by the arrays they made. Must not know kernels, drivers, streams'
owners.

dtype names are mimw's: i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 f8e4m3fnuz
f8e5m2fnuz.
"""

from __future__ import annotations

import ctypes
from typing import Any

ITEM_SIZE: dict[str, int] = {
    "i1": 1,
    "i8": 1,
    "u8": 1,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "f8e4m3fnuz": 1,
    "f8e5m2fnuz": 1,
    "i16": 2,
    "u16": 2,
    "f16": 2,
    "bf16": 2,
    "i32": 4,
    "u32": 4,
    "f32": 4,
    "i64": 8,
    "u64": 8,
    "f64": 8,
}

# As NumPy, ml_dtypes and torch spell them (torch with "torch." before it).
_NAMES: dict[str, str] = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
}

# (DLDataTypeCode, bits) of dlpack.h.
_DLPACK_DTYPES: dict[tuple[int, int], str] = {
    (0, 8): "i8",
    (0, 16): "i16",
    (0, 32): "i32",
    (0, 64): "i64",
    (1, 8): "u8",
    (1, 16): "u16",
    (1, 32): "u32",
    (1, 64): "u64",
    (2, 16): "f16",
    (2, 32): "f32",
    (2, 64): "f64",
    (4, 16): "bf16",
    (6, 8): "i1",
    (10, 8): "f8e4m3",
    (11, 8): "f8e4m3fnuz",
    (12, 8): "f8e5m2",
    (13, 8): "f8e5m2fnuz",
}
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_ROCM, _DL_ROCM_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 10, 11, 13
_DL_FLAG_READ_ONLY = 1

_torch_dtypes: dict[Any, str] = {}


class ArrayInfo:
    """An array argument.

    `kind` is ``"cuda"`` (memory of GPU number `device`; on ROCm the GPU is HIP's, as torch has it) or ``"host"``
    (`device` is -1). `ptr` is the address of element (0, ..., 0), `strides` count elements, `nbytes` is elements times
    their size. `stream` is the raw stream after which the data is valid, None when it is valid now. `owner` keeps the
    memory alive as long as this record lives.
    """

    __slots__ = ("device", "dtype", "kind", "nbytes", "owner", "ptr", "readonly", "shape", "stream", "strides")

    def __init__(
        self,
        kind: str,
        ptr: int,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        device: int,
        owner: Any,
        *,
        readonly: bool = False,
        stream: int | None = None,
    ) -> None:
        self.kind = kind
        self.ptr = ptr
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.device = device
        self.owner = owner
        self.readonly = readonly
        self.stream = stream
        count = 1
        for size in shape:
            count *= size
        self.nbytes = count * ITEM_SIZE[dtype]

    def __repr__(self) -> str:
        where = f"cuda:{self.device}" if self.kind == "cuda" else "host"
        return f"ArrayInfo({where}, {self.dtype}, shape={self.shape}, strides={self.strides}, ptr={self.ptr:#x})"


class DescriptorInfo(ArrayInfo):
    """A tensor descriptor argument: the array that it describes, cut into blocks of `block_shape` elements.

    `shape` and `strides` are the descriptor's; `padding` ("zero" or "nan") is what elements outside of them read as.
    """

    __slots__ = ("block_shape", "padding")

    def __init__(
        self,
        array: ArrayInfo,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        block_shape: tuple[int, ...],
        padding: str,
    ) -> None:
        super().__init__(
            array.kind,
            array.ptr,
            array.dtype,
            shape,
            strides,
            array.device,
            array.owner,
            readonly=array.readonly,
            stream=array.stream,
        )
        self.block_shape = block_shape
        self.padding = padding


class ScalarInfo:
    """A scalar argument: its dtype and its value as a Python bool, int or float."""

    __slots__ = ("dtype", "value")

    kind = "scalar"

    def __init__(self, dtype: str, value: bool | int | float) -> None:
        self.dtype = dtype
        self.value = value

    def __repr__(self) -> str:
        return f"ScalarInfo({self.dtype}, {self.value!r})"


def describe(arg: Any, stream: int | None = None) -> ArrayInfo | ScalarInfo:
    """What `arg` is; `TypeError` says why when it is neither array nor scalar, or one that no kernel can take.

    `stream` is the raw stream that will use the data: DLPack producers make it wait for theirs; without it none waits.

    A Python int is i32 where it fits, else i64, else u64; a float is f32; a bool is i1; a NumPy scalar keeps its own
    dtype. Arrays of no dimensions stay arrays. A tensor descriptor says itself what it is.
    """
    kind = type(arg)
    if kind is int:
        return ScalarInfo(_int_dtype(arg), arg)
    if kind is float:
        return ScalarInfo("f32", arg)
    if kind is bool:
        return ScalarInfo("i1", arg)
    if hasattr(arg, "data_ptr") and hasattr(arg, "get_device"):
        return _from_torch(arg)
    if hasattr(arg, "describe_argument"):  # a tensor descriptor
        return arg.describe_argument(stream)
    if hasattr(arg, "__cuda_array_interface__"):
        return _from_cuda_array_interface(arg)
    if hasattr(arg, "__array_interface__") and hasattr(arg, "dtype"):
        return _from_numpy(arg)
    if hasattr(arg, "__dlpack__"):
        return _from_dlpack(arg, stream)
    if isinstance(arg, int):  # a subclass: IntEnum and the like
        return ScalarInfo(_int_dtype(int(arg)), int(arg))
    if isinstance(arg, float):
        return ScalarInfo("f32", float(arg))
    raise TypeError(f"a {kind.__name__} is neither an array nor a scalar")


def _int_dtype(value: int) -> str:
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if 0 <= value < 2**64:
        return "u64"
    raise TypeError(f"the integer {value} does not fit in 64 bits")


def torch_dtype_name(dtype: Any) -> str:
    """mimw's name of a torch dtype; `TypeError` for those that kernels don't know."""
    found = _torch_dtypes.get(dtype)
    if found is None:
        spelt = str(dtype)
        found = _NAMES.get(spelt.removeprefix("torch."))
        if found is None:
            raise TypeError(f"kernels know no dtype {spelt}")
        _torch_dtypes[dtype] = found
    return found


def _from_torch(tensor: Any) -> ArrayInfo:
    dtype = torch_dtype_name(tensor.dtype)
    where = tensor.device.type
    if where not in ("cuda", "cpu"):
        raise TypeError(f"a tensor on {where!r} cannot be passed; kernels take CUDA and CPU tensors")
    if str(tensor.layout) != "torch.strided":
        raise TypeError(f"a tensor of layout {tensor.layout} cannot be passed; kernels take strided tensors")
    if tensor.is_neg():  # the sign is pending: the memory holds the opposite of what the tensor shows
        raise TypeError("a tensor with a pending negation cannot be passed; call resolve_neg() first")
    kind = "cuda" if where == "cuda" else "host"
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    device = tensor.get_device() if kind == "cuda" else -1
    return ArrayInfo(kind, tensor.data_ptr(), dtype, shape, strides, device, tensor)


def _numpy_dtype_name(dtype: Any) -> str:
    """mimw's name of a NumPy dtype; ml_dtypes' types tell theirs by name, whatever their type string says."""
    found = _NAMES.get(dtype.name)
    if found is None:
        raise TypeError(f"kernels know no dtype {dtype}")
    if dtype.byteorder == ">":
        raise TypeError(f"kernels take native byte order only, this array is {dtype.str!r}")
    return found


def _element_strides(shape: tuple[int, ...], byte_strides: tuple[int, ...] | None, size: int) -> tuple[int, ...]:
    """Strides in elements; None means C order.

    A stride that is no multiple of the element raises, unless it is never taken.
    """
    if byte_strides is None:
        out: list[int] = []
        step = 1
        for extent in reversed(shape):
            out.append(step)
            step *= extent
        return tuple(reversed(out))
    for extent, stride in zip(shape, byte_strides, strict=True):
        if stride % size and extent > 1:
            raise TypeError(f"a stride of {stride} bytes is no multiple of the element's {size} bytes")
    return tuple(stride // size for stride in byte_strides)


def _from_numpy(array: Any) -> ArrayInfo | ScalarInfo:
    """A NumPy array, a NumPy scalar, or anything else with NumPy's array interface in host memory."""
    dtype = _numpy_dtype_name(array.dtype)
    if not hasattr(array, "__setitem__"):  # numpy.generic: a scalar
        return ScalarInfo(dtype, array.item() if dtype[0] in "iu" else float(array))
    interface = array.__array_interface__
    ptr, readonly = interface["data"]
    shape = tuple(interface["shape"])
    strides = _element_strides(shape, interface.get("strides"), ITEM_SIZE[dtype])
    return ArrayInfo("host", ptr, dtype, shape, strides, -1, array, readonly=readonly)


# Type string of the array interfaces, less its byte-order mark -> dtype.
_TYPE_STRINGS: dict[str, str] = {
    "b1": "i1",
    "i1": "i8",
    "i2": "i16",
    "i4": "i32",
    "i8": "i64",
    "u1": "u8",
    "u2": "u16",
    "u4": "u32",
    "u8": "u64",
    "f2": "f16",
    "f4": "f32",
    "f8": "f64",
}


def _from_cuda_array_interface(array: Any) -> ArrayInfo:
    """Versions 2 and 3 of the interface. An array of extent 0 may have address 0."""
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise TypeError("a masked array cannot be passed")
    typestr = interface["typestr"]
    if typestr[0] == ">":
        raise TypeError(f"kernels take native byte order only, this array is {typestr!r}")
    # ml_dtypes' types have a void type string: their name is in the array's own dtype.
    dtype = _TYPE_STRINGS.get(typestr[1:]) or _NAMES.get(str(getattr(array, "dtype", "")))
    if dtype is None:
        raise TypeError(f"kernels know no dtype {getattr(array, 'dtype', typestr)}")
    ptr, readonly = interface["data"]
    shape = tuple(interface["shape"])
    strides = _element_strides(shape, interface.get("strides"), ITEM_SIZE[dtype])
    stream = interface.get("stream")
    # The interface writes 1 for the legacy default stream and 2 for the per-thread one; the driver takes the same two
    # numbers.
    return ArrayInfo(
        "cuda", ptr or 0, dtype, shape, strides, _cuda_device(array), array, readonly=readonly, stream=stream
    )


def _cuda_device(array: Any) -> int:
    """The device number behind `__cuda_array_interface__`, which does not tell it; 0 when nothing else does."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    device = getattr(array, "device", None)
    for holder in (getattr(device, "id", None), device):
        if isinstance(holder, int):
            return holder
    return 0


class _DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


def _from_dlpack(array: Any, stream: int | None) -> ArrayInfo:
    """The capsule is looked into and kept, never consumed: its own destructor gives the memory back."""
    where = int(array.__dlpack_device__()[0]) if hasattr(array, "__dlpack_device__") else _DL_CPU
    # DLPack writes 1 for CUDA's legacy default stream and 0 for ROCm's, -1 for "don't wait", and None on other devices.
    wanted: int | None = None
    if where in (_DL_CUDA, _DL_CUDA_MANAGED, _DL_ROCM):
        wanted = -1 if stream is None else stream or int(where != _DL_ROCM)
    try:
        capsule = array.__dlpack__(stream=wanted, max_version=(1, 0))
    except TypeError:  # a producer from before version 1.0
        capsule = array.__dlpack__(stream=wanted)
    tensor, readonly = _look_into(capsule)
    return _from_dltensor(tensor, capsule, readonly)


def _look_into(capsule: Any) -> tuple[_DLTensor, bool]:
    api = ctypes.pythonapi
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    name = get_name(capsule)
    if name == b"dltensor_versioned":
        managed = _DLManagedTensorVersioned.from_address(get_pointer(capsule, name))
        if managed.major != 1:
            raise TypeError(f"DLPack version {managed.major}.{managed.minor} is not known")
        return managed.tensor, bool(managed.flags & _DL_FLAG_READ_ONLY)
    if name == b"dltensor":
        return _DLTensor.from_address(get_pointer(capsule, name)), False
    raise TypeError(f"__dlpack__ returned a capsule named {name!r}")


def _from_dltensor(tensor: _DLTensor, capsule: Any, readonly: bool) -> ArrayInfo:
    dtype = _DLPACK_DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise TypeError(f"kernels know no dtype of DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
    if tensor.device.type in (_DL_CUDA, _DL_CUDA_MANAGED, _DL_ROCM):
        kind, device = "cuda", tensor.device.id
    elif tensor.device.type in (_DL_CPU, _DL_CUDA_HOST, _DL_ROCM_HOST):
        kind, device = "host", -1
    else:
        raise TypeError(
            f"memory of DLPack device type {tensor.device.type} cannot be passed; kernels take CUDA and CPU"
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = _element_strides(shape, None, 1)
    ptr = (tensor.data or 0) + tensor.byte_offset
    return ArrayInfo(kind, ptr, dtype, shape, strides, device, capsule, readonly=readonly)
