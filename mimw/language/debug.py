"""Printing and assertions, at compile time and at run time; the clock, and the barrier of all threads."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.ops.barrier import CtaSyncOp
from mimw.ir.ops.debug import ClockOp, DeviceAssertOp, DevicePrintOp
from mimw.language import semantic
from mimw.language.core import as_value, const_bool, const_str, explain, tensor, unwrap
from mimw.language.errors import fail


def static_print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    """Print constants, shapes and types while the kernel is compiled."""
    b = current_builder("static_print")
    text = sep.join(f"<{v.value.type}>" if isinstance(v, tensor) else str(unwrap(v)) for v in values) + end
    if b.state is not None:
        b.state.append(text)  # shown once, when the trace is done: parts of it may be traced again
    else:
        print(text, end="")


def static_assert(cond: Any, msg: str = "") -> None:
    """Refuse to compile unless the constant `cond` is true."""
    current_builder("static_assert")
    cond = unwrap(cond)
    if isinstance(cond, tensor):
        fail("constexpr-needed", f"static_assert needs a constant, not {explain(cond)}", "use ml.device_assert")
    if not cond:
        text = unwrap(msg)
        fail("static-assert", f"static assertion failed: {text}" if text else "static assertion failed")


def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """Print `prefix` and each element of `args` (tiles, scalars, numbers) on the device, with program id and index.

    One line an element, ``pid (x, y, z) idx (i, j) prefix value``; `hex` shows the bits, as it is always with pointers. Lines come in no
    particular order. Plain ``print`` in a kernel is this function. NVIDIA: one call of vprintf a register; lines appear when the host
    synchronises, and the driver keeps the last megabyte. AMD: a record in the host's memory for each line; lines appear at `mimw.synchronize`,
    before the next launch of a kernel that prints, and at the end of the process (waiting by other means, as torch's, prints nothing); of what
    is printed between two of these, the first megabyte is kept and the number of further lines is said.
    """
    b = current_builder("device_print")
    text = const_str(prefix, "device_print: prefix")
    values = [as_value(a, "device_print") for a in args]
    b.insert(DevicePrintOp(values, text, const_bool(hex, "device_print: hex"), loc=b.loc))


def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Stop the kernel with `msg` when an element of `cond` is false (where `mask` is true).

    On a GPU only when compiled with ``debug=True`` (a launch option) or under ``MIMW_DEBUG=1``: the place, the message, program id and index are
    printed, then the launch fails. The simulator always checks. NVIDIA: a trap, which a later call brings to light, and which ends the CUDA
    context. AMD: the CTA's threads end, the launch waits for the kernel and raises `LaunchError`, and the device can be used as before.
    """
    b = current_builder("device_assert")
    text = const_str(msg, "device_assert: msg")
    c = semantic.as_bool(as_value(cond, "device_assert"))
    m = None if mask is None else semantic.as_bool(as_value(mask, "device_assert: mask"))
    if m is not None:
        shape = semantic.broadcast_shapes(semantic.operand_shape(c), semantic.operand_shape(m), "device_assert: mask")
        c, m = semantic.broadcast_to(c, shape), semantic.broadcast_to(m, shape)
    b.insert(DeviceAssertOp(c, m, text, loc=b.loc))


def debug_barrier() -> None:
    """All threads of the program (inside a task: of the task) meet. What the tile layer needs of that, the compiler inserts itself."""
    b = current_builder("debug_barrier")
    b.insert(CtaSyncOp(loc=b.loc))


def clock64() -> tensor:
    """A counter that goes up, int64: cycles on a GPU (NVIDIA: ``%clock64``, AMD: ``s_memtime``), ticks without a unit in the simulators.

    For differences that are stored or printed. Each thread reads its own (a scalar that is stored is the first thread's), so that no
    condition may depend on it.
    """
    b = current_builder("clock64")
    return tensor(b.insert(ClockOp(loc=b.loc)).result)
