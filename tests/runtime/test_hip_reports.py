"""Kernels with something to tell, launched through a stand-in for HIP whose device is the simulator of machine code."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mimw.diagnostics import LaunchError
from mimw.runtime import driver_api, hang, hang_watch, hip_api, print_buffer
from mimw.runtime import launch as launch_module
from mimw.runtime.device_print import WORDS, Texts
from mimw.runtime.hang import KernelHang
from mimw.runtime.launch import CompiledKernel, synchronize
from mimw.sim.amdgcn.run import run
from tests.codegen.amdgcn.test_lower_debug_amd import assert_in_a_task
from tests.codegen.ptx.print_kernels import check_positive, print_vector
from tests.gpu.hang_kernels import CASES

from .fake_cuda import F32, Tensor, TorchDtype
from .fake_hip import HOST_OFFSET, FakeHip, Launch

I32 = TorchDtype("int32")
Array = np.ndarray[Any, Any]


class SimulatedHip(FakeHip):
    """It runs `kernel` when it is launched; `arrays` are the user's, by address."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel: CompiledKernel | None = None
        self.arrays: dict[int, Array] = {}
        self.when_launched = self.execute

    def tensor(self, array: Array) -> Tensor:
        """An argument."""
        self.arrays[array.ctypes.data] = array
        return Tensor(array.ctypes.data, F32 if array.dtype == np.float32 else I32, array.shape)

    def execute(self, launch: Launch) -> None:
        """The launch, to its end."""
        assert self.kernel is not None
        meta = self.kernel.metadata
        code = self.kernel.asm["hsaco"]
        assert isinstance(code, bytes)
        args: list[Any] = []
        for p in meta.params:
            if p.kind == "pointer":
                args.append(self._memory(p.name, *struct.unpack_from("<Q", launch.packed, p.offset)))
            else:
                args.append(*struct.unpack_from("<i", launch.packed, p.offset))
        run(code, meta.entry, launch.grid, (launch.threads, 1, 1), args, arch=meta.target)

    def _memory(self, name: str, address: int) -> Array:
        if name in ("hang_state", "print_state"):
            return np.frombuffer(self.memory[address], np.uint8)
        if name in ("hang_records", "print_records"):
            size = hang.RECORD * hang.MAX_RECORDS if name == "hang_records" else 4 * WORDS
            return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address - HOST_OFFSET))
        return self.arrays[address]


@pytest.fixture
def hip(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedHip]:
    fake = SimulatedHip()
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.setattr(hang_watch, "_free", {})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(driver_api, "_probe", False)
    monkeypatch.setattr(print_buffer, "_texts", Texts())
    hip_api.use_library(fake)
    yield fake
    print_buffer.forget()
    hip_api.use_library(None)


def test_printed_lines(hip: SimulatedHip, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(6, dtype=np.float32)
    hip.kernel = print_vector.compile(["*f32", "i32"], {"B": 4, "HEX": False}, target="gfx942")
    hip.kernel.launch(2, [hip.tensor(x), 6])
    synchronize()
    expected = [f"pid ({i // 4}, 0, 0) idx ({i % 4}) x {i if i < 6 else 0}.000000" for i in range(8)]
    assert sorted(capsys.readouterr().out.splitlines()) == expected


def test_a_failed_assertion_and_one_that_holds(hip: SimulatedHip, capsys: pytest.CaptureFixture[str]) -> None:
    x, out = np.arange(1, 101, dtype=np.float32), np.zeros(100, np.float32)
    hip.kernel = check_positive.compile(["*f32", "*f32", "i32"], {"B": 128}, target="gfx942", debug=True)
    arguments = [hip.tensor(x), hip.tensor(out), 100]
    hip.kernel.launch(1, arguments)
    assert (out == x).all()
    x[70] = -1
    with pytest.raises(
        LaunchError, match=r"print_kernels.py:\d+: assertion failed: 100% positive, .* idx \(70\)\n"
    ) as caught:
        hip.kernel.launch(1, arguments)
    assert caught.value.code == "device-assert"
    assert capsys.readouterr().out.count("assertion failed") == 1


def test_a_hang_is_told_and_the_next_launch_works(hip: SimulatedHip) -> None:
    hip.kernel = CASES["never_arrived"].kernel.compile(["*i32", "*i32"], hang_timeout="400ms", target="gfx942")
    for good in (0, 1, 0):
        out, flag = np.zeros(128, np.int32), np.array([good], np.int32)
        arguments = [hip.tensor(out), hip.tensor(flag)]
        if good:
            hip.kernel.launch(3, arguments)
            assert (out == 1).all()
            continue
        with pytest.raises(KernelHang) as caught:
            hip.kernel.launch(3, arguments)
        text = str(caught.value)
        assert (
            "kernel 'never_arrived' with grid (3, 1, 1) hangs: 12 warps gave up waiting, the first after 0.4 s" in text
        )
        assert "task default, ctas 0-2, warps 0-3: waited 0.4" in text and "for phase 0 of full[1]" in text
        assert not caught.value.lost and caught.value.total == 12
    assert len(hip.named("hipHostMalloc")) == 1
    hip.capturing = True
    with pytest.raises(LaunchError, match="waits for its end"):
        hip.kernel.launch(3, arguments)


def test_the_launch_waits_for_the_end(hip: SimulatedHip) -> None:
    hip.kernel = CASES["never_arrived"].kernel.compile(["*i32", "*i32"], hang_timeout="400ms", target="gfx942")
    status = iter([600, 600, 0])
    hip.when_queried = lambda: next(status)
    hip.kernel.launch(1, [hip.tensor(np.zeros(128, np.int32)), hip.tensor(np.ones(1, np.int32))])
    assert next(status, None) is None
    hip.when_queried = lambda: 719
    with pytest.raises(LaunchError, match="ended with an exception"):
        hip.kernel.launch(1, [hip.tensor(np.zeros(128, np.int32)), hip.tensor(np.ones(1, np.int32))])


def test_an_assertion_comes_before_those_who_wait_for_it(hip: SimulatedHip) -> None:
    x, out = np.arange(512, dtype=np.int32), np.zeros(512, np.int32)
    x[300] = 5000
    hip.kernel = assert_in_a_task.compile(["*i32:16", "*i32:16"], {"N": 128}, target="gfx942", debug=True)
    assert "hang" in hip.kernel.metadata.extra
    with pytest.raises(LaunchError, match="assertion failed: small") as caught:
        hip.kernel.launch(1, [hip.tensor(x), hip.tensor(out)])
    assert caught.value.code == "device-assert"
