"""Kernels built to tell of their hangs: in the PTX simulator, and through the launch with a driver whose device is that simulator."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.codegen.shared import hang as built
from mimw.compiler import Options, compile_kernel
from mimw.diagnostics import UNKNOWN, CompilationError, LaunchError
from mimw.jit import Kernel
from mimw.runtime import driver_api, hang, hang_watch
from mimw.runtime import launch as launch_module
from mimw.runtime.hang import HangRecord, KernelHang
from mimw.sim.errors import SimulationError
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target
from tests.gpu import hang_kernels
from tests.gpu.hang_kernels import CASES, Case, endless
from tests.kernels.engines import described
from tests.runtime.fake_cuda import OK, CUresult, FakeDriver, Tensor, TorchDtype
from tests.tools.test_docs import blocks, unmatched

I32 = TorchDtype("int32")
Array = np.ndarray[Any, Any]


class _NotReady(int):
    """CUDA_ERROR_NOT_READY, which the stand-in driver's results lack."""

    name = "CUDA_ERROR_NOT_READY"


NOT_READY = _NotReady(600)


def compiled(case: Case, timeout: str = "400ms", **options: Any) -> Any:
    """A case's kernel that gives up."""
    pointers = ["*i32"] + ["*i32:16"] * (len(case.arrays()) - 1)
    return case.kernel.compile([*pointers, "*i32"], hang_timeout=timeout, **case.options, **options)


class Told:
    """What a simulated launch left in its hidden arguments."""

    def __init__(self, compiled: Any, args: list[Any], grid: int, seed: int = 0, races: bool = True) -> None:
        self.table = compiled.metadata.extra["hang"]
        records, state = np.zeros(hang.RECORD * hang.MAX_RECORDS, np.uint8), np.zeros(hang.STATE, np.uint8)
        run_ptx(
            compiled.asm["ptx"], None, (grid, 1, 1), [*args, records, state], shared_bytes=compiled.metadata.shared_bytes,
            seed=seed, check_races=races,
        )  # fmt: skip
        self.first = int(state.view(np.uint64)[0])
        self.total = int(state.view(np.uint32)[2])
        self.records = hang.unpack_records(self.table, records.tobytes(), self.first)


def flag(good: int) -> Array:
    return np.array([good], np.int32)


# -- both ends of the records


def test_both_sides_mean_the_same_layout() -> None:
    assert (hang.RECORD, hang.MAX_RECORDS) == (built.RECORD, built.MAX_RECORDS)


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("name", list(CASES))
def test_a_hang_ends_and_is_told(name: str, seed: int) -> None:
    case = CASES[name]
    arrays = case.arrays()
    told = Told(compiled(case), [*arrays, flag(0)], case.grid, seed, races=False)
    waits = [r for r in told.records if r.line == case.line()]
    stuck = case.grid // 2 if name == "cluster" else case.grid
    assert len(waits) == case.warps * stuck
    assert told.total == len(told.records) and told.first >= 400_000_000
    for r in waits:
        assert (r.task, r.barrier, r.slot) == (case.task, case.barrier, case.slot)
        assert r.file == hang_kernels.__file__
        assert 0.4 < r.seconds < 0.8 and not r.after
        assert case.first_warp <= r.warp < case.first_warp + case.warps
    assert (arrays[0] == 1).all()  # what stands behind the wait was done: waits that give up rejoin


@pytest.mark.parametrize("name", list(CASES))
def test_nothing_is_told_where_nothing_hangs(name: str) -> None:
    case = CASES[name]
    arrays = case.arrays()
    # What orders that one are copies into the other CTA, which the check for repeated parities does not follow.
    told = Told(compiled(case), [*arrays, flag(1)], case.grid, seed=3, races=name != "lost_slot")
    assert (told.records, told.total, told.first) == ([], 0, 0)
    assert (arrays[0] == 1).all()


def test_who_was_held_up_at_the_cluster_barrier_is_told_too() -> None:
    case = CASES["cluster"]
    told = Told(compiled(case), [*case.arrays(), flag(0)], case.grid, races=False)
    held = [r for r in told.records if r.kind == "cluster"]
    assert {r.cta[0] for r in held} == {0, 2} and len(held) == 8
    assert all(r.what() == "the other CTAs at cluster_barrier" for r in held)


