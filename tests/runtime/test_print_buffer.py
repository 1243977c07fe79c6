"""Kernels that print, launched through a stand-in for HIP that plays them: when lines appear, what is lost, what raises."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mimw.diagnostics import LaunchError
from mimw.runtime import driver_api, hip_api, print_buffer
from mimw.runtime import launch as launch_module
from mimw.runtime.convention import KernelMetadata, Param, layout_params
from mimw.runtime.device_print import WORDS, Line, Texts
from mimw.runtime.launch import CompiledKernel, synchronize

from .fake_cuda import Tensor
from .fake_hip import HOST_OFFSET, FakeHip, Launch

TEXTS = ["pid (%d, %d, %d) x %u\n", "k.py:3: assertion failed: small, pid (%d, %d, %d), idx (%d)\n"]


@pytest.fixture
def hip(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHip]:
    """A process with HIP and no CUDA, that has printed nothing yet."""
    fake = FakeHip()
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(driver_api, "_probe", False)
    monkeypatch.setattr(print_buffer, "_texts", Texts())
    hip_api.use_library(fake)
    yield fake
    print_buffer.forget()
    hip_api.use_library(None)


def kernel_of(texts: list[str], asserts: bool = False) -> CompiledKernel:
    """A kernel of one argument that prints."""
    params = [Param("x", "pointer", 0, dtype="f32")]
    params += [Param(name, "pointer", 0, hidden=True) for name in ("print_records", "print_state")]
    params.append(Param("print_texts", "i32", 0, hidden=True))
    layout_params(params)
    meta = KernelMetadata("k", "entry", "gfx942", params, extra={"prints": {"texts": texts, "asserts": asserts}})
    return CompiledKernel({"hsaco": b"\x7fELF"}, meta)


def leave(hip: FakeHip, launch: Launch, records: Sequence[tuple[int, bytes]], failed: int = 0) -> None:
    """What a kernel does that leaves these records: (number of the text, values)."""
    _, memory, state, first = struct.unpack("<QQQi", launch.packed)
    for number, values in records:
        claimed, lost, failures, _ = struct.unpack("<4I", hip.memory[state])
        size = 1 + len(values) // 4
        fits = claimed + size <= WORDS
        struct.pack_into("<3I", hip.memory[state], 0, claimed + size, lost + (not fits), failures)
        if fits:
            record = struct.pack("<I", first + number + 1) + values
            ctypes.memmove(memory - HOST_OFFSET + 4 * claimed, record, len(record))
    struct.pack_into("<I", hip.memory[state], 8, struct.unpack_from("<I", hip.memory[state], 8)[0] + failed)


def plays(hip: FakeHip, *records: tuple[int, bytes], failed: int = 0) -> None:
    hip.when_launched = lambda launch: leave(hip, launch, records, failed)


def one(x: int, value: int = 7) -> tuple[int, bytes]:
    return 0, struct.pack("<3iI", x, 0, 0, value)


# -- lines


def test_conversions() -> None:
    line = Line("100%% %%lld\u00e9 %d %lld %u %llu %f 0x%02x 0x%016llx\n")
    values = (-1, -(2**40), 2**32 - 1, 2**64 - 1, 0.5, 10, 255)
    memory = struct.pack("<iqIQdIQ", *values)
    assert line.size == 1 + len(memory) // 4
    expected = f"100% %lld\u00e9 -1 {-(2**40)} {2**32 - 1} {2**64 - 1} 0.500000 0x0a 0x00000000000000ff\n"
    assert line.show(b"head" + memory, 4) == expected


def test_texts_of_several_kernels_have_numbers_of_their_own() -> None:
    texts = Texts()
    assert [texts.number_of(t) for t in (["a", "b"], ["c"], ["a", "b"])] == [0, 2, 0]


# -- when they appear


def test_lines_appear_when_the_host_synchronises(hip: FakeHip, capsys: pytest.CaptureFixture[str]) -> None:
    plays(hip, one(0), one(1))
    kernel = kernel_of(TEXTS)
    kernel.launch(2, [Tensor(16)])
    assert capsys.readouterr().out == ""
    synchronize()
    assert capsys.readouterr().out == "pid (0, 0, 0) x 7\npid (1, 0, 0) x 7\n"
    synchronize()
    assert capsys.readouterr().out == ""
    kernel.launch(2, [Tensor(16)])  # from the start of the buffer again
    synchronize()
    assert capsys.readouterr().out == "pid (0, 0, 0) x 7\npid (1, 0, 0) x 7\n"
    assert hip.named("hipHostMalloc") == [("hipHostMalloc", 4 * WORDS, 0x40000003)]


def test_a_stream_or_another_launch_will_do(hip: FakeHip, capsys: pytest.CaptureFixture[str]) -> None:
    plays(hip, one(3))
    kernel_of(TEXTS).launch(1, [Tensor(16)])
    plays(hip, (0, struct.pack("<i", 8)))
    kernel_of(["other %d\n"]).launch(1, [Tensor(16)], stream=9)
    assert capsys.readouterr().out == "pid (3, 0, 0) x 7\n"
    synchronize(stream=9)
    assert capsys.readouterr().out == "other 8\n"


def test_devices_have_buffers_of_their_own(hip: FakeHip, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_of(TEXTS)
    for device in (0, 1):
        plays(hip, one(device))
        kernel.launch(1, [Tensor(16, device=device)])
    assert hip.launches[0].packed != hip.launches[1].packed
    synchronize(1)
    assert capsys.readouterr().out == "pid (1, 0, 0) x 7\n"
    synchronize(0)
    assert capsys.readouterr().out == "pid (0, 0, 0) x 7\n"


def test_what_found_no_room_is_counted(hip: FakeHip, capsys: pytest.CaptureFixture[str]) -> None:
    plays(hip, *[one(i) for i in range(WORDS // 5 + 100)])
    kernel_of(TEXTS).launch(1, [Tensor(16)])
    synchronize()
    told = capsys.readouterr()
    assert told.out.count("\n") == WORDS // 5 and told.out.endswith(f"pid ({WORDS // 5 - 1}, 0, 0) x 7\n")
    assert told.err == "mimw: 100 more lines were printed on cuda:0 than its buffer of 1 MB holds\n"


def test_a_buffer_that_is_half_full_is_emptied_before_the_next_launch(
    hip: FakeHip, capsys: pytest.CaptureFixture[str]
) -> None:
    plays(hip, *[one(i) for i in range(WORDS // 8)])
    kernel = kernel_of(TEXTS)
    for _ in range(4):
        kernel.launch(1, [Tensor(16)])
    synchronize()
    told = capsys.readouterr()
    assert told.out.count("\n") == 4 * (WORDS // 8) and told.err == ""


def test_the_end_of_the_process_prints(tmp_path: Path) -> None:
    program = (
        "import tests.runtime.test_print_buffer as t\n"
        "from mimw.runtime import driver_api, hip_api\n"
        "driver_api._probe = False\n"
        "hip = t.FakeHip()\n"
        "hip_api.use_library(hip)\n"
        "t.plays(hip, t.one(5))\n"
        "t.kernel_of(t.TEXTS).launch(1, [t.Tensor(16)])\n"
        "print('end')\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "end\npid (5, 0, 0) x 7\n" and done.stderr == ""


# -- assertions


def test_a_failed_assertion_raises_at_the_launch(hip: FakeHip, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_of(TEXTS, asserts=True)
    plays(hip, one(0), (1, struct.pack("<4i", 2, 0, 0, 9)), failed=3)
    with pytest.raises(LaunchError) as caught:
        kernel.launch(4, [Tensor(16)])
    error = caught.value
    assert error.code == "device-assert"
    place = "k.py:3: assertion failed: small, pid (2, 0, 0), idx (9)"
    assert error.message == f"kernel 'k' with grid (4, 1, 1): {place} (and in 2 more threads)"
    assert error.loc is not None and error.loc.file == __file__
    assert capsys.readouterr().out == f"pid (0, 0, 0) x 7\n{place}\n"
    plays(hip)
    kernel.launch(4, [Tensor(16)])  # the device lives on, and nothing is left of it


def test_assertions_cannot_be_captured(hip: FakeHip) -> None:
    hip.capturing = True
    with pytest.raises(LaunchError, match="waits for its end") as caught:
        kernel_of(TEXTS, asserts=True).launch(1, [Tensor(16)])
    assert caught.value.code == "launch-option" and not hip.launches
    kernel_of(TEXTS).launch(1, [Tensor(16)])


def test_lines_before_a_fault_are_printed_all_the_same(hip: FakeHip, capsys: pytest.CaptureFixture[str]) -> None:
    plays(hip, one(0))
    kernel_of(TEXTS).launch(1, [Tensor(16)])
    hip.fail["hipDeviceSynchronize"] = 700
    with pytest.raises(LaunchError, match="not its own"):
        synchronize()
    assert capsys.readouterr().out == "pid (0, 0, 0) x 7\n"
