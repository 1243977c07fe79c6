"""Tensor descriptors: what is refused, what the driver is asked to encode, how maps are kept and passed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mimw.diagnostics import InternalError, LaunchError
from mimw.runtime import driver_api, tensor_descriptor
from mimw.runtime import launch as launch_module
from mimw.runtime.arrays import DescriptorInfo, describe
from mimw.runtime.convention import (
    KernelMetadata,
    LaunchAttributes,
    Param,
    buffer_size,
    descriptor_record,
    layout_params,
)
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.tensor_descriptor import MapSpec, TensorDescriptor

from .fake_cuda import BF16, F16, F32, CUresult, FakeDriver, Tensor


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.setattr(tensor_descriptor, "_MAPS", {})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    driver_api.use_driver(fake)
    yield fake
    driver_api.use_driver(None)


def compiled(*names: str, block: tuple[int, ...] = (16, 64), dtype: str = "bf16") -> CompiledKernel:
    """A kernel of one i32 and of descriptors, whose box is half of a block wide."""
    params = [Param("n", "i32", 0)] + [Param(name, "tensormap", 0, dtype=dtype) for name in names]
    layout_params(params)
    box = (block[-1] // 2, *block[-2::-1])
    records = [descriptor_record(name, dtype, block, box, 64) for name in names]
    return CompiledKernel(
        {"cubin": b"\x7fELF"}, KernelMetadata("copy", "copy", "sm_90a", params, extra={"descriptors": records})
    )


def tensor(shape: tuple[int, ...] = (100, 128), address: int = 0x1000, dtype: Any = BF16, device: int = 0) -> Tensor:
    return Tensor(address, dtype, shape, device)


def watch(cuda: FakeDriver, kernel: CompiledKernel) -> None:
    cuda.buffer_bytes, cuda.param_count = buffer_size(kernel.metadata.params), len(kernel.metadata.params)


# What a descriptor is


def test_from_tensor():
    d = TensorDescriptor.from_tensor(tensor(), [16, 64])
    assert (d.shape, d.strides, d.block_shape, d.dtype, d.padding) == ((100, 128), (128, 1), (16, 64), "bf16", "zero")
    assert repr(d) == (
        "TensorDescriptor(cuda:0, bf16, shape=[100, 128], strides=[128, 1], block_shape=[16, 64], padding='zero')"
    )


def test_as_an_argument():
    array = np.zeros((8, 64), np.float32)
    d = TensorDescriptor(array, [4, 2, 64], (128, 64, 1), [1, 2, 32], "nan")
    info = describe(d)
    assert isinstance(info, DescriptorInfo)
    assert (info.kind, info.dtype, info.ptr, info.owner) == ("host", "f32", array.ctypes.data, array)
    assert (info.shape, info.strides) == ((4, 2, 64), (128, 64, 1))
    assert (info.block_shape, info.padding) == ((1, 2, 32), "nan")


def test_block_shape_may_be_set_later():
    d = TensorDescriptor.from_tensor(tensor(), [1, 1])
    d.block_shape = [np.int64(64), 32]
    assert d.block_shape == (64, 32)
    with pytest.raises(LaunchError, match=r"block_shape \[64\] has 1 dimensions, the tensor has 2"):
        d.block_shape = [64]


@pytest.mark.parametrize(
    ("make", "text", "hint"),
    [
        (lambda: TensorDescriptor(3, [1], [1], [1]), "describes an array, not a int", None),
        (lambda: TensorDescriptor("x", [1], [1], [1]), "a str is neither an array nor a scalar", None),
        (lambda: TensorDescriptor(tensor(), [], [], []), "has 1 to 5 dimensions, not 0", "fold dimensions"),
        (
            lambda: TensorDescriptor(tensor(), [8] * 6, [8] * 5 + [1], [8] * 6),
            "has 1 to 5 dimensions, not 6",
            "fold dimensions",
        ),
        (
            lambda: TensorDescriptor(tensor(), [8, 8], [1], [8, 8]),
            "shape [8, 8] and strides [1] differ in length",
            None,
        ),
        (
            lambda: TensorDescriptor(tensor(), [8, 8.5], [8, 1], [8, 8]),
            "shape is a list of integers, not [8, 8.5]",
            None,
        ),
        (lambda: TensorDescriptor(tensor(), 8, 1, 8), "shape is a list of integers, not 8", None),
        (lambda: TensorDescriptor(tensor(), [-1, 8], [8, 1], [8, 8]), "extents go from 0 to 2^32", None),
        (lambda: TensorDescriptor(tensor(), [2**32 + 1, 8], [8, 1], [8, 8]), "extents go from 0 to 2^32", None),
        (lambda: TensorDescriptor(tensor(), [8, 8], [1, 8], [8, 8]), "the last stride must be 1, not 8", "local_trans"),
        (
            lambda: TensorDescriptor(tensor(), [8, 8], [12, 1], [8, 8]),
            "stride 0 is 12 elements of 2 bytes; it must be a multiple of 16 bytes",
            "pad the rows to a multiple of 8 elements",
        ),
        (lambda: TensorDescriptor(tensor(), [8, 8], [-8, 1], [8, 8]), "stride 0 is -8 elements", "pad the rows"),
        (lambda: TensorDescriptor(tensor(), [8, 8], [2**39, 1], [8, 8]), "stride 0 is", "pad the rows"),
        (
            lambda: TensorDescriptor(tensor(address=0x1008), [8], [1], [8]),
            "address 0x1008 is not a multiple of 16",
            "copy it",
        ),
        (lambda: TensorDescriptor(tensor(), [8], [1], [0]), "block_shape [0]: no extent may be below 1", None),
        (lambda: TensorDescriptor(tensor(), [8], [1], [8], "one"), "padding is 'zero' or 'nan', not 'one'", None),
        (
            lambda: TensorDescriptor(np.zeros(16, np.int32), [16], [1], [16], "nan"),
            "padding 'nan' is for bf16, f16, f32, f64; the tensor is i32",
            None,
        ),
        (
            lambda: TensorDescriptor(np.zeros((4, 16), np.float32), [5, 16], [16, 1], [1, 16]),
            "shape [5, 16] with strides [16, 1] reaches beyond the array of shape [4, 16]",
            None,
        ),
    ],
)
def test_what_the_hardware_cannot_copy(make: Any, text: str, hint: str | None):
    with pytest.raises(LaunchError) as caught:
        make()
    error = caught.value
    assert error.code == "tensor-descriptor"
    assert text in error.message
    assert error.hint is None if hint is None else hint in (error.hint or "")
    assert error.loc.file == __file__


def test_strides_that_are_never_taken_do_not_matter():
    TensorDescriptor(tensor(), [1, 8], [3, 1], [1, 8])
    TensorDescriptor(tensor(), [8, 1], [8, 5], [8, 1])


# What is encoded


def test_the_drivers_arguments(cuda: FakeDriver):
    d = TensorDescriptor(tensor((6, 100, 128), 0x2000), [6, 100, 120], [12800, 128, 1], [2, 16, 64], "nan")
    assert d.tensor_map(MapSpec.get("bf16", (2, 16, 64), (32, 16, 2), 64)) == b"\1" * 128
    assert cuda.named("cuTensorMapEncodeTiled") == [
        ("cuTensorMapEncodeTiled", 9, 0x2000, (120, 100, 6), (256, 25600), (32, 16, 2), (1, 1, 1), (0, 2, 2, 1))
    ]


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("int8", 0),
        ("bool", 0),
        ("int16", 1),
        ("uint32", 2),
        ("int32", 3),
        ("int64", 5),
        ("float16", 6),
        ("float32", 7),
        ("float64", 8),
    ],
)
@pytest.mark.parametrize(("span", "code"), [(0, 0), (32, 1), (64, 2), (128, 3)])
def test_numbers_of_types_and_swizzles(cuda: FakeDriver, dtype: str, kind: int, span: int, code: int):
    array = np.zeros((4, 128), dtype)
    d = TensorDescriptor.from_tensor(array, [4, 16])
    d.tensor_map(MapSpec.get(d.dtype, (4, 16), (16, 4), span))
    (call,) = cuda.named("cuTensorMapEncodeTiled")
    assert call[1] == kind
    assert call[-1] == (0, code, 2, 0)


def test_one_dimension_and_strides_that_are_not_taken(cuda: FakeDriver):
    TensorDescriptor(tensor(), [64], [1], [64]).tensor_map(MapSpec.get("bf16", (64,), (64,), 0))
    TensorDescriptor(tensor(), [1, 64], [3, 1], [1, 64]).tensor_map(MapSpec.get("bf16", (1, 64), (64, 1), 0))
    first, second = cuda.named("cuTensorMapEncodeTiled")
    assert first[3:5] == ((64,), ())
    assert second[3:5] == ((64, 1), (16,))


def test_equal_specs_are_one_object():
    assert MapSpec.get("bf16", [8, 64], [64, 8], 128) is MapSpec.get("bf16", (8, 64), (64, 8), 128)
    assert MapSpec.get("bf16", (8, 64), (64, 8), 128) is not MapSpec.get("bf16", (8, 64), (64, 8), 64)


def test_maps_are_kept_by_content(cuda: FakeDriver):
    spec = MapSpec.get("bf16", (16, 64), (64, 16), 128)
    first = TensorDescriptor.from_tensor(tensor(), [16, 64])
    assert first.tensor_map(spec) == TensorDescriptor.from_tensor(tensor(), [16, 64]).tensor_map(spec) == b"\1" * 128
    assert TensorDescriptor.from_tensor(tensor(address=0x3000), [16, 64]).tensor_map(spec) == b"\2" * 128
    assert TensorDescriptor.from_tensor(tensor(), [16, 64], "nan").tensor_map(spec) == b"\3" * 128
    assert first.tensor_map(MapSpec.get("bf16", (16, 64), (32, 16), 64)) == b"\4" * 128


def test_a_tensor_that_moved_gets_a_new_map(cuda: FakeDriver):
    spec = MapSpec.get("bf16", (16, 64), (64, 16), 128)
    base = tensor()
    d = TensorDescriptor.from_tensor(base, [16, 64])
    first = d.tensor_map(spec)
    base.address = 0x8000
    assert d.tensor_map(spec) != first
    assert cuda.named("cuTensorMapEncodeTiled")[-1][2] == 0x8000


def test_the_cache_of_maps_is_bounded(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tensor_descriptor, "_MOST_MAPS", 3)
    spec = MapSpec.get("bf16", (16, 64), (64, 16), 128)
    for i in range(10):
        TensorDescriptor.from_tensor(tensor(address=0x1000 * (i + 1)), [16, 64]).tensor_map(spec)
        assert len(tensor_descriptor._MAPS) <= 3


# Launches


def test_maps_are_packed_at_multiples_of_64(cuda: FakeDriver):
    kernel = compiled("a", "b")
    watch(cuda, kernel)
    a = TensorDescriptor.from_tensor(tensor(), [16, 64])
    b = TensorDescriptor.from_tensor(tensor(address=0x4000), [16, 64])
    for _ in range(3):  # the first goes the checked way, the others the quick one
        kernel.launch(2, [7, a, b])
    packed = (7).to_bytes(4, "little") + bytes(60) + b"\1" * 128 + b"\2" * 128
    assert cuda.packed == [packed] * 3
    assert all(launch.offsets == [0, 64, 192] for launch in cuda.launches)
    assert len(cuda.named("cuTensorMapEncodeTiled")) == 2


def test_the_argument_buffer_is_aligned(cuda: FakeDriver):
    kernel = compiled("a")
    watch(cuda, kernel)
    d = TensorDescriptor.from_tensor(tensor(), [16, 64])
    for _ in range(2):
        kernel.launch(1, [1, d])
        assert cuda.launches[-1].first % 64 == 0


def test_quick_launches_do_not_describe(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    kernel = compiled("a")
    kernel.launch(1, [1, TensorDescriptor.from_tensor(tensor(), [16, 64])])
    other = TensorDescriptor.from_tensor(tensor(address=0x5000), [16, 64])
    monkeypatch.setattr(launch_module, "describe_arguments", None)
    kernel.launch(1, [1, other])
    assert len(cuda.launches) == 2
    assert cuda.named("cuTensorMapEncodeTiled")[-1][2] == 0x5000


def test_devices_in_turn(cuda: FakeDriver):
    kernel = compiled("a")
    for device in (0, 1, 0, 1):
        kernel.launch(1, [1, TensorDescriptor.from_tensor(tensor(device=device), [16, 64])])
    assert [launch.context for launch in cuda.launches] == [1000, 1001, 1000, 1001]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(
    ("argument", "code", "text"),
    [
        (
            lambda: tensor(),
            "launch-dtype",
            "argument 'a' is a tensor descriptor of bf16, the launch gives an array of bf16",
        ),
        (lambda: 5, "launch-dtype", "argument 'a' is a tensor descriptor of bf16, the launch gives 5"),
        (
            lambda: TensorDescriptor.from_tensor(tensor(dtype=F16), [16, 64]),
            "launch-dtype",
            "argument 'a' is a tensor descriptor of bf16, the launch gives a tensor descriptor of f16",
        ),
        (
            lambda: TensorDescriptor.from_tensor(tensor(), [64, 16]),
            "launch-dtype",
            "the launch gives one with blocks of [64, 16], but was compiled for blocks of [16, 64]",
        ),
        (
            lambda: TensorDescriptor.from_tensor(tensor(device=-1), [16, 64]),
            "launch-host-array",
            "argument 'a' lies in host memory",
        ),
        (
            lambda: TensorDescriptor.from_tensor(tensor((0, 128)), [16, 64]),
            "tensor-descriptor",
            "a kernel cannot copy from an empty tensor (shape [0, 128])",
        ),
    ],
)
def test_bad_descriptors_at_a_launch(cuda: FakeDriver, quick: bool, argument: Any, code: str, text: str):
    kernel = compiled("a")
    if quick:
        kernel.launch(1, [1, TensorDescriptor.from_tensor(tensor(), [16, 64])])
    before = len(cuda.launches)
    with pytest.raises(LaunchError) as caught:
        kernel.launch(1, [1, argument()])
    assert caught.value.code == code
    assert text in caught.value.message
    assert caught.value.loc.file == __file__
    assert len(cuda.launches) == before


def test_an_empty_grid_makes_no_map(cuda: FakeDriver):
    kernel = compiled("a")
    empty = TensorDescriptor.from_tensor(tensor((0, 128)), [16, 64])
    kernel.launch(0, [1, empty])
    kernel.launch(1, [1, TensorDescriptor.from_tensor(tensor(), [16, 64])])
    kernel.launch(0, [1, empty])
    assert len(cuda.launches) == 1


def test_a_descriptor_is_no_pointer(cuda: FakeDriver):
    params = [Param("x", "pointer", 0, dtype="f32")]
    kernel = CompiledKernel({"cubin": b"\x7fELF"}, KernelMetadata("k", "k", "sm_90a", params))
    with pytest.raises(LaunchError, match="is a pointer to f32, the launch gives a tensor descriptor"):
        kernel.launch(1, [TensorDescriptor.from_tensor(tensor(dtype=F32), [16, 64])])


def test_the_driver_refuses_a_map(cuda: FakeDriver):
    cuda.fail["cuTensorMapEncodeTiled"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(LaunchError) as caught:
        compiled("a").launch(1, [1, TensorDescriptor.from_tensor(tensor(), [16, 64])])
    assert caught.value.code == "launch-driver"
    assert "cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE" in caught.value.message
    assert "extents [128, 100], strides [256] bytes, box [32, 16], swizzle 2, type 9" in caught.value.message


def test_a_refusal_on_the_quick_way_is_left_to_the_checked_one(cuda: FakeDriver):
    kernel = compiled("a")
    kernel.launch(1, [1, TensorDescriptor.from_tensor(tensor(), [16, 64])])
    cuda.fail["cuTensorMapEncodeTiled"] = CUresult.CUDA_ERROR_INVALID_VALUE
    kernel.launch(1, [1, TensorDescriptor.from_tensor(tensor(address=0x9000), [16, 64])])
    assert len(cuda.launches) == 2
    assert [call[2] for call in cuda.named("cuTensorMapEncodeTiled")] == [0x1000, 0x9000, 0x9000]


def test_a_map_without_a_record_is_our_fault():
    params = [Param("a", "tensormap", 0, dtype="f32")]
    with pytest.raises(InternalError, match="nothing says what box the tensor map 'a' has"):
        CompiledKernel({}, KernelMetadata("k", "k", "sm_90a", params))


class CudaArray:
    """An array of another library that states the stream it is made on."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "shape": (16, 64),
        "typestr": "<f4",
        "data": (0x4000, False),
        "version": 3,
        "stream": 9,
    }