def test_ctas_that_start_after_a_hang_pass_through_and_are_marked() -> None:
    case = CASES["never_arrived"]
    told = Told(compiled(case), [*case.arrays(), flag(0)], 60, races=False)  # more than the simulator runs at once
    after = {r.cta[0] for r in told.records if r.after}
    assert after and after == set(range(min(after), 60))
    assert told.total == 60 * 4
    text = str(hang.explain("it", told.table, told.records, told.total, "", UNKNOWN))
    assert f"ctas 0-{min(after) - 1}, warps 0-3" in text
    assert f"({4 * len(after)} warps came to a wait after that and passed through)" in text


def test_more_records_than_there_is_room_for_are_counted() -> None:
    case = CASES["never_arrived"]
    kernel = compiled(case)
    text = kernel.asm["ptx"]
    assert text.count(f", {hang.MAX_RECORDS};") == 1
    kernel.asm["ptx"] = text.replace(f", {hang.MAX_RECORDS};", ", 7;")
    told = Told(kernel, [*case.arrays(), flag(0)], 3, races=False)
    assert len(told.records) == 7 and told.total == 12
    assert "12 warps gave up" in str(hang.explain("it", told.table, told.records, told.total, "", UNKNOWN))


def test_a_loop_that_only_a_message_ends_is_stopped() -> None:
    with pytest.raises(SimulationError, match=r"st\.volatile\.global\.b32"):
        Told(compiled(Case(endless, 2, "", "", 0, 0)), [np.zeros(128, np.int32), flag(0)], 2, races=False)


