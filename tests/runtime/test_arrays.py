"""What `describe` says of arrays and scalars of every library, and what it refuses."""

from __future__ import annotations

import enum
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.runtime.arrays import ITEM_SIZE, ArrayInfo, ScalarInfo, describe

from .fake_cuda import BF16, F16, Tensor, TorchDtype

NUMPY_DTYPES = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


def array_info(arg: Any) -> ArrayInfo:
    info = describe(arg)
    assert isinstance(info, ArrayInfo)
    return info


# Scalars


class Color(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "i1"),
        (0, "i32"),
        (2**31 - 1, "i32"),
        (-(2**31), "i32"),
        (2**31, "i64"),
        (-(2**31) - 1, "i64"),
        (2**63, "u64"),
        (1.5, "f32"),
        (Color.RED, "i32"),
        (np.bool_(True), "i1"),
        (np.int8(3), "i8"),
        (np.uint64(3), "u64"),
        (np.float64(1.5), "f64"),
        (np.float16(1.5), "f16"),
        (ml_dtypes.bfloat16(1.5), "bf16"),
    ],
)
def test_scalars(value: Any, dtype: str):
    info = describe(value)
    assert isinstance(info, ScalarInfo)
    assert (info.kind, info.dtype, info.value) == ("scalar", dtype, value)
    assert type(info.value) in (bool, int, float)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_beyond_64_bits(value: int):
    with pytest.raises(TypeError, match="does not fit in 64 bits"):
        describe(value)


@pytest.mark.parametrize("value", ["text", None, [1], 1j, object()])
def test_neither_array_nor_scalar(value: Any):
    with pytest.raises(TypeError, match="is neither an array nor a scalar"):
        describe(value)


# NumPy


@pytest.mark.parametrize("name", NUMPY_DTYPES)
def test_numpy_dtypes(name: str):
    array = np.zeros((2, 3), NUMPY_DTYPES[name])
    info = array_info(array)
    assert (info.kind, info.dtype, info.shape, info.strides, info.device) == ("host", name, (2, 3), (3, 1), -1)
    assert info.ptr == array.ctypes.data
    assert info.nbytes == array.nbytes == 6 * ITEM_SIZE[name]
    assert info.owner is array
    assert not info.readonly


def test_numpy_views():
    array = np.zeros((4, 6), np.int16)
    view = array[::-1, 1::2]
    info = array_info(view)
    assert (info.shape, info.strides) == ((4, 3), (-6, 2))
    assert info.ptr == view.ctypes.data
    assert array_info(array.T).strides == (1, 6)
    assert array_info(np.broadcast_to(np.float32(1), (3, 4))).strides == (0, 0)
    assert array_info(np.broadcast_to(np.float32(1), (3, 4))).readonly
    assert array_info(np.zeros((), np.int8)).shape == ()
    assert array_info(np.zeros((0, 4), np.int8)).nbytes == 0


def test_numpy_refusals():
    with pytest.raises(TypeError, match="kernels know no dtype complex64"):
        describe(np.zeros(2, np.complex64))
    with pytest.raises(TypeError, match="kernels know no dtype int4"):
        describe(np.zeros(2, ml_dtypes.int4))
    with pytest.raises(TypeError, match="native byte order only, this array is '>i4'"):
        describe(np.zeros(2, ">i4"))
    packed = np.zeros(4, np.dtype([("tag", "u1"), ("value", "<f4")]))["value"]
    with pytest.raises(TypeError, match="a stride of 5 bytes is no multiple of the element's 4 bytes"):
        describe(packed)
    assert array_info(packed[:1]).shape == (1,)


# __cuda_array_interface__


class CudaArray:
    def __init__(self, **fields: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (0x700, False),
            "version": 3,
            **fields,
        }


def test_cuda_array_interface():
    info = array_info(CudaArray())
    assert (info.kind, info.ptr, info.dtype, info.shape, info.strides) == ("cuda", 0x700, "f32", (2, 3), (3, 1))
    assert (info.device, info.nbytes, info.stream, info.readonly) == (0, 24, None, False)


def test_cuda_array_interface_fields():
    info = array_info(CudaArray(strides=(4, 8), data=(0x700, True), stream=2, typestr="|b1"))
    assert (info.strides, info.readonly, info.stream, info.dtype) == ((4, 8), True, 2, "i1")
    assert array_info(CudaArray(strides=(4, 8))).strides == (1, 2)
    assert array_info(CudaArray(strides=None)).strides == (3, 1)
    assert array_info(CudaArray(shape=(0,), data=(None, False))).ptr == 0


