"""Wrong kernels: each gives exactly one error, with this code, at this line and column, saying this.

The line at fault ends in ``# ! code @ where | what``: `where` is the text at the error's column, `what` a part of the
message.
"""

# fmt: off
# ruff: noqa: E731, F821, F841, C416, RUF015
from __future__ import annotations

import inspect
import math
import os
import random
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.frontend.error_codes import ERROR_CODES
from tests.frontend.kernels import FLOAT, INT, P16, P32, build, kernel

SETTINGS = [1, 2]
WRONG: list[tuple[Any, dict[str, Any]]] = []


def wrong(**signature: Any) -> Any:
    def add(fn: Any) -> Any:
        WRONG.append((fn, signature))
        return fn

    return add


@dataclass(frozen=True)
class Frozen:
    a: Any


@dataclass
class State:
    a: Any


class Pair(NamedTuple):
    a: Any
    b: Any


@kernel
def needs_two(a, b: ml.constexpr):
    return a + b


@kernel
def endless(n):
    return endless(n)


def plain(x):
    return x + 1


def raises(x):
    raise KeyError(x)


# Names.


@wrong(x=P32)
def undefined_name(x):
    ml.store(x, lenght)  # ! undefined-name @ lenght | the name lenght is not defined


@wrong(x=P32)
def used_before_assignment(x):
    ml.store(x, y)  # ! undefined-name @ y) | y is used before it is assigned
    y = 1.0


@wrong(x=P32, n=INT)
def assigned_on_one_side(x, n):
    if n > 0:
        y = 1.0
    ml.store(x, y)  # ! maybe-undefined @ y) | y is assigned on one side of a run-time branch only


@wrong(x=P32, n=INT)
def assigned_in_loop_only(x, n):
    for i in range(n):
        y = i
    ml.store(x, y)  # ! maybe-undefined @ y) | y is assigned only inside a loop


@wrong(x=P32)
def captures_a_list(x):
    ml.store(x, SETTINGS[0])  # ! captured-global @ SETTINGS | SETTINGS is a list from outside the kernel


@wrong(x=P32)
def unknown_language_name(x):
    y = ml.laod(x)  # ! unknown-attribute @ ml.laod | has no attribute laod
    ml.store(x, y)


@wrong(x=P32)
def unknown_method(x):
    y = ml.load(x).summ(0)  # ! unknown-attribute @ ml.load(x).summ | an f32 has no attribute summ
    ml.store(x, y)


@wrong(x=P32)
def not_there_yet(x):
    ml.dot_scaled(x, 16)  # ! not-yet @ ml.dot_scaled | ml.dot_scaled: it is not there yet


# Types.


@wrong(x=P32, n=INT, f=FLOAT)
def carried_type(x, n, f):
    a = n
    for _ in range(n):
        a = a * f  # ! carried-type @ a = | a is i32 before the loop and f32 after a pass through it
    ml.store(x, a)


@wrong(x=P32, n=INT)
def carried_shape(x, n):
    a = ml.load(x)
    while n > 0:
        a = a + ml.arange(0, 16)  # ! carried-type @ a = | a is f32 before the loop and tensor<16xf32>
        n -= 1
    ml.store(x + ml.arange(0, 16), a)


@wrong(x=P32, n=INT)
def branch_type(x, n):
    if n > 0:
        a = n
    else:
        a = ml.arange(0, 16)
    ml.store(x, a)  # ! branch-type @ a) | a is i32 on one side of a run-time branch and tensor<16xi32> on the other


@wrong(x=P32, n=INT)
def conditional_expression_types(x, n):
    ml.store(x, n if n > 0 else ml.arange(0, 4))  # ! branch-type @ n if | the two ways give i32 and tensor<4xi32>


@wrong(x=P32)
def float_bits(x):
    y = ml.load(x) & 1  # ! type-mismatch @ ml.load | & takes integers
    ml.store(x, y)