def test_phases_of_a_ring_and_inlined_waits() -> None:
    @mimw.kernel
    def take(bars, i):
        ml.barrier_wait(bars[i % 3], i // 3)

    @mimw.kernel
    def ring(out, flag):
        limit = ml.load(flag)
        full, empty = ml.alloc_barriers(3, 1), ml.alloc_barriers(3, 1)
        with ml.async_tasks():
            with ml.async_task("default"):
                for i in range(12):
                    take(full, i)
                    ml.barrier_arrive(empty[i % 3])
                ml.store(out + ml.arange(0, 128), 1)
            with ml.async_task(num_warps=1, name="giver"):
                for i in range(12):
                    if i < limit:
                        ml.barrier_wait(empty[i % 3], i // 3 + 1)
                        ml.barrier_arrive(full[i % 3])

    k = ring.compile(["*i32", "*i32"], hang_timeout=0.5)
    told = Told(k, [np.zeros(128, np.int32), flag(10)], 1, races=False)
    (kind,) = {(r.barrier, r.slot, r.phase, r.parity) for r in told.records}
    assert kind == ("full", 1, 3, 1)
    text = str(hang.explain("it", told.table, told.records, told.total, "", UNKNOWN))
    assert "s for phase 3 (parity 1) of full[1]" in text
    assert "called from" in text and "take(full, i)" in text
    assert not Told(k, [np.zeros(128, np.int32), flag(12)], 1).records


def test_named_barriers_whose_number_is_known_at_run_time() -> None:
    @mimw.kernel
    def turns(out, flag):
        good = ml.load(flag)
        with ml.async_tasks():
            with ml.async_task("default"):
                for i in range(4):
                    ml.named_barrier_arrive(8 + i % 2, 256)
                ml.store(out + ml.arange(0, 128), 1)
            with ml.async_task(num_warps=4, name="other"):
                for i in range(3 + good):
                    ml.named_barrier_wait(8 + i % 2, 256)
                if good == 0:
                    ml.named_barrier_wait(12, 256)

    k = turns.compile(["*i32", "*i32"], hang_timeout="1s")
    told = Told(k, [np.zeros(128, np.int32), flag(0)], 1, races=False)
    assert {(r.task, r.kind, r.barrier, r.threads) for r in told.records} == {
        ("other", "named", "named barrier 12", 256)
    }
    assert not Told(k, [np.zeros(128, np.int32), flag(1)], 1, seed=2).records


# -- the same results as without


def launch_and_expect_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> list[Any]:
    """From now on launches on host arrays compile with `hang_timeout` and run in the PTX simulator; nobody may give up."""
    ran: list[Any] = []

    def simulate(self: Kernel, grid: Any, values: list[Any], infos: Any, options: Any) -> None:
        special = self.specialise(values)
        options.hang_timeout = 10**9
        kernel = compile_kernel(
            self.fn, self.signature(special, values), get_target("sm_90a"), options, assembled=False
        )
        maps = iter(kernel.metadata.extra.get("descriptors", ()))
        passed = [v for key, v in zip(special, values, strict=True) if key[0] != "c"]
        passed = [described(v, next(maps)) if isinstance(v, mimw.TensorDescriptor) else v for v in passed]
        ran.append(Told(kernel, passed, grid[0], seed))
        assert not ran[-1].records and not ran[-1].total

    monkeypatch.setattr(Kernel, "_simulate", simulate)
    return ran


@pytest.mark.parametrize("example", ["05_warp_specialized_matmul", "06_pingpong_matmul", "07_cluster_multicast"])
def test_examples_do_the_same(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location(example, Path(__file__).parents[1] / "examples" / f"{example}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ran = launch_and_expect_nothing(monkeypatch, seed=3)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((128, 136), (136, 128)))
    c = np.zeros((128, 128), np.float16)
    module.matmul(a, b, c)
    assert ran
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_without_waits_and_without_the_option_nothing_changes() -> None:
    case = CASES["never_arrived"]
    plain = case.kernel.compile(["*i32", "*i32"])
    assert "hang_state" not in plain.asm["ptx"] and "hang" not in plain.metadata.extra
    assert [p.name for p in plain.metadata.params] == ["out", "flag"]
    watched = compiled(case)
    assert [(p.name, p.hidden) for p in watched.metadata.params[2:]] == [("hang_records", True), ("hang_state", True)]
    assert [p.name for p in watched.metadata.arguments] == ["out", "flag"]
    assert 0 < watched.metadata.shared_bytes - plain.metadata.shared_bytes <= 24

    @mimw.kernel
    def copy(x, y):
        ml.store(y + ml.arange(0, 128), ml.load(x + ml.arange(0, 128)))

    assert copy.compile(["*i32", "*i32"], hang_timeout="2s").asm["ptx"] == copy.compile(["*i32", "*i32"]).asm["ptx"]


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_it_assembles_without_spills_and_warnings(target: str) -> None:
    for case in CASES.values():
        kernel = compiled(case, target=target)
        assert not kernel.metadata.warnings and not kernel.metadata.spill_bytes


def test_no_room_for_the_barriers_is_said() -> None:
    ROOM: ml.constexpr = 232448 - 4 * 128 * 256

    @mimw.kernel
    def full(out):
        x = ml.arange(0, 128)
        ring = ml.local_alloc((128, 256), ml.int32, 1)
        bar = ml.alloc_barriers(ROOM // 8, 1)
        ml.local_store(ring[0], ml.zeros((128, 256), ml.int32))
        ml.barrier_arrive(bar[0])
        ml.barrier_wait(bar[0], 0)
        ml.store(out + x, ml.sum(ml.local_load(ring[0]), 1))

    with pytest.raises(CompilationError) as caught:
        full.compile(["*i32"], hang_timeout="1s", assembled=False)
    assert caught.value.code == "shared-memory" and "explains hangs" in caught.value.message


# -- options


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("2s", 2 * 10**9), ("500ms", 5 * 10**8), ("1.5", 15 * 10**8), (2, 2 * 10**9), (0.25, 25 * 10**7), ("0", 0), ("off", 0), ("80us", 80_000)],
)  # fmt: skip
def test_times(given: Any, wanted: int) -> None:
    assert hang.parse_timeout(given) == wanted


@pytest.mark.parametrize("given", ["soon", "-1s", "2m", True, "1e9", "7200s"])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="not"):
        hang.parse_timeout(given)
    with pytest.raises(LaunchError) as caught:
        Options(hang_timeout=given)
    assert caught.value.code == "launch-option" and "hang_timeout" in caught.value.message


def test_where_the_time_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIMW_HANG_TIMEOUT", raising=False)
    assert Options().hang_timeout == 0 and Options().key() == Options(hang_timeout=0, debug=False).key()
    assert Options(debug=True).hang_timeout == 10 * 10**9
    monkeypatch.setenv("MIMW_HANG_TIMEOUT", "300ms")
    assert Options().hang_timeout == Options(debug=True).hang_timeout == 3 * 10**8
    assert Options(hang_timeout="1s").hang_timeout == 10**9
    assert len({Options().key(), Options(hang_timeout="1s").key(), Options(hang_timeout=0).key()}) == 3
    monkeypatch.setenv("MIMW_HANG_TIMEOUT", "0")
    assert Options(debug=True).hang_timeout == 0
    monkeypatch.setenv("MIMW_HANG_TIMEOUT", "never")
    with pytest.raises(LaunchError, match="MIMW_HANG_TIMEOUT"):
        Options()


# -- the launch


class SimulatedDevice(FakeDriver):
    """A driver that runs what it is asked to launch in the PTX simulator, on memory of this process. The case says what to run."""

    def __init__(self, case: Case, text: str, shared: int) -> None:
        super().__init__()
        self.case, self.text, self.shared_bytes = case, text, shared
        self.blocks: dict[int, Any] = {}
        self.capturing = 0
        self.busy = 0

    def _block(self, size: int) -> int:
        memory = ctypes.create_string_buffer(b"\xff" * size, size)
        self.blocks[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[Any, ...]:
        return self._result("cuMemHostAlloc", size, flags), self._block(size)

    def cuMemHostGetDevicePointer(self, address: int, flags: int) -> tuple[Any, ...]:
        return self._result("cuMemHostGetDevicePointer", flags), address

    def cuMemAlloc(self, size: int) -> tuple[Any, ...]:
        return self._result("cuMemAlloc", size), self._block(size)

    def cuMemsetD32(self, address: int, value: int, count: int) -> tuple[Any, ...]:
        ctypes.memset(address, value, 4 * count)
        return (self._result("cuMemsetD32", count),)

    def cuMemcpyDtoH(self, host: int, device: int, size: int) -> tuple[Any, ...]:
        ctypes.memmove(host, device, size)
        return (self._result("cuMemcpyDtoH", size),)

    def cuStreamIsCapturing(self, stream: int) -> tuple[Any, ...]:
        return OK, self.capturing

    def cuStreamQuery(self, stream: int) -> tuple[Any, ...]:
        self.busy -= 1
        return (self._result("cuStreamQuery") if self.busy < 0 else NOT_READY,)

    def _launch(
        self, name: str, f: Any, grid: Any, threads: int, shared: int, stream: int, params: int, attributes: Any
    ) -> Any:
        sizes = [512, 4, hang.RECORD * hang.MAX_RECORDS, hang.STATE]
        values = [ctypes.c_uint64.from_address(p).value for p in (ctypes.c_void_p * len(sizes)).from_address(params)]
        arrays = [
            np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))
            for at, size in zip(values, sizes, strict=True)
        ]
        run_ptx(self.text, None, grid, arrays, shared_bytes=self.shared_bytes, check_races=False)
        return (self._result(name, grid),)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, SimulatedDevice]]:
    """(the case's compiled kernel, the driver)."""
    case = CASES["never_arrived"]
    kernel = compiled(case)
    fake = SimulatedDevice(case, kernel.asm["ptx"], kernel.metadata.shared_bytes)
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.setattr(hang_watch, "_free", {})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    driver_api.use_driver(fake)
    yield kernel, fake
    driver_api.use_driver(None)