@pytest.mark.parametrize("typestr", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
def test_cuda_array_interface_dtypes(typestr: str):
    info = array_info(CudaArray(typestr="<" + typestr))
    assert info.dtype == {"i": "i", "u": "u", "f": "f"}[typestr[0]] + str(8 * int(typestr[1]))


def test_cuda_array_interface_names_of_ml_dtypes():
    array = CudaArray(typestr="<V2")
    array.dtype = np.dtype(ml_dtypes.bfloat16)  # type: ignore[attr-defined]
    assert array_info(array).dtype == "bf16"


def test_cuda_array_interface_device():
    array = CudaArray()
    array.device = types.SimpleNamespace(id=3)  # type: ignore[attr-defined]
    assert array_info(array).device == 3
    array.__dlpack_device__ = lambda: (2, 5)  # type: ignore[attr-defined]
    assert array_info(array).device == 5


def test_cuda_array_interface_refusals():
    with pytest.raises(TypeError, match="a masked array"):
        describe(CudaArray(mask=CudaArray()))
    with pytest.raises(TypeError, match="native byte order only, this array is '>f4'"):
        describe(CudaArray(typestr=">f4"))
    with pytest.raises(TypeError, match="kernels know no dtype <c8"):
        describe(CudaArray(typestr="<c8"))


# DLPack


class Exporter:
    """Shows a NumPy array through DLPack only; `old` speaks the protocol from before version 1.0."""

    def __init__(self, array: Any, old: bool = False, device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.old = old
        self.device = device
        self.asked: list[dict[str, Any]] = []

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        if self.old and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**{key: value for key, value in options.items() if key != "stream"})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", [n for n in NUMPY_DTYPES if n != "bf16" and not n.startswith("f8")])
def test_dlpack_of_numpy(name: str, old: bool):
    array = np.zeros((4, 5), NUMPY_DTYPES[name])[1:, ::2]
    info = array_info(Exporter(array, old))
    assert (info.kind, info.dtype, info.shape, info.strides, info.device) == ("host", name, (3, 3), (5, 2), -1)
    assert info.ptr == array.ctypes.data


def test_dlpack_read_only():
    array = np.zeros(3, np.float32)
    assert not array_info(Exporter(array)).readonly
    array.flags.writeable = False
    assert array_info(Exporter(array)).readonly


def test_dlpack_keeps_the_memory_and_gives_it_back():
    import sys

    array = np.arange(1000, dtype=np.int32)
    before = sys.getrefcount(array)
    info = array_info(Exporter(array))
    assert sys.getrefcount(array) > before - 1
    del info
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize(
    ("device", "stream", "asked"),
    [((1, 0), None, None), ((1, 0), 7, None), ((2, 0), None, -1), ((2, 0), 0, 1), ((2, 0), 7, 7)],
)
def test_dlpack_stream(device: tuple[int, int], stream: int | None, asked: int | None):
    exporter = Exporter(np.zeros(3, np.float32), device=device)
    describe(exporter, stream)
    assert exporter.asked[0]["stream"] == asked


def test_dlpack_refuses_complex_numbers():
    with pytest.raises(TypeError, match="kernels know no dtype of DLPack code 5, 64 bits, 1 lanes"):
        describe(Exporter(np.zeros(3, np.complex64)))


# torch, by what its tensors can do


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("bool", "i1"),
        ("uint8", "u8"),
        ("int64", "i64"),
        ("float16", "f16"),
        ("bfloat16", "bf16"),
        ("float32", "f32"),
        ("float64", "f64"),
        ("float8_e4m3fn", "f8e4m3"),
        ("float8_e5m2", "f8e5m2"),
        ("float8_e4m3fnuz", "f8e4m3fnuz"),
        ("float8_e5m2fnuz", "f8e5m2fnuz"),
    ],
)
def test_torch_dtypes(spelt: str, name: str):
    assert array_info(Tensor(0x40, TorchDtype(spelt))).dtype == name


def test_torch_places():
    info = array_info(Tensor(0x40, BF16, (2, 3), device=1))
    assert (info.kind, info.ptr, info.device, info.shape, info.strides) == ("cuda", 0x40, 1, (2, 3), (3, 1))
    info = array_info(Tensor(0x40, F16, (), device=-1))
    assert (info.kind, info.device, info.shape, info.nbytes) == ("host", -1, (), 2)


def test_torch_refusals():
    with pytest.raises(TypeError, match=r"kernels know no dtype torch\.complex64"):
        describe(Tensor(0x40, TorchDtype("complex64")))
    sparse = Tensor(0x40)
    sparse.layout = "torch.sparse_coo"
    with pytest.raises(TypeError, match=r"a tensor of layout torch\.sparse_coo cannot be passed"):
        describe(sparse)


def test_real_torch():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros((4, 6), dtype=torch.bfloat16)[:, ::2]
    info = array_info(tensor)
    assert (info.kind, info.dtype, info.shape, info.strides) == ("host", "bf16", (4, 3), (6, 2))
    assert info.ptr == tensor.data_ptr()
    for name in ("f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"):
        spelt = np.dtype(NUMPY_DTYPES[name]).name
        assert array_info(torch.zeros((), dtype=getattr(torch, spelt))).dtype == name
    with pytest.raises(TypeError, match="a tensor on 'meta' cannot be passed"):
        describe(torch.zeros(3, device="meta"))
    with pytest.raises(TypeError, match="pending negation"):
        describe(torch.zeros(3, dtype=torch.complex64).conj().imag)
