"""Branches, loops, early exits, records: where AST front-ends go wrong, by the structure of the IR they give."""

# ruff: noqa: RET508
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.ir.ops.control import ForOp, IfOp, WhileOp
from mimw.ir.types import F32, I32, I64
from tests.frontend.kernels import FLOAT, INT, P32, PI, Arg, build, count, kernel, ops, text


@dataclass
class Acc:
    total: Any
    steps: Any


@dataclass
class Outer:
    inner: Any
    scale: Any


class Pair(NamedTuple):
    a: Any
    b: Any


def only(module, cls):
    found = [op for op in module.function.walk() if isinstance(op, cls)]
    assert len(found) == 1, text(module)
    return found[0]


# Carried types.


def test_i32_widens_to_i64_around_a_loop():
    def k(x, n, s):
        i = 0
        for _ in range(n):
            i += s
        ml.store(x + i, 1.0)

    loop = only(build(k, x=P32, n=INT, s=Arg(I64)), ForOp)
    assert [r.type for r in loop.results] == [I64]


def test_a_stride_specialised_to_one_swaps_with_a_run_time_stride():
    def k(x, n, s, one):
        a, b = s, one
        for _ in range(n):
            a, b = b, a
        ml.store(x + a, 1.0)

    loop = only(build(k, x=P32, n=INT, s=Arg(I64), one=1), ForOp)
    assert [r.type for r in loop.results] == [I64, I64]


def test_a_constant_start_takes_the_type_of_the_tile():
    def k(x, n):
        acc = 0
        for i in range(n):
            acc += ml.load(x + i * 16 + ml.arange(0, 16))
        ml.store(x + ml.arange(0, 16), acc)

    loop = only(build(k, x=P32, n=INT), ForOp)
    assert str(loop.results[0].type) == "tensor<16xf32>"


def test_an_inexact_constant_start_is_refused():
    def k(x, n):
        acc = 0.5
        for i in range(n):
            acc = ml.load(x + i).to(ml.int32)
        ml.store(x, acc)

    with pytest.raises(CompilationError) as caught:
        build(k, x=P32, n=INT)
    assert caught.value.code == "carried-type"
    assert "acc is the constant 0.5 before the loop and i32" in caught.value.message


def test_f32_does_not_narrow_to_f16():
    def k(x, n):
        v = ml.load(x).to(ml.float16)
        for i in range(n):
            v = v + ml.load(x + i)
        ml.store(x, v)

    loop = only(build(k, x=P32, n=INT), ForOp)
    assert [r.type for r in loop.results] == [F32]


def test_a_temporary_that_changes_type_is_no_fault():
    def k(x, n):
        t = ml.load(x)
        ml.store(x + 1, t)
        for i in range(n):
            t = ml.arange(0, 16)
            ml.store(x + t, i)

    m = build(k, x=P32, n=INT)
    assert only(m, ForOp).results == []


def test_a_temporary_that_changed_type_is_refused_when_read():
    def k(x, n):
        t = ml.load(x)
        for i in range(n):
            t = ml.arange(0, 16)
            ml.store(x + t, i)
        ml.store(x, t)

    with pytest.raises(CompilationError) as caught:
        build(k, x=P32, n=INT)
    error = caught.value
    assert error.code == "carried-type"
    assert "t is f32 before the loop and tensor<16xi32> after a pass" in error.message
    assert error.notes[0].loc is not None


def test_both_lines_are_told_when_a_branch_changes_a_type():
    def k(x, n):
        if n > 0:
            t = 1.0
        else:
            t = ml.arange(0, 4)
        ml.store(x, t)

    with pytest.raises(CompilationError) as caught:
        build(k, x=P32, n=INT)
    lines = [n.loc.line for n in caught.value.notes if n.loc]
    assert lines[1] - lines[0] == 2


def test_constants_stay_constants_when_a_loop_only_reads_them():
    def k(x, n, B: ml.constexpr):
        for i in range(n):
            ml.store(x + i * B + ml.arange(0, B), 1.0)

    assert only(build(k, x=P32, n=INT, B=31), ForOp).results == []