def test_launches_wait_for_the_stream_of_the_base(cuda: FakeDriver):
    kernel = compiled("a", dtype="f32")
    kernel.launch(1, [1, TensorDescriptor.from_tensor(CudaArray(), [16, 64])], stream=5)
    assert [call[2] for call in cuda.named("cuEventRecord")] == [9]
    assert cuda.launches[0].stream == 5


def test_a_stated_cluster_goes_the_plain_way(cuda: FakeDriver):
    meta = KernelMetadata("k", "k", "sm_90a", [], attributes=LaunchAttributes((2, 1, 1), stated=True))
    kernel = CompiledKernel({"cubin": b"\x7fELF"}, KernelMetadata.from_dict(meta.to_dict()))
    kernel.launch(4, [])
    assert not cuda.named("cuLaunchKernelEx")
    assert cuda.launches[0].attributes == []
    with pytest.raises(LaunchError, match=r"not a multiple of the cluster \(2, 1, 1\) along x"):
        kernel.launch(5, [])
    both = LaunchAttributes((2, 1, 1), cooperative=True, stated=True)
    CompiledKernel({"cubin": b"\x7fELF"}, KernelMetadata("k", "k", "sm_90a", [], attributes=both)).launch(4, [])
    assert cuda.launches[1].attributes == [("CU_LAUNCH_ATTRIBUTE_COOPERATIVE", 1)]
