"""What the simulator says of programs that go wrong, and how it treats memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.ir.core import Module
from mimw.ir.parser import parse_module
from mimw.ir.verifier import verify
from mimw.runtime.arrays import describe
from mimw.sim.tile import SimResult, SimulationError, run, run_on_host

COPY = """kernel @copy(%x: ptr<f32>, %y: ptr<f32>, %n: i32) {
  %r = tensor.arange {start = 0, end = 8} : tensor<8xi32>
  %nn = tensor.splat %n {shape = [8]} : tensor<8xi32>
  %m = arith.lt %r, %nn : tensor<8xi1>
  %xs = tensor.splat %x {shape = [8]} : tensor<8xptr<f32>>
  %xp = memory.ptr_add %xs, %r : tensor<8xptr<f32>>
  %v = memory.load %xp, mask = %m : tensor<8xf32>
  %ys = tensor.splat %y {shape = [8]} : tensor<8xptr<f32>>
  %yp = memory.ptr_add %ys, %r : tensor<8xptr<f32>>
  memory.store %yp, %v, mask = %m
  control.return
}"""


def module(text: str) -> Module:
    m = parse_module(text, file="k.mir")
    verify(m)
    return m


def body(text: str, arguments: str = "%x: ptr<f32>, %n: i32") -> Module:
    return module(f"kernel @k({arguments}) {{\n{text}\n  control.return\n}}")


def error(text: Module, args: list[Any], grid: tuple[int, ...] = (1,)) -> SimulationError:
    with pytest.raises(SimulationError) as caught:
        run(text, args, grid)
    return caught.value


def floats(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


# -- global memory ---------------------------------------------------------------------------------------------------


def test_out_of_bounds_names_everything() -> None:
    e = error(module(COPY), [floats(6), floats(8), 8])
    assert e.code == "out-of-bounds" and e.loc is not None and e.loc.line == 7
    text = str(e)
    assert text.startswith(
        "k.mir:7:8: error[out-of-bounds]: load of 4 bytes outside every array: element [6] at address 0x"
    )
    assert "0 bytes past the end of x [0x" in text and "[program (0, 0, 0)]" in text


def test_an_address_of_the_hosts_is_told_as_one() -> None:
    load = body("  %v = memory.load %x : f32", "%x: ptr<f32>, %y: ptr<f32>")
    e = error(load, [0x7F00_0000_0000, floats(4)])
    assert e.code == "out-of-bounds" and e.hint is not None and "put into memory by the host" in e.hint
    assert error(load, [0, floats(4)]).hint is None


def test_masked_lanes_touch_nothing() -> None:
    y = np.full(8, 7, np.float32)
    run(module(COPY), [floats(6), y[:6], 6], (1,))
    assert y.tolist() == [0, 1, 2, 3, 4, 5, 7, 7]
    run(module(COPY), [np.empty(0, np.float32), y, 0], (1,))


def test_before_the_first_array_and_null() -> None:
    load = body("  %p = memory.ptr_add %x, %n : ptr<f32>\n  %v = memory.load %p : f32")
    assert "4 bytes before x" in str(error(load, [floats(4), -1]))
    assert "error[out-of-bounds]" in str(error(load, [0, 0]))
    assert "the kernel has no array" in str(error(load, [0, 0]))


def test_arrays_lie_apart() -> None:
    base = floats(16)
    e = error(module(COPY), [base[:4], floats(8), 8])
    assert "element [4]" in e.message


def test_views_share_memory_with_their_base() -> None:
    base = floats(16)
    run(module(COPY), [base[:8], base[4:12], 4], (1,))
    assert base.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, *range(8, 16)]


def test_reversed_and_transposed_views() -> None:
    base = floats(4, 8)
    strided = body(
        """  %r = tensor.arange {start = 0, end = 4} : tensor<4xi32>
  %ss = tensor.splat %n {shape = [4]} : tensor<4xi32>
  %o = arith.mul %r, %ss : tensor<4xi32>
  %xs = tensor.splat %x {shape = [4]} : tensor<4xptr<f32>>
  %p = memory.ptr_add %xs, %o : tensor<4xptr<f32>>
  %v = memory.load %p : tensor<4xf32>
  %w = arith.neg %v : tensor<4xf32>
  memory.store %p, %w"""
    )
    run(strided, [base[::-1].T[3], -8], (1,))
    assert base[:, 3].tolist() == [-3, -11, -19, -27] and base.min() == -27


def test_misaligned() -> None:
    raw = np.zeros(64, np.uint8)
    view = np.frombuffer(raw.data, np.float32, 4, offset=2)
    e = error(body("  %v = memory.load %x : f32"), [view, 0])
    assert e.code == "misaligned" and "misaligned load of 4 bytes" in e.message


def test_read_only() -> None:
    x = floats(8)
    x.flags.writeable = False
    y = floats(8)
    assert run(module(COPY), [x, y, 8], (1,)).warnings == []
    assert error(module(COPY), [y, x, 8]).code == "read-only"


def test_of_two_stores_to_one_place_the_last_wins() -> None:
    text = body(
        """  %r = tensor.arange {start = 0, end = 64} : tensor<64xi32>
  %z = arith.constant {value = 1} : tensor<64xi32>
  %o = arith.and %r, %z : tensor<64xi32>
  %xs = tensor.splat %x {shape = [64]} : tensor<64xptr<f32>>
  %p = memory.ptr_add %xs, %o : tensor<64xptr<f32>>
  %v = arith.cast %r {dtype = f32} : tensor<64xf32>
  memory.store %p, %v"""
    )
    x = floats(2)
    run(text, [x, 0], (1,))
    assert x.tolist() == [62, 63]


def test_bool_memory_is_a_byte() -> None:
    text = body("  %v = memory.load %b : i1\n  memory.store %c, %v", "%b: ptr<i1>, %c: ptr<i1>")
    source, target = np.array([4], np.uint8), np.array([9], np.uint8)
    run(text, [source, target], (1,))
    assert target.tolist() == [1]


def test_arguments_must_fit() -> None:
    for args in ([floats(8), floats(8)], [1.5, floats(8), 3], [floats(8), floats(8), floats(2)]):
        with pytest.raises(TypeError):
            run(module(COPY), args, (1,))


def test_run_on_host() -> None:
    base = floats(32)
    target = np.zeros(8, np.float32)
    run_on_host(module(COPY), [describe(base[31:23:-1]), describe(target), describe(1)], (1,))
    assert target.tolist() == [31] + [0] * 7
    target.flags.writeable = False
    with pytest.raises(SimulationError, match="read-only"):
        run_on_host(module(COPY), [describe(base), describe(target), describe(8)], (1,))


# -- offsets that wrap -----------------------------------------------------------------------------------------------

WRAP = """  %big = arith.constant {value = 65536} : tensor<4xi32>
  %r = tensor.arange {start = 65534, end = 65538} : tensor<4xi32>
  %o = arith.mul %r, %big : tensor<4xi32>
  %zero = arith.constant {value = 0} : tensor<4xi32>
  %e = tensor.expand_dims %o {axis = 0} : tensor<1x4xi32>
  %f = tensor.reshape %e {shape = [4]} : tensor<4xi32>
  %four = arith.constant {value = 4} : tensor<4xi32>
  %m = arith.lt %f, %four : tensor<4xi1>
  %ge = arith.ge %f, %zero : tensor<4xi1>
  %on = arith.and %m, %ge : tensor<4xi1>
  %xs = tensor.splat %x {shape = [4]} : tensor<4xptr<f32>>
  %p = memory.ptr_add %xs, %f : tensor<4xptr<f32>>"""


def test_an_access_outside_of_every_array_by_a_wrapped_offset_says_where_it_wraps() -> None:
    with pytest.raises(SimulationError) as caught:
        run(body(f"{WRAP}\n  %v = memory.load %p : tensor<4xf32>"), [floats(4), 0], (1,))
    error = caught.value
    assert error.code == "out-of-bounds" and error.hint == "compute the offset in ml.int64"
    assert [(n.text, n.loc.line) for n in error.notes if n.loc] == [
        ("an i32 offset that reaches this address wraps here", 4)
    ]


def test_a_wrapped_offset_that_reaches_an_address_is_reported() -> None:
    result = run(body(f"{WRAP}\n  %v = memory.load %p, mask = %on : tensor<4xf32>"), [floats(4), 0], (1,))
    assert result.warnings == [
        "k.mir:4:8: warning: an i32 offset wraps here and reaches the address of memory.load at k.mir:14:8, element [2]"
    ]


def test_a_wrapped_offset_that_is_masked_off_is_not() -> None:
    none = "  %none = arith.constant {value = false} : tensor<4xi1>"
    off = f"{WRAP}\n{none}\n  %v = memory.load %p, mask = %none : tensor<4xf32>"
    assert run(body(off), [floats(4), 0], (1,)).warnings == []


def test_a_wrapped_offset_is_followed_through_a_loop() -> None:
    text = """  %zero = arith.constant {value = 0} : i32
  %one = arith.constant {value = 1} : i32
  %huge = arith.constant {value = 1073741824} : i32
  %o = control.for %zero, %n, %one, [%zero] body(%i: i32, %a: i32) {
    %b = arith.add %a, %huge : i32
    control.yield %b
  } : i32
  %p = memory.ptr_add %x, %o : ptr<f32>
  %v = memory.load %p : f32"""
    assert "k.mir:6:10: warning" in run(body(text), [floats(4), 4], (1,)).warnings[0]
    assert run(body(text), [floats(4), 0], (1,)).warnings == []


# -- shared memory ---------------------------------------------------------------------------------------------------

START = """  %buffer = memory.local_alloc : memdesc<2x4xf32, shared>
  %at = arith.constant {value = 1} : i32
  %slot = memory.local_view %buffer, %at : memdesc<4xf32, shared, alloc 2x4>
  %r = tensor.arange {start = 0, end = 4} : tensor<4xi32>
  %xs = tensor.splat %x {shape = [4]} : tensor<4xptr<f32>>
  %p = memory.ptr_add %xs, %r : tensor<4xptr<f32>>
  async_copy.load %p, %slot
  async_copy.commit_group