def test_a_constant_that_a_loop_sets_to_the_same_value_stays_one():
    def k(x, n):
        size = 16
        for i in range(n):
            size = 16
            ml.store(x + i * size, 1.0)
        ml.store(x + ml.arange(0, size), 2.0)

    assert only(build(k, x=P32, n=INT), ForOp).results == []


def test_numbers_out_of_i32_are_carried_as_i64():
    def k(x, n):
        i = 0
        if n > 1:
            i = 2**40
        ml.store(x + i, 1.0)

    assert only(build(k, x=P32, n=INT), IfOp).types == (I64,)


def test_int_and_float_constants_merge_to_f32():
    def k(x, n):
        ml.store(x, 1 if n > 1 else 0.5)

    assert only(build(k, x=P32, n=INT), IfOp).types == (F32,)


# Exits.


def test_return_in_a_branch_of_the_kernel():
    def k(x, n):
        if n > 3:
            return
        ml.store(x, 1.0)

    m = build(k, x=P32, n=INT)
    assert [op.name for op in only(m, IfOp).then.block.ops] == ["control.return"]


def test_return_in_a_nested_loop_of_the_kernel():
    def k(x, n):
        for i in range(n):
            while n > i:
                if ml.load(x + i) > 0:
                    return
                n -= 1
        ml.store(x, 1.0)

    assert count(build(k, x=P32, n=INT))["control.return"] == 2


@kernel
def sign(v):
    if v > 0:
        return 1
    if v < 0:
        return -1
    return 0


def test_return_from_branches_of_an_inlined_kernel():
    def k(x):
        ml.store(x, sign(ml.load(x)))

    m = build(k, x=P32)
    inlined = ops(m, "control.inlined")
    assert len(inlined) == 1 and inlined[0].attrs["callee"] == "sign"
    assert [r.type for r in inlined[0].results] == [I32]
    assert count(m)["control.return"] == 4


@kernel
def first_positive(x, n):
    for i in range(n):
        v = ml.load(x + i)
        if v > 0:
            return i, v
    return -1, 0.0


def test_return_from_a_loop_of_an_inlined_kernel():
    def k(x, n):
        i, v = first_positive(x, n)
        ml.store(x + i, v)

    inlined = ops(build(k, x=P32, n=INT), "control.inlined")[0]
    assert [r.type for r in inlined.results] == [I32, F32]


def test_no_region_when_the_callee_returns_at_its_end():
    @kernel
    def double(v, times: ml.constexpr):
        if times == 0:
            return v
        return double(v + v, times - 1)

    def k(x):
        ml.store(x, double(ml.load(x), 3))

    m = build(k, x=P32)
    assert count(m)["control.inlined"] == 0
    assert count(m)["arith.add"] == 3


def test_return_types_that_do_not_merge_are_told_with_both_lines():
    @kernel
    def mixed(v):
        if v > 0:
            return v
        return ml.arange(0, 4)

    def k(x):
        ml.store(x, mixed(ml.load(x)))

    with pytest.raises(CompilationError) as caught:
        build(k, x=P32)
    assert caught.value.code == "branch-type"
    assert "f32 and tensor<4xi32>" in caught.value.message


def test_break_and_continue_carry_the_values_of_their_place():
    def k(x, n):
        found = -1
        total = 0.0
        for i in range(n):
            v = ml.load(x + i)
            if v < 0:
                continue
            total += v
            if total > 10:
                found = i
                break
        ml.store(x + found, total)

    m = build(k, x=P32, n=INT)
    loop = only(m, ForOp)
    assert [r.type for r in loop.results] == [I32, F32]
    assert len(ops(m, "control.break")[0].operands) == 2
    assert ops(m, "control.continue")[0].operands == loop.body.block.args[1:]


def test_code_after_an_if_that_leaves_on_both_sides_is_not_traced():
    def k(x, n):
        for i in range(n):
            if i > 3:
                break
            else:
                continue
            undefined_function(x)  # noqa: F821
        ml.store(x, 1.0)

    assert count(build(k, x=P32, n=INT))["control.unreachable"] == 1


def test_while_true_leaves_by_break():
    def k(x, n):
        i = 0
        while True:
            i += 1
            if i > n:
                break
        ml.store(x, i)

    assert [r.type for r in only(build(k, x=P32, n=INT), WhileOp).results] == [I32]