class Arrays:
    """The arguments of a launch, as tensors of the stand-in for torch."""

    def __init__(self, good: int) -> None:
        self.out, self.flag = np.zeros(128, np.int32), flag(good)

    def tensors(self) -> list[Tensor]:
        made = [Tensor(a.ctypes.data, I32, a.shape) for a in (self.out, self.flag)]
        made[0].owner = self  # type: ignore[attr-defined]
        return made


def test_the_launch_raises_and_the_next_one_works(device: tuple[Any, SimulatedDevice]) -> None:
    kernel, fake = device
    for _ in range(2):
        bad, good = Arrays(0), Arrays(1)
        with pytest.raises(KernelHang) as caught:
            kernel[(3,)](*bad.tensors())
        error = caught.value
        assert error.code == "kernel-hang" and not error.lost
        assert error.loc.file == __file__ and "kernel[(3,)](*bad" in str(error)
        assert len(error.records) == error.total == 12 and all(isinstance(r, HangRecord) for r in error.records)
        line = CASES["never_arrived"].line()
        assert (
            "kernel 'never_arrived' with grid (3, 1, 1) hangs: 12 warps gave up waiting, the first after 0.4 s"
            in str(error)
        )
        assert "task default, ctas 0-2, warps 0-3: waited 0.4" in str(error) and " s for phase 0 of full[1]" in str(
            error
        )
        assert f"hang_kernels.py:{line}: ml.barrier_wait(full[1], 0)" in str(error)
        assert "barrier_arrive in task producer" in str(error) and "hint: find what did not come" in str(error)
        assert kernel[(3,)](*good.tensors()) is kernel
        assert (good.out == 1).all() and (bad.out == 1).all()
    assert len(fake.named("cuMemHostAlloc")) == 1 and len(fake.named("cuStreamQuery")) == 4


