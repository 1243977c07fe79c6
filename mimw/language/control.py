"""The program's place in the grid, loop iterators, and promises to the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.arith import HintOp
from mimw.ir.ops.control import NumProgramsOp, ProgramIdOp
from mimw.ir.types import TensorType
from mimw.language.core import const_bool, const_int, explain, is_tuple, method, tensor, unwrap
from mimw.language.errors import fail


def _grid_axis(axis: Any, what: str) -> int:
    a = const_int(axis, f"{what}: the axis")
    if a not in (0, 1, 2):
        fail("bad-axis", f"{what}: axis {a}; a grid has the axes 0, 1, 2")
    return a


def program_id(axis: int) -> tensor:
    """This program's index in the grid along `axis` (0, 1 or 2): an int32 scalar."""
    b = current_builder("program_id")
    return tensor(b.insert(ProgramIdOp(_grid_axis(axis, "program_id"), loc=b.loc)).result)


def num_programs(axis: int) -> tensor:
    """The grid's size along `axis` (0, 1 or 2): an int32 scalar."""
    b = current_builder("num_programs")
    return tensor(b.insert(NumProgramsOp(_grid_axis(axis, "num_programs"), loc=b.loc)).result)


class range:
    """``for i in ml.range(start, stop, step)``: a loop that runs on the device, as ``range`` does.

    `num_stages` asks for software pipelining of this loop (None: the kernel's), `loop_unroll_factor` for unrolling.
    `flatten`, `disallow_acc_multi_buffer`, `disable_licm` and `warp_specialize` are accepted for Triton's sake and change nothing
    (the last one leaves a remark): whoever wants warps of their own for copies and products writes tasks.
    """

    __slots__ = ("num_stages", "start", "step", "stop", "unroll", "warp_specialize")

    if TYPE_CHECKING:  # for checkers of kernel code: the frontend reads the object itself

        def __iter__(self) -> Iterator[Any]: ...

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: int | None = None,
        loop_unroll_factor: int | None = None,
        disallow_acc_multi_buffer: bool = False,
        flatten: bool = False,
        warp_specialize: bool = False,
        disable_licm: bool = False,
    ) -> None:
        self.start: Any = 0 if arg2 is None else unwrap(arg1)
        self.stop: Any = unwrap(arg1) if arg2 is None else unwrap(arg2)
        self.step: Any = 1 if step is None else unwrap(step)
        self.num_stages = 0 if num_stages is None else const_int(num_stages, "range: num_stages")
        self.unroll = 1 if loop_unroll_factor is None else const_int(loop_unroll_factor, "range: loop_unroll_factor")
        if self.num_stages < 0 or self.unroll < 1:
            fail("bad-argument", "range: num_stages and loop_unroll_factor are positive")
        self.warp_specialize = const_bool(warp_specialize, "range: warp_specialize")


class static_range:
    """``for i in ml.static_range(start, stop, step)``: unrolled at compile time; all three are constants."""

    __slots__ = ("values",)

    if TYPE_CHECKING:  # for checkers of kernel code: the frontend reads the object itself

        def __iter__(self) -> Iterator[Any]: ...

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        start = 0 if arg2 is None else const_int(arg1, "static_range: start")
        stop = const_int(arg1 if arg2 is None else arg2, "static_range: stop")
        by = 1 if step is None else const_int(step, "static_range: step")
        if by == 0:
            fail("bad-argument", "static_range: the step is 0")
        out: list[int] = []
        i = start
        while (i < stop) if by > 0 else (i > stop):
            out.append(i)
            i += by
        self.values = tuple(out)


def _counts(x: tensor, values: Any, what: str) -> tuple[Value, tuple[int, ...]]:
    if not isinstance(x, tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        fail("type-mismatch", f"{what} takes a run-time value, not {explain(x)}")
    values = unwrap(values)
    items = values if is_tuple(values) else (values,)
    out = tuple(const_int(v, what) for v in items)
    rank = max(1, len(x.shape))
    if len(out) == 1 and rank > 1:
        out = (1,) * (rank - 1) + out
    if len(out) != rank or any(v < 1 for v in out):
        fail("bad-argument", f"{what}: {list(out)} for {x.type}; one positive number a dimension is needed")
    return x.value, out


@method
def multiple_of(input: tensor, values: Any) -> tensor:
    """Promise that `input` is a multiple of `values` (one number, or one a dimension); `input` itself."""
    b = current_builder("multiple_of")
    v, n = _counts(input, values, "multiple_of")
    return tensor(b.insert(HintOp(v, n, loc=b.loc)).result)


@method
def max_contiguous(input: tensor, values: Any) -> tensor:
    """Promise that runs of `values` neighbours in `input` count up by one; `input` itself."""
    b = current_builder("max_contiguous")
    v, n = _counts(input, values, "max_contiguous")
    return tensor(b.insert(HintOp(v, (), n, loc=b.loc)).result)


@method
def max_constancy(input: tensor, values: Any) -> tensor:
    """Promise that runs of `values` neighbours in `input` are equal; `input` itself."""
    b = current_builder("max_constancy")
    v, n = _counts(input, values, "max_constancy")
    return tensor(b.insert(HintOp(v, (), (), n, loc=b.loc)).result)


def assume(cond: Any) -> None:
    """Promise that a scalar condition holds. A constant False is refused; a run-time condition only informs."""
    cond = unwrap(cond)
    if isinstance(cond, tensor):
        if isinstance(cond.type, TensorType):
            fail("tile-truth", f"assume takes a scalar condition, not {cond.type}")
        return
    if not cond:
        fail("static-assert", "assume: the condition is False")


def condition(arg0: Any, disable_licm: bool = False) -> Any:
    """``while ml.condition(x, ...)``: the condition itself. The rest is accepted for Triton's sake: nothing is moved out of loops here."""
    current_builder("condition")
    return arg0