def test_while_true_without_break_ends_the_kernel():
    def k(x, n):
        while True:
            if ml.load(x) > 0:
                return
        ml.store(x, 1.0)

    m = build(k, x=P32, n=INT)
    assert m.function.block.ops[-1].name == "control.unreachable"
    assert count(m)["memory.store"] == 0


def test_static_break_and_continue_of_an_unrolled_loop():
    def k(x):
        for i in ml.static_range(10):
            if i == 1:
                continue
            if i == 4:
                break
            ml.store(x + i, 1.0)

    m = build(k, x=P32)
    assert count(m)["memory.store"] == 3
    assert count(m)["control.for"] == 0


def test_loop_that_never_runs_is_not_traced():
    def k(x):
        for i in range(3, 3):
            undefined_function(i)  # noqa: F821
        while False:
            undefined_function(x)  # noqa: F821
        ml.store(x, 1.0)

    assert count(build(k, x=P32)) == {"arith.constant": 1, "memory.store": 1, "control.return": 1}


# The loop variable.


def test_the_loop_variable_is_carried_only_when_read_after():
    def unread(x, n):
        for i in range(n):
            ml.store(x + i, 1.0)

    def read(x, n):
        for i in range(n):
            ml.store(x + i, 1.0)
        ml.store(x, i)

    assert only(build(unread, x=P32, n=INT), ForOp).results == []
    loop = only(build(read, x=P32, n=INT), ForOp)
    assert [r.type for r in loop.results] == [I32]
    assert ops(build(read, x=P32, n=INT), "control.yield")[0].operands[0].name == "i"


def test_a_zero_trip_loop_leaves_an_earlier_value_of_its_variable():
    def k(x, n):
        i = 7
        for i in range(n):
            ml.store(x + i, 1.0)
        ml.store(x, i)

    loop = only(build(k, x=P32, n=INT), ForOp)
    init = loop.inits[0].defining_op
    assert init is not None and init.attrs["value"] == 7


def test_one_name_for_two_loops():
    def k(x, n):
        for i in range(n):
            ml.store(x + i, 1.0)
        for i in range(n):
            for i in range(4):
                ml.store(x + i, 2.0)
            ml.store(x - i, i)

    m = build(k, x=P32, n=INT)
    loops = ops(m, "control.for")
    assert [len(op.results) for op in loops] == [0, 0, 1]


def test_a_loop_variable_that_the_body_changes():
    def k(x, n):
        for i in range(n):
            i = i * 2
            ml.store(x + i, 1.0)
        ml.store(x, i)

    m = build(k, x=P32, n=INT)
    assert ops(m, "control.yield")[0].operands[0].defining_op.name == "arith.mul"  # type: ignore[union-attr]


# Records.


@kernel
def bump(acc, v):
    acc.total += v
    acc.steps += 1


def test_fields_assigned_in_a_branch_keep_their_value():
    def k(x, n):
        acc = Acc(0.0, 0)
        if n > 0:
            acc.total = ml.load(x)
        else:
            acc.steps = n
        ml.store(x + acc.steps, acc.total)

    assert only(build(k, x=P32, n=INT), IfOp).types == (F32, I32)


def test_fields_assigned_by_a_callee_in_a_loop_keep_their_value():
    def k(x, n):
        acc = Acc(0.0, 0)
        for i in range(n):
            bump(acc, ml.load(x + i))
        ml.store(x + acc.steps, acc.total)

    assert [r.type for r in only(build(k, x=P32, n=INT), ForOp).results] == [F32, I32]


def test_fields_assigned_before_an_early_return_of_a_callee():
    @kernel
    def step(acc, v):
        acc.steps += 1
        if v < 0:
            acc.total = 0.0
            return False
        acc.total += v
        return True

    def k(x, n):
        acc = Acc(0.0, 0)
        while step(acc, ml.load(x + n)):
            n -= 1
        ml.store(x, acc.total)

    def loop_body(x, n):
        acc = Acc(0.0, 0)
        for i in range(n):
            if not step(acc, ml.load(x + i)):
                break
        ml.store(x + acc.steps, acc.total)

    loop = only(build(loop_body, x=P32, n=INT), ForOp)
    assert [r.type for r in loop.results] == [F32, I32]
    with pytest.raises(CompilationError) as caught:
        build(k, x=P32, n=INT)
    assert caught.value.code == "unsupported-syntax"
    assert caught.value.message == "the condition of a while assigns acc.total"