def test_the_launch_waits_for_the_end(device: tuple[Any, SimulatedDevice]) -> None:
    kernel, fake = device
    fake.busy = 3
    kernel.launch(1, Arrays(1).tensors())
    assert fake.busy == -1


def test_a_kernel_that_had_to_be_stopped(device: tuple[Any, SimulatedDevice]) -> None:
    kernel, fake = device
    fake.fail["cuStreamQuery"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(KernelHang) as caught:
        kernel.launch(2, Arrays(0).tensors())
    assert caught.value.lost and len(caught.value.records) == 8
    assert "had to be stopped (CUDA_ERROR_ILLEGAL_ADDRESS), which ends the CUDA context: restart the process" in str(
        caught.value
    )
    fake.fail["cuStreamQuery"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(LaunchError) as other:  # a fault without a hang is told as ever
        kernel.launch(2, Arrays(1).tensors())
    assert other.value.code == "launch-driver"


def test_a_kernel_that_does_not_end_even_so(
    device: tuple[Any, SimulatedDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, fake = device
    fake.busy = 10**6
    now = iter(range(10**6))
    monkeypatch.setattr(hang_watch.time, "monotonic", lambda: 0.5 * next(now))
    monkeypatch.setattr(hang_watch.time, "sleep", lambda seconds: None)
    with pytest.raises(KernelHang) as caught:
        kernel.launch(2, Arrays(0).tensors())
    assert caught.value.lost and "does not end even so" in str(caught.value)


def test_a_launch_that_the_driver_refuses_keeps_no_memory(device: tuple[Any, SimulatedDevice]) -> None:
    kernel, fake = device
    for _ in range(2):
        fake.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        with pytest.raises(LaunchError) as caught:
            kernel.launch(1, Arrays(1).tensors())
        assert caught.value.code == "launch-driver"
    assert len(fake.named("cuMemHostAlloc")) == 1


def test_targets_without_such_barriers_are_built_as_always() -> None:
    @mimw.kernel
    def named(out):
        ml.named_barrier_wait(3, 128)
        ml.store(out + ml.arange(0, 128), 1)

    old = named.compile(["*i32"], hang_timeout="1s", target="sm_80")
    assert "hang" not in old.metadata.extra and [p.name for p in old.metadata.params] == ["out"]
    assert not Told(named.compile(["*i32"], hang_timeout="1s"), [np.zeros(128, np.int32)], 2).records


def test_streams_that_are_captured_are_refused(device: tuple[Any, SimulatedDevice]) -> None:
    kernel, fake = device
    fake.capturing = 1
    with pytest.raises(LaunchError) as caught:
        kernel.launch(1, Arrays(1).tensors())
    assert caught.value.code == "launch-option" and "hint: switch that off for graphs: hang_timeout=0" in str(
        caught.value
    )


# -- the document

HANGS = Path(__file__).parents[1] / "docs" / "hangs.md"


def test_the_documents_message_is_real(tmp_path: Path) -> None:
    (_, kernel), (_, shown) = blocks(HANGS)
    file = tmp_path / "sums.py"
    file.write_text(kernel)
    namespace: dict[str, Any] = {}
    exec(compile(kernel, str(file), "exec"), namespace)
    signature = {"x": "*f32:16", "y": "*f32:16", "rounds": "*i32"}
    built_kernel = namespace["running_sums"].compile(signature, {"N": 256, "STAGES": 3}, hang_timeout="2s")
    x, y = np.ones((8, 256), np.float32), np.zeros(256, np.float32)
    told = Told(built_kernel, [x, y, np.array([8], np.int32)], 8, races=False)
    head = "kernel 'running_sums' with grid (8, 1, 1)"
    message = str(hang.explain(head, told.table, told.records, told.total, "", UNKNOWN)).replace(f"{tmp_path}/", "")
    assert unmatched(shown, message) is None, message
    assert len(shown.splitlines()) == len(message.splitlines())