@wrong(x=P32)
def floor_of_floats(x):
    ml.store(x, ml.load(x) // 2)  # ! type-mismatch @ ml.load(x) // | // takes integers


@wrong(x=P32)
def none_in_arithmetic(x):
    ml.store(x, ml.load(x) + None)  # ! type-mismatch @ ml.load(x) + | + does not take None


@wrong(x=P32, y=P16)
def pointer_sum(x, y):
    ml.store(x + y, 1.0)  # ! pointer-arithmetic @ x + y | a pointer plus a pointer


@wrong(x=P32, f=FLOAT)
def float_offset(x, f):
    ml.store(x + f, 1.0)  # ! pointer-arithmetic @ x + f | the offset is not an integer


@wrong(x=P32, n=INT)
def load_of_integer(x, n):
    ml.store(x, ml.load(n))  # ! not-a-pointer @ ml.load | load takes a pointer or a tile of pointers, not an i32


@wrong(x=P32, n=INT)
def integer_mask(x, n):
    ml.store(x, 1.0, mask=n)  # ! bad-mask @ ml.store | store: the mask is i32; it must be i1


@wrong(x=P32, n=INT)
def literal_out_of_range(x, n):
    ml.store(x, n + 2**40)  # ! literal-range @ n + | 1099511627776 does not fit i32


@wrong(x=P32)
def bad_cast(x):
    y = (x + 0).to(ml.float32)  # ! bad-cast @ (x + 0) | a pointer converts to int64 or uint64
    ml.store(x, y)


@wrong(x=P32, n=INT, m=INT)
def mixed_signs(x, n, m):
    ml.store(x, n.to(ml.uint32) // m)  # ! signedness @ n.to | one is signed, the other is not


@wrong(x=P32)
def fp8_arithmetic(x):
    y = ml.load(x).to(ml.float8e5)
    ml.store(x, y + y)  # ! fp8-arithmetic @ y + y | + is not defined on f8e5m2


@wrong(x=P32, n=INT)
def division_by_zero(x, n):
    ml.store(x, n % 0)  # ! division-by-zero @ n % 0 | % by the constant 0


@wrong(x=P32)
def constant_division_by_zero(x):
    ml.store(x, 1 // 0)  # ! division-by-zero @ 1 // 0 | // by the constant 0


@wrong(x=P32, f=FLOAT)
def float_range(x, f):
    for _ in range(f):  # ! range-type @ range(f) | the stop of a range is an integer scalar, not f32
        ml.store(x, 1.0)


# Shapes.


@wrong(x=P32)
def shapes_do_not_broadcast(x):
    a = ml.arange(0, 16) + ml.arange(0, 32)  # ! shape-mismatch @ ml.arange(0, 16) | shapes [16] and [32] do not broadcast
    ml.store(x + a, 1.0)


@wrong(x=P16)
def dot_shapes(x):
    a = ml.zeros((16, 32), ml.float16)
    c = ml.dot(a, a)  # ! shape-mismatch @ ml.dot | dot: K is 32 in tensor<16x32xf16> and 16
    ml.store(x, ml.sum(c))


@wrong(x=P16)
def dot_types(x):
    a = ml.zeros((16, 16), ml.float16)
    c = ml.dot(a, a.to(ml.bfloat16))  # ! type-mismatch @ ml.dot | dot of f16 and bf16
    ml.store(x, ml.sum(c))


@wrong(x=P32)
def reshape_count(x):
    ml.store(x, ml.arange(0, 16).reshape(3, 5).sum())  # ! shape-mismatch @ ml.arange(0, 16).reshape(3, 5) | the shape [3, 5] has 15


@wrong(x=P32)
def empty_range(x):
    ml.store(x + ml.arange(4, 4), 1.0)  # ! bad-shape @ ml.arange | arange(4, 4) is empty


@wrong(x=P32)
def axis_out_of_range(x):
    ml.store(x, ml.sum(ml.arange(0, 16), axis=1))  # ! bad-axis @ ml.sum | sum: axis 1 of a tile with 1 dimensions


@wrong(x=P32)
def tile_index(x):
    ml.store(x, ml.arange(0, 16)[3])  # ! bad-index @ ml.arange(0, 16)[3] | only ':' and None index a tile


@wrong(x=P32)
def pointer_shape(x):
    ml.store(x, x.shape[0])  # ! bad-index @ x.shape | tuple index out of range


@wrong(x=P32)
def store_tile_through_scalar(x):
    ml.store(x, ml.arange(0, 16))  # ! shape-mismatch @ ml.store | a scalar pointer cannot take a value of shape [16]


@wrong(x=P32)
def store_through_fewer_pointers(x):
    r = ml.arange(0, 16)
    ml.store(x + r[:, None], r[:, None] + r[None, :])  # ! shape-mismatch @ ml.store | pointers of shape [16, 1] cannot take a value of shape [16, 16]


@wrong(x=P32)
def pointer_index(x):
    ml.store(x, x[3])  # ! bad-index @ x[3] | a pointer is not indexed


@wrong(x=P32)
def sum_of_scalar(x):
    ml.store(x, ml.sum(ml.load(x)))  # ! rank @ ml.sum | sum takes a tile, not the scalar f32


# Conditions.


@wrong(x=P32)
def tile_condition(x):
    if ml.arange(0, 16) > 3:  # ! tile-truth @ if | if needs one truth value, not the tensor<16xi1>
        ml.store(x, 1.0)


@wrong(x=P32)
def tile_conditional_expression(x):
    m = ml.arange(0, 16) > 3
    ml.store(x, 1.0 if m else 2.0)  # ! tile-truth @ m else | a conditional expression needs one truth value


@wrong(x=P32)
def tile_and(x):
    m = ml.arange(0, 16)
    if m > 1 and m < 5:  # ! tile-truth @ if | if needs one truth value, not the tensor<16xi1>
        ml.store(x + m, 1.0)


# Constants.


@wrong(x=P32, n=INT)
def runtime_size(x, n):
    ml.store(x + ml.arange(0, n), 1.0)  # ! constexpr-needed @ ml.arange | arange: end must be a compile-time integer, not an i32


@wrong(x=P32, n=INT)
def static_assert_runtime(x, n):
    ml.static_assert(n > 0)  # ! constexpr-needed @ ml.static_assert | static_assert needs a constant


@wrong(x=P32, n=4)
def static_assert_fails(x, n):
    ml.static_assert(n == 5, f"n is {n}")  # ! static-assert @ ml.static_assert | static assertion failed: n is 4


@wrong(x=P32, n=4)
def assert_fails(x, n):
    assert n > 4, "too small"  # ! static-assert @ assert | assertion failed: too small


@wrong(x=P32, n=INT)
def constexpr_of_runtime(x, n):
    size = ml.constexpr((n, 4))  # ! constexpr-needed @ ml.constexpr | ml.constexpr() of a tuple
    ml.store(x + size[1], 1.0)


@wrong(x=P32, n=INT)
def runtime_fstring(x, n):
    ml.device_print(f"n is {n}")  # ! constexpr-needed @ n} | an f-string shows constants only


@wrong(x=P32, n=INT)
def dynamic_tuple_index(x, n):
    t = (1.0, 2.0)
    ml.store(x, t[n])  # ! constexpr-needed @ t[n] | a tuple is indexed by a run-time value


# Calls.


@wrong(x=P32)
def unknown_keyword(x):
    ml.store(x, 1.0, msk=True)  # ! bad-call @ ml.store | store: no parameter is named msk


@wrong(x=P32)
def missing_argument(x):
    ml.store(x, needs_two(1.0))  # ! bad-call @ needs_two | needs_two: the argument b is missing


@wrong(x=P32)
def too_many_arguments(x):
    ml.program_id(0, 1)  # ! bad-call @ ml.program_id | program_id: 2 positional arguments, it takes 1


@wrong(x=P32)
def calls_plain_python(x):
    ml.store(x, plain(ml.load(x)))  # ! unsupported-call @ plain | plain is a Python function, called with an f32


@wrong(x=P32)
def calls_math_on_tiles(x):
    ml.store(x, math.exp(ml.load(x)))  # ! unsupported-call @ math.exp | exp is a Python function, called with an f32


@wrong(x=P32)
def counts_too_far(x):
    ml.store(x + ml.arange(0, 100_000_000), 1.0)  # ! bad-shape @ ml.arange | has 100000000 elements; 1048576 is the most


@wrong(x=P32)
def fills_too_much(x):
    ml.store(x, ml.sum(ml.zeros((4096, 4096), ml.float32)))  # ! bad-shape @ ml.zeros | shape [4096, 4096] has 16777216 elements


@wrong(x=P32)
def broadcasts_too_far(x):
    i = ml.arange(0, 2048)
    ml.store(x, ml.sum(i[:, None] * i[None, :]))  # ! bad-shape @ i[:, None] * | a tile of shape [2048, 2048]


@wrong(x=P32)
def opens_a_file(x):
    with open(__file__) as file:  # ! unsupported-call @ open | open() cannot be called in a kernel
        ml.store(x, 1.0)


@wrong(x=P32)
def reads_the_clock(x):
    ml.store(x, time.time())  # ! unsupported-call @ time.time | time() cannot be called in a kernel


@wrong(x=P32)
def draws_a_number(x):
    ml.store(x, random.random())  # ! unsupported-call @ random.random | random() cannot be called in a kernel


@wrong(x=P32)
def runs_a_command(x):
    os.system("true")  # ! unsupported-call @ os.system | system() cannot be called in a kernel


@wrong(x=P32)
def prints(x):
    print(ml.load(x))  # ! bad-call @ print | print() in a kernel takes a prefix


@wrong(x=P32)
def python_raises(x):
    ml.store(x, raises(3))  # ! python-call @ raises | raises raised KeyError: 3


@wrong(x=P32)
def not_a_function(x):
    n = 3
    ml.store(x, n(4))  # ! not-callable @ n(4) | 3 is not a function


@wrong(x=P32, n=INT)
def int_of_runtime(x, n):
    ml.store(x, float(n))  # ! constexpr-needed @ float | float() needs a constant, not an i32


@wrong(x=P32)
def bad_choice(x):
    ml.store(x, ml.load(x, cache_modifier=".xx"))  # ! bad-argument @ ml.load | load: cache_modifier is '.xx'


@wrong(x=P32)
def bad_grid_axis(x):
    ml.store(x, ml.program_id(3))  # ! bad-axis @ ml.program_id | program_id: axis 3


# Statements.


@wrong(x=P32)
def returns_a_value(x):
    return x  # ! kernel-returns @ return | a kernel that is launched returns nothing


@wrong(x=P32)
def uses_try(x):
    try:  # ! unsupported-syntax @ try | try cannot be used in a kernel
        ml.store(x, 1.0)
    finally:
        pass


@wrong(x=P32)
def lambda_of_two(x):
    f = lambda a, b: a
    ml.store(x, f(1.0))  # ! bad-call @ f(1.0) | <lambda>: the argument b is missing


@wrong(x=P32)
def undefined_in_lambda(x):
    f = lambda a: a + nowhere  # ! undefined-name @ nowhere | the name nowhere is not defined
    ml.store(x, f(1.0))


@wrong(x=P32)
def decorated_inside(x):
    @kernel  # ! unsupported-syntax @ kernel | a decorator on a function inside a kernel
    def inner():
        return 1.0

    ml.store(x, inner())


@wrong(x=P32)
def nonlocal_inside(x):
    n = 1.0

    def inner():
        nonlocal n  # ! unsupported-syntax @ nonlocal | nonlocal cannot be used in a kernel
        n = 2.0

    inner()
    ml.store(x, n)


@wrong(x=P32)
def calls_itself_inside(x):
    def inner():
        return inner()  # ! recursion @ inner() | inner calls itself without end

    ml.store(x, inner())


@wrong(x=P32)
def assigned_later(x):
    f = lambda a: a + later  # ! undefined-name @ later | later is used before it is assigned
    ml.store(x, f(1.0))
    later = 2.0


@wrong(x=P32)
def deletes(x):
    y = 1
    del y  # ! unsupported-syntax @ del | del cannot be used in a kernel
    ml.store(x, 1.0)


@wrong(x=P32)
def comprehension(x):
    ml.store(x, [i for i in range(3) if i][0])  # ! unsupported-syntax @ [i for | a comprehension has one for, over single items, and no if


@wrong(x=P32, n=INT)
def comprehension_at_run_time(x, n):
    ml.store(x, [i for i in range(n)][0])  # ! bad-iteration @ range(n) | cannot be iterated or unpacked at compile time


@wrong(x=P32)
def starred_target(x):
    a, *b = 1, 2, 3  # ! unsupported-syntax @ *b | a starred target
    ml.store(x, a)


@wrong(x=P32)
def unpack_count(x):
    a, b = 1, 2, 3  # ! unpack @ a, b | 3 values for 2 names
    ml.store(x, a + b)


@wrong(x=P32)
def unpack_tile(x):
    a, b = ml.load(x)  # ! bad-iteration @ a, b | an f32 cannot be iterated or unpacked
    ml.store(x, a + b)


@wrong(x=P32)
def element_assignment(x):
    t = ml.arange(0, 4)
    t[0] = 1  # ! unsupported-syntax @ t[0] | assignment to an element


@wrong(x=P32)
def frozen_record(x):
    s = Frozen(1.0)
    s.a = 2.0  # ! bad-assignment @ s.a | Frozen is a frozen dataclass
    ml.store(x, s.a)


@wrong(x=P32, n=INT)
def aliased_record(x, n):
    s = State(1.0)
    t = s
    if n > 0:
        s = State(2.0)
    s.a = 3.0  # ! aliased-record @ s.a | a record that may be, or not, the one that another name holds
    ml.store(x, t.a)


@wrong(x=P32, n=INT)
def aliased_record_in_a_loop(x, n):
    s = State(1.0)
    t = s
    for _ in range(n):
        s.a = 3.0  # ! aliased-record @ s.a | a record that may be, or not, the one that another name holds
        s = State(s.a)
    ml.store(x, t.a + s.a)


@wrong(x=P32)
def named_tuple_field(x):
    s = Pair(1.0, 2.0)
    s.a = 2.0  # ! bad-assignment @ s.a | fields of a tuple cannot be assigned
    ml.store(x, s.a)


@wrong(x=P32)
def unknown_field(x):
    s = State(1.0)
    s.b = 2.0  # ! unknown-attribute @ s.b | State has no field b


@wrong(x=P32, n=INT)
def break_of_unrolled_loop(x, n):
    for i in ml.static_range(4):
        if n > i:
            break  # ! dynamic-exit-of-unrolled-loop @ break | break under a run-time condition inside a loop that is unrolled
        ml.store(x + i, 1.0)


@wrong(x=P32, n=INT)
def loop_else(x, n):
    for i in range(n):
        if i > 3:
            break
    else:
        ml.store(x, 1.0)  # ! unsupported-syntax @ ml.store | else on a run-time loop


@wrong(x=P32, n=INT)
def recursion(x, n):
    ml.store(x, endless(n))


@kernel
def bad_combine(a, b):
    return a > b


@wrong(x=P32)
def combine_type(x):
    v = ml.load(x + ml.arange(0, 8))
    ml.store(x, ml.reduce(v, 0, bad_combine))  # ! combine-type @ ml.reduce | the combine function gives i1 for f32


def expectation(fn: Any) -> tuple[int, int, str, str] | None:
    """Line, column, code, text from the marker in a kernel's source; None without a marker."""
    lines, first = inspect.getsourcelines(fn)
    for i, line in enumerate(lines):
        if "# ! " in line:
            code, rest = line.split("# ! ")[1].strip().split(" @ ")
            where, what = rest.split(" | ")
            return first + i, line.split("# ! ")[0].index(where) + 1, code, what
    return None


MARKED = [(fn, sig) for fn, sig in WRONG if expectation(fn)]


@pytest.mark.parametrize(("fn", "signature"), MARKED, ids=[fn.__name__ for fn, _ in MARKED])
def test_wrong_kernel(fn: Any, signature: dict[str, Any]) -> None:
    expected = expectation(fn)
    assert expected is not None
    line, column, code, what = expected
    with pytest.raises(CompilationError) as caught:
        build(fn, **signature)
    error = caught.value
    assert (error.code, error.loc.line, error.loc.col) == (code, line, column), str(error)
    assert error.loc.file == __file__
    assert what in error.message
    shown = str(error)
    assert shown.startswith(f"{__file__}:{line}:{column}: error[{code}]: ")
    assert "Traceback" not in shown


def test_recursion_is_refused_where_it_calls_itself() -> None:
    with pytest.raises(CompilationError) as caught:
        build(recursion, x=P32, n=INT)
    assert caught.value.code == "recursion"
    assert caught.value.loc.call_site is not None


def test_enough_kernels_and_codes() -> None:
    codes = {e[2] for fn, _ in MARKED if (e := expectation(fn))}
    assert len(MARKED) >= 40
    assert len(codes) >= 25


def test_every_code_is_listed() -> None:
    assert {e[2] for fn, _ in MARKED if (e := expectation(fn))} <= set(ERROR_CODES)


def test_a_run_time_value_for_a_callees_constant_is_refused_where_it_must_be_one() -> None:
    @kernel
    def filled(size: ml.constexpr):
        return ml.zeros((size,), ml.float32)

    def outer(x, n):
        ml.store(x, ml.sum(filled(n)))

    with pytest.raises(CompilationError) as caught:
        build(outer, x=P32, n=INT)
    assert caught.value.code == "constexpr-needed"
    assert "called from here" in str(caught.value)


def test_an_error_in_a_callee_names_the_call() -> None:
    @kernel
    def inner(p):
        return ml.load(p + undefined)

    def outer(x):
        ml.store(x, inner(x))

    with pytest.raises(CompilationError) as caught:
        build(outer, x=P32)
    shown = str(caught.value)
    assert "error[undefined-name]" in shown
    assert "note: called from here\n        ml.store(x, inner(x))" in shown or "called from here\n    ml.store(x, inner(x))" in shown