def test_nested_records():
    def k(x, n):
        s = Outer(Acc(0.0, 0), 2.0)
        for i in range(n):
            if i > 2:
                s.inner.total += ml.load(x + i) * s.scale
        ml.store(x, s.inner.total)

    assert [r.type for r in only(build(k, x=P32, n=INT), ForOp).results] == [F32]


def test_a_record_replaced_in_a_loop():
    def k(x, n):
        s = Acc(0.0, 0)
        for i in range(n):
            s = Acc(s.total + ml.load(x + i), s.steps + 1)
        ml.store(x + s.steps, s.total)

    assert [r.type for r in only(build(k, x=P32, n=INT), ForOp).results] == [F32, I32]


def test_a_record_replaced_on_one_side_and_changed_on_the_other():
    def k(x, n):
        s = Acc(1.0, 2)
        if n > 0:
            s = Acc(ml.load(x), 3)
        else:
            s.total = 5.0
        ml.store(x + s.steps, s.total)

    m = build(k, x=P32, n=INT)
    branch = only(m, IfOp)
    assert branch.types == (F32, I32)
    values = [v.defining_op.attrs["value"] for v in branch.orelse.block.ops[-1].operands]  # type: ignore[union-attr]
    assert values == [5.0, 2]


def test_two_names_for_one_record():
    def k(x, n):
        s = Acc(0.0, 0)
        t = s
        if n > 0:
            t.total = ml.load(x)
        ml.store(x + 1, s.total)

    m = build(k, x=P32, n=INT)
    assert ops(m, "memory.store")[0].operands[1] is only(m, IfOp).results[0]


def test_named_tuples_and_tuples_are_carried():
    def k(x, n):
        p = Pair(0.0, (1, 2))
        for i in range(n):
            p = Pair(p.a + ml.load(x + i), (p.b[1], p.b[0] + i))
        ml.store(x + p.b[0], p.a)

    assert [r.type for r in only(build(k, x=P32, n=INT), ForOp).results] == [F32, I32, I32]


def test_a_record_with_a_kernel_as_method():
    @dataclass
    class Counter:
        n: Any

        @kernel
        def add(self, k):
            self.n += k
            return self.n

    def k(x):
        c = Counter(1)
        c.add(2)
        ml.store(x + c.add(3), 1.0)

    assert count(build(k, x=P32))["control.inlined"] == 0


# Conditions.


def test_constant_conditions_fold_and_the_dead_side_is_not_traced():
    def k(x, n, flag: ml.constexpr):
        if flag:
            ml.store(x, 1.0)
        else:
            if n > 0:
                if flag is None:
                    undefined_function(x)  # noqa: F821
                else:
                    ml.store(x, 2.0)
            else:
                if not flag:
                    ml.store(x, 3.0)
                else:
                    undefined_function(x)  # noqa: F821

    assert count(build(k, x=P32, n=INT, flag=True))["memory.store"] == 1
    m = build(k, x=P32, n=INT, flag=False)
    assert count(m)["memory.store"] == 2 and count(m)["control.if"] == 1


def test_a_comparison_chain_evaluates_each_operand_once():
    def k(x, y):
        if 0 < ml.load(x) < 3:
            ml.store(y, 1.0)
        if ml.load(x) < ml.load(x + 1) < ml.load(x + 2):
            ml.store(y, 2.0)

    m = build(k, x=P32, y=P32)
    assert count(m)["memory.load"] == 4
    # The last operand is read only where the first comparison held.
    assert len([op for op in ops(m, "control.if")[1].walk() if op.name == "memory.load"]) == 1


def test_a_comparison_chain_on_tiles():
    def k(x, n):
        o = ml.arange(0, 16)
        ml.store(x + o, 1.0, mask=0 <= o < n)

    m = build(k, x=P32, n=INT)
    assert ops(m, "memory.store")[0].operands[2].defining_op.name == "arith.and"  # type: ignore[union-attr]