"""
LOAD = "  %v = memory.local_load %slot : tensor<4xf32>\n  %w = arith.add %v, %v : tensor<4xf32>\n  memory.store %p, %w"


def test_a_copy_lands_at_its_wait() -> None:
    x = floats(4)
    run(body(f"{START}  async_copy.wait_group {{pendings = 0}}\n{LOAD}"), [x, 0], (1,))
    assert x.tolist() == [0, 2, 4, 6]


def test_a_copy_is_not_read_before_its_wait() -> None:
    e = error(body(f"{START}  async_copy.wait_group {{pendings = 1}}\n{LOAD}"), [floats(4), 0])
    assert (
        e.code == "read-before-wait"
        and "buffer[1] is read while" in e.message
        and e.loc is not None
        and e.loc.line == 11
    )


def test_a_copy_is_not_committed_twice() -> None:
    text = START.replace("  async_copy.commit_group\n", "") + f"  async_copy.wait_group {{pendings = 0}}\n{LOAD}"
    assert error(body(text), [floats(4), 0]).code == "read-before-wait"


def test_a_slot_is_not_written_under_a_copy() -> None:
    store = "  %c = arith.constant {value = 1.0} : tensor<4xf32>\n  memory.local_store %slot, %c"
    assert error(body(START + store), [floats(4), 0]).code == "write-before-wait"
    again = "  async_copy.load %p, %slot"
    assert error(body(START + again), [floats(4), 0]).code == "write-before-wait"


def test_unwritten_memory_is_poison_and_a_warning() -> None:
    x = floats(4)
    text = START.replace("  async_copy.load %p, %slot\n", "") + LOAD
    result = run(body(text), [x, 0], (1,))
    assert np.isnan(x).all()
    assert result.warnings == [
        "k.mir:9:8: warning: memory.local_load reads elements of buffer[1] that were never written"
    ]


def test_slot_out_of_range() -> None:
    e = error(body(START.replace("value = 1}", "value = 2}")), [floats(4), 0])
    assert e.code == "slot-out-of-range" and "slot 2 of buffer, which has 2" in e.message


DOT = """  %a0 = arith.constant {value = 1.0} : tensor<64x16xf16>
  %b0 = arith.constant {value = 2.0} : tensor<16x8xf16>
  %c = arith.constant {value = 3.0} : tensor<64x8xf32>
  %a = memory.local_alloc src = %a0 : memdesc<64x16xf16, shared>
  %b = memory.local_alloc src = %b0 : memdesc<16x8xf16, shared>
  %d = mma.async_dot %a, %b, %c : inflight<tensor<64x8xf32>>