def test_and_or_do_not_evaluate_what_python_would_not():
    def k(x, n):
        if n > 0 and ml.load(x + n) > 0:
            ml.store(x, 1.0)
        if n > 0 or ml.load(x + n) > 0:
            ml.store(x, 2.0)

    m = build(k, x=P32, n=INT)
    assert all(op.parent is not m.function.block for op in ops(m, "memory.load"))


def test_and_of_cheap_scalars_needs_no_branch():
    def k(x, n, m):
        if n > 0 and m > 0 and not n == m:  # noqa: SIM201
            ml.store(x, 1.0)

    m = build(k, x=P32, n=INT, m=INT)
    assert count(m)["control.if"] == 1 and count(m)["arith.and"] == 2


def test_and_with_constants_folds():
    def k(x, n, flag: ml.constexpr):
        if flag and n > 0:
            ml.store(x, 1.0)
        if not flag or n > 0:
            ml.store(x, 2.0)

    assert count(build(k, x=P32, n=INT, flag=False))["control.if"] == 0
    assert count(build(k, x=P32, n=INT, flag=True))["control.if"] == 2


def test_a_conditional_expression_on_a_run_time_scalar():
    def k(x, n):
        v = ml.load(x) if n > 0 else 0.0
        ml.store(x, v)

    m = build(k, x=P32, n=INT)
    assert only(m, IfOp).types == (F32,)
    assert ops(m, "memory.load")[0].parent is only(m, IfOp).then.block


def test_a_name_that_both_sides_assign():
    def k(x, n):
        if n > 0:
            v = ml.load(x)
        elif n < -5:
            v = 2.0
        else:
            v = 3.0
        ml.store(x, v)

    assert [op.types for op in build(k, x=P32, n=INT).function.walk() if isinstance(op, IfOp)] == [(F32,), (F32,)]


def test_a_name_of_one_side_may_stay_unread():
    def k(x, n):
        if n > 0:
            v = ml.load(x)
            ml.store(x + 1, v)
        ml.store(x, 1.0)

    assert only(build(k, x=P32, n=INT), IfOp).results == []


def test_a_side_that_leaves_does_not_count():
    def k(x, n):
        if n > 0:
            v = ml.load(x)
        else:
            return
        ml.store(x, v)

    assert only(build(k, x=P32, n=INT), IfOp).types == (F32,)


def test_pointer_and_bool_carried():
    def k(x, n):
        p = x
        done = False
        while not done:
            p += 1
            done = ml.load(p) > n
        ml.store(p, 1)

    loop = only(build(k, x=PI, n=INT), WhileOp)
    assert [str(r.type) for r in loop.results] == ["ptr<i32>", "i1"]


def test_range_bounds():
    def k(x, n, m):
        for i in range(n, m, -1):
            ml.store(x + i, 1.0)

    loop = only(build(k, x=P32, n=INT, m=Arg(I64)), ForOp)
    assert loop.lower.type is I64
    assert loop.step.defining_op.attrs["value"] == -1  # type: ignore[union-attr]


def test_range_options_reach_the_op():
    def k(x, n):
        for i in ml.range(0, n, num_stages=4, loop_unroll_factor=2):
            ml.store(x + i, 1.0)

    loop = only(build(k, x=P32, n=INT), ForOp)
    assert (loop.num_stages, loop.unroll) == (4, 2)


def test_float_argument_and_walrus():
    def k(x, f, n):
        if (v := ml.load(x) * f) > n:
            ml.store(x, v)

    assert count(build(k, x=P32, f=FLOAT, n=INT))["memory.load"] == 1


def test_a_constant_start_takes_its_type_through_inner_loops_and_branches():
    def k(x, n):
        acc = 0
        for i in range(n):
            for j in range(i):
                v = ml.load(x + j)
                if v > 0:
                    acc += v
        ml.store(x, acc)

    loops = ops(build(k, x=P32, n=INT), "control.for")
    assert [[r.type for r in op.results] for op in loops] == [[F32], [F32]]


def test_a_derived_integer_and_a_float_do_not_merge_by_themselves():
    def k(x, n):
        acc = 0
        for i in range(n):
            if i > 3:
                acc = acc + 1
            else:
                acc = acc + ml.load(x)
        ml.store(x, acc)

    with pytest.raises(CompilationError) as caught:
        build(k, x=P32, n=INT)
    assert "acc is i32 on one side of a run-time branch and f32 on the other" in caught.value.message