"""


def test_async_dot() -> None:
    text = (
        DOT
        + """  %e = mma.async_dot %a, %b, %d : inflight<tensor<64x8xf32>>
  %f = mma.async_dot_wait %e {pendings = 1} : inflight<tensor<64x8xf32>>
  %g = mma.async_dot_wait %f {pendings = 0} : tensor<64x8xf32>
  %m = tensor.reduce %g {axis = 0} combine(%s: f32, %t: f32) {
    %u = arith.maxnum %s, %t : f32
    control.yield %u
  } : tensor<8xf32>
  %v = tensor.reduce %m {axis = 0} combine(%s: f32, %t: f32) {
    %u = arith.minnum %s, %t : f32
    control.yield %u
  } : f32
  memory.store %x, %v
  memory.local_store %b, %b0"""
    )
    x = floats(1)
    run(body(text), [x, 0], (1,))
    assert x.tolist() == [3 + 2 * 16 * 2]


def test_async_dot_without_its_accumulator() -> None:
    text = """  %yes = arith.constant {value = true} : i1
  %no = arith.constant {value = false} : i1
"""
    text += DOT.replace("%a, %b, %c :", "%a, %b, %c, use_acc = %yes :")
    text += """  %e = mma.async_dot %a, %b, %d, use_acc = %no : inflight<tensor<64x8xf32>>
  %f, %g = mma.async_dot_wait %d, %e {pendings = 0} : tensor<64x8xf32>, tensor<64x8xf32>
  %s = arith.sub %f, %g : tensor<64x8xf32>
  %m = tensor.reduce %s {axis = 0} combine(%p: f32, %q: f32) {
    %u = arith.maxnum %p, %q : f32
    control.yield %u
  } : tensor<8xf32>
  %v = tensor.reduce %m {axis = 0} combine(%p: f32, %q: f32) {
    %u = arith.minnum %p, %q : f32
    control.yield %u
  } : f32
  memory.store %x, %v"""
    x = floats(1)
    run(body(text), [x, 0], (1,))
    assert x.tolist() == [3]


def test_an_operand_is_not_overwritten_before_the_wait() -> None:
    e = error(body(DOT + "  memory.local_store %b, %b0"), [floats(1), 0])
    assert e.code == "write-before-wait" and "b is written while an asynchronous dot still reads it" in e.message
    waited = "  %f = mma.async_dot_wait %d {pendings = 1} : inflight<tensor<64x8xf32>>\n  memory.local_store %a, %a0"
    assert error(body(DOT + waited), [floats(1), 0]).code == "write-before-wait"


# -- the rest --------------------------------------------------------------------------------------------------------


def test_device_print(capsys: pytest.CaptureFixture[str]) -> None:
    text = body(
        """  %pid = control.program_id {axis = 0} : i32
  %r = tensor.arange {start = 0, end = 2} : tensor<2xi32>
  %f = arith.cast %r {dtype = f32} : tensor<2xf32>
  debug.device_print %pid {prefix = "pid"}
  debug.device_print %f {prefix = "f", hex = true}
  debug.device_print {prefix = "here"}"""
    )
    result: SimResult = run(text, [floats(1), 0], (2,))
    assert result.printed[:4] == [
        "pid (0, 0, 0) idx () pid 0",
        "pid (0, 0, 0) idx (0) f 0x00000000",
        "pid (0, 0, 0) idx (1) f 0x3f800000",
        "pid (0, 0, 0) here",
    ]
    assert capsys.readouterr().out.splitlines() == result.printed


def test_device_assert() -> None:
    text = """  %r = tensor.arange {start = 0, end = 4} : tensor<4xi32>
  %nn = tensor.splat %n {shape = [4]} : tensor<4xi32>
  %c = arith.ne %r, %nn : tensor<4xi1>
  %one = arith.constant {value = 1} : tensor<4xi32>
  %m = arith.gt %r, %one : tensor<4xi1>
  debug.device_assert %c, mask = %m {message = "no n here"}"""
    run(body(text), [floats(1), 1], (1,))
    e = error(body(text), [floats(1), 2])
    assert (e.code, e.message) == ("device-assert", "no n here (element [2])")
    assert e.loc is not None and e.loc.line == 7


def test_zero_step() -> None:
    text = (
        "  %z = arith.constant {value = 0} : i32\n  control.for %z, %n, %z, [] body(%i: i32) {\n    control.yield\n  }"
    )
    assert error(body(text), [floats(1), 1]).code == "zero-step"


def test_error_names_the_program() -> None:
    text = "  %p = control.program_id {axis = 1} : i32\n  %q = memory.ptr_add %x, %p : ptr<f32>"
    text += "\n  %v = memory.load %q : f32"
    assert "[program (0, 3, 0)]" in str(error(body(text), [floats(3), 0], (2, 5)))


def test_division_by_zero_gives_all_bits() -> None:
    text = body(
        """  %z = arith.constant {value = 0} : i32
  %q = arith.div %n, %z : i32
  %r = arith.rem %n, %z : i32
  memory.store %o, %q
  %one = arith.constant {value = 1} : i32
  %p = memory.ptr_add %o, %one : ptr<i32>
  memory.store %p, %r""",
        "%o: ptr<i32>, %n: i32",
    )
    o = np.zeros(2, np.int32)
    run(text, [o, 5], (1,))
    assert o.tolist() == [-1, -1]


def test_combine_function_that_branches() -> None:
    text = body(
        """  %r = tensor.arange {start = -3, end = 4} : tensor<7xi32>
  %s = tensor.reduce %r {axis = 0} combine(%a: i32, %b: i32) {
    %c = arith.gt %a, %b : i1
    %d = control.if %c then {
      control.yield %a
    } orelse {
      control.yield %b
    } : i32
    control.yield %d
  } : i32
  memory.store %o, %s""",
        "%o: ptr<i32>",
    )
    o = np.zeros(1, np.int32)
    run(text, [o], (1,))
    assert o.tolist() == [3]
