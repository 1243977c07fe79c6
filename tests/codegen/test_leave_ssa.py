"""Leaving SSA: hand-made graphs whose text is known, and random graphs whose meaning must not change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.codegen.leave_ssa import leave_ssa
from mimw.codegen.machine import (
    Addr,
    Block,
    Edge,
    FlatFunction,
    Function,
    Imm,
    Inst,
    Label,
    LabelRef,
    Operand,
    Reg,
    Symbol,
    Terminator,
    Vec,
    dead_code,
)
from mimw.codegen.ptx.isa import resolve
from mimw.codegen.ptx.module import PtxModule
from mimw.codegen.ptx.parser import parse
from mimw.codegen.ptx.printer import print_module
from mimw.diagnostics import CompilationError, InternalError, Loc

LOC = Loc("kernel.py", 7, 5)


def function(*blocks: Block) -> Function:
    fn = Function("k", [("u64", "out", 8, 8)])
    fn.blocks = list(blocks)
    return fn


def jump(block: Block, *args: Reg | Imm) -> Terminator:
    return Terminator([Edge(block, list(args))], loc=LOC)


def fork(cond: Reg, yes: Edge, no: Edge) -> Terminator:
    return Terminator([yes, no], cond, uniform=True, loc=LOC)


def mov(dst: Reg, value: int) -> Inst:
    return Inst(f"mov.{dst.cls}", [dst, Imm(value)], 1, LOC)


def add(dst: Reg, a: Operand, b: Operand) -> Inst:
    return Inst("add.s32", [dst, a, b], 1, LOC)


def store(value: Operand, offset: int = 0) -> Inst:
    return Inst("st.shared.b32", [Addr(Symbol("smem"), offset), value], 0, LOC)


def less(dst: Reg, a: Operand, b: Operand) -> Inst:
    return Inst("setp.lt.s32", [dst, a, b], 1, LOC)


def text_of(flat: FlatFunction) -> list[str]:
    """The printed body, without declarations and locations."""
    module = PtxModule("sm_90a")
    module.entries.append(flat)
    text = print_module(module)
    assert print_module(parse(text)) == text
    body = text[text.index("{\n") : text.rindex("}")]
    return [
        line.strip() for line in body.splitlines()[1:] if line.strip() and not line.strip().startswith((".reg", ".loc"))
    ]


def counting_loop() -> Function:
    entry, head, body, done = Block("entry"), Block("loop"), Block("body"), Block("done")
    i, j, p = Reg("b32", "i"), Reg("b32", "i"), Reg("pred", "more")
    head.params = [i]
    head.nounroll = True
    entry.term = jump(head, Imm(0))
    head.insts = [less(p, i, Imm(64))]
    head.term = fork(p, Edge(body, []), Edge(done, []))
    body.insts = [store(i), add(j, i, Imm(4))]
    body.term = jump(head, j)
    done.term = Terminator([])
    return function(entry, head, body, done)


def test_loop_counter_is_updated_in_place() -> None:
    assert text_of(leave_ssa(counting_loop())) == [
        "mov.b32 %i, 0;",
        '.pragma "nounroll";',
        "L1_loop:",
        "setp.lt.s32 %more, %i, 64;",
        "@!%more bra.uni L3_done;",
        "st.shared.b32 [smem], %i;",
        "add.s32 %i, %i, 4;",
        "bra.uni L1_loop;",
        "L3_done:",
        "ret;",
    ]


def test_swap_goes_through_a_temporary() -> None:
    entry, head, done = Block("entry"), Block("loop"), Block("done")
    a, b, p = Reg("b32", "a"), Reg("b32", "b"), Reg("pred", "p")
    head.params = [a, b]
    entry.term = jump(head, Imm(1), Imm(2))
    head.insts = [store(a), less(p, a, Imm(2))]
    head.term = fork(p, Edge(head, [b, a]), Edge(done, []))
    done.term = Terminator([])
    text = text_of(leave_ssa(function(entry, head, done)))
    moves = [line for line in text if line.startswith("mov")]
    assert len(moves) == 5  # two at the entry, three for the swap
    assert {moves[2], moves[3], moves[4]} == {"mov.b32 %a_1, %a_0;", "mov.b32 %a_0, %b;", "mov.b32 %b, %a_1;"}


def test_diamond_needs_no_move() -> None:
    entry, left, right, join = Block("entry"), Block("left"), Block("right"), Block("join")
    x, y, z, p = Reg("b32", "x"), Reg("b32", "y"), Reg("b32", "z"), Reg("pred", "p")
    join.params = [z]
    t = Reg("b32", "t")
    entry.insts = [mov(t, 5), less(p, t, Imm(3))]
    entry.term = fork(p, Edge(left, []), Edge(right, []))
    left.insts = [add(x, t, Imm(1))]
    left.term = jump(join, x)
    right.insts = [add(y, t, Imm(2))]
    right.term = jump(join, y)
    join.insts = [store(z)]
    join.term = Terminator([])
    text = text_of(leave_ssa(function(entry, left, right, join)))
    assert [line for line in text if line.startswith("mov")] == ["mov.b32 %t, 5;"]


def test_value_live_past_the_copy_keeps_its_register() -> None:
    """The lost-copy problem: the old counter is used after the loop."""
    entry, head, done = Block("entry"), Block("loop"), Block("done")
    i, j, p = Reg("b32", "i"), Reg("b32", "j"), Reg("pred", "p")
    head.params = [i]
    entry.term = jump(head, Imm(0))
    head.insts = [add(j, i, Imm(1)), less(p, j, Imm(3))]
    head.term = fork(p, Edge(head, [j]), Edge(done, []))
    done.insts = [store(i)]
    done.term = Terminator([])
    fn = function(entry, head, done)
    assert run_ssa(fn) == [2]
    assert run_flat(leave_ssa(fn)) == [2]


WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"


def product(d: list[Reg], c: list[Reg] | None, desc: Reg) -> Inst:
    flags: list[Operand] = [Imm(1) for _ in range(5)]
    tied = [Vec(list(c))] if c is not None else None
    return Inst(WGMMA, [Vec(list(d)), desc, desc, *flags], 1, LOC, tied_in=tied)


def wait(before: list[Reg], after: list[Reg], pending: int = 0) -> Inst:
    return Inst(
        "wgmma.wait_group.sync.aligned",
        [Imm(pending)],
        0,
        LOC,
        tied_in=[Vec(list(before))],
        redefined=[Vec(list(after))],
    )


def accumulators(hint: str = "acc") -> list[Reg]:
    return [Reg("f32", hint) for _ in range(4)]


def accumulating_loop(swap: bool = False, pending: int = 0) -> Function:
    entry, head, done = Block("entry"), Block("k_loop"), Block("done")
    sets = [accumulators("acc"), accumulators("other")] if swap else [accumulators()]
    desc, i, j, p = Reg("b64", "desc"), Reg("b32", "i"), Reg("b32", "i"), Reg("pred", "p")
    head.params = [i, *(reg for group in sets for reg in group)]
    entry.insts = [Inst("mov.b64", [desc, Imm(5)], 1, LOC)]
    entry.term = jump(head, Imm(0), *([Imm(0, "f32")] * 4 * len(sets)))
    issued, waited = accumulators(), accumulators()
    head.insts = [product(issued, sets[0], desc), wait(issued, waited, pending), add(j, i, Imm(1)), less(p, j, Imm(9))]
    carried = [*sets[1], *waited] if swap else waited
    head.term = fork(p, Edge(head, [j, *carried]), Edge(done, []))
    done.insts = [store(reg) for reg in waited]
    done.term = Terminator([])
    return function(entry, head, done)


def test_tied_accumulators_in_a_loop_are_never_moved() -> None:
    text = text_of(leave_ssa(accumulating_loop()))
    loop = text[text.index("L1_k_loop:") :]
    assert loop == [
        "L1_k_loop:",
        f"{WGMMA} {{%acc_0, %acc_1, %acc_2, %acc_3}}, %desc, %desc, 1, 1, 1, 1, 1;",
        "wgmma.wait_group.sync.aligned 0;",
        "add.s32 %i, %i, 1;",
        "setp.lt.s32 %p, %i, 9;",
        "@%p bra.uni L1_k_loop;",
        *(f"st.shared.b32 [smem], %acc_{n};" for n in range(4)),
        "ret;",
    ]


def test_carried_permutation_in_flight_is_refused() -> None:
    with pytest.raises(
        CompilationError, match=r"kernel.py:7:5: error\[accumulator-permutation\]: this loop carries"
    ) as caught:
        leave_ssa(accumulating_loop(swap=True, pending=1))
    assert "write out as many trips" in str(caught.value)


def test_carried_permutation_of_settled_accumulators_is_copied() -> None:
    """Behind a wait for all products accumulators are plain values: ptxas gives no C75xx warning for these moves."""
    text = text_of(leave_ssa(accumulating_loop(swap=True)))
    loop = text[text.index("L1_k_loop:") :]
    assert sum(line.startswith("mov.f32") for line in loop) >= 8


def test_accumulator_needed_after_its_product_is_refused() -> None:
    block = Block("entry")
    old, new, desc = accumulators(), accumulators(), Reg("b64")
    block.insts = [Inst("mov.b64", [desc, Imm(5)], 1, LOC), *(mov(reg, 0) for reg in old), product(new, old, desc)]
    block.insts += [store(reg) for reg in (*old, *new)]
    block.term = Terminator([])
    with pytest.raises(InternalError, match="needed after the product"):
        leave_ssa(function(block))


def test_plain_tie_gets_a_move_when_the_old_value_lives_on() -> None:
    block = Block("entry")
    old, new, a, p = Reg("b32", "old"), Reg("b32", "new"), Reg("b32", "a"), Reg("pred", "p")
    block.insts = [mov(old, 3), mov(a, 4), less(p, a, Imm(9)),
                   Inst("mov.b32", [new, a], 1, LOC, guard=p, tied_in=[old]), store(old), store(new)]  # fmt: skip
    block.term = Terminator([])
    text = text_of(leave_ssa(function(block)))
    at = text.index("@%p mov.b32 %new, %a;")
    assert text[at - 1] == "mov.b32 %new, %old;"


def test_tied_immediate_becomes_a_move() -> None:
    block = Block("entry")
    new, a, p = Reg("b32", "x"), Reg("b32", "a"), Reg("pred", "p")
    block.insts = [
        mov(a, 4),
        less(p, a, Imm(9)),
        Inst("mov.b32", [new, a], 1, LOC, guard=p, tied_in=[Imm(0)]),
        store(new),
    ]
    block.term = Terminator([])
    assert "mov.b32 %x, 0;" in text_of(leave_ssa(function(block)))


@pytest.mark.parametrize(
    ("insts", "message"),
    [
        ([store(Reg("b32", "ghost"))], "never defined"),
        ([mov(r := Reg("b32", "twice"), 1), mov(r, 2)], "defined twice"),
        ([store(late := Reg("b32", "late")), mov(late, 1)], "before they are defined"),
    ],
)
def test_invalid_ssa_is_named(insts: list[Inst], message: str) -> None:
    block = Block("entry")
    block.insts = list(insts)
    block.term = Terminator([])
    with pytest.raises(InternalError, match=message):
        leave_ssa(function(block))


def test_edge_with_the_wrong_number_of_values_is_named() -> None:
    fn = counting_loop()
    assert fn.blocks[0].term is not None
    fn.blocks[0].term.edges[0].args.append(Imm(1))
    with pytest.raises(InternalError, match="brings 2 values for 1 parameters"):
        leave_ssa(fn)


def test_dead_code_drops_values_that_only_feed_themselves() -> None:
    entry, head, done = Block("entry"), Block("loop"), Block("done")
    i, j, unused, kept, p = Reg("b32", "i"), Reg("b32"), Reg("b32", "unused"), Reg("b32"), Reg("pred")
    head.params = [i, unused]
    entry.term = jump(head, Imm(0), Imm(0))
    head.insts = [add(kept, unused, Imm(1)), add(j, i, Imm(1)), less(p, j, Imm(9))]
    head.term = fork(p, Edge(head, [j, kept]), Edge(done, []))
    done.term = Terminator([])
    fn = function(entry, head, done)
    assert dead_code(fn, lambda inst: resolve(inst.opcode).removable) == 1
    assert head.params == [i]
    assert [inst.opcode for inst in head.insts if isinstance(inst, Inst)] == ["add.s32", "setp.lt.s32"]


# --- random graphs: what SSA stores, the flat form must store


STEPS = 200


def run_ssa(fn: Function) -> list[int]:
    """Values stored, executing block parameters in parallel; stops after `STEPS` instructions."""
    env: dict[Reg, int] = {}
    out: list[int] = []
    block, steps = fn.blocks[0], 0
    while True:
        for inst in block.insts:
            assert isinstance(inst, Inst)
            tied = inst.tied_in[0] if inst.tied_in else None
            execute(inst, env, out, env[tied] if isinstance(tied, Reg) else None)
            steps += 1
        steps += 1
        term = block.term
        assert term is not None
        if not term.edges or steps > STEPS:
            return out
        edge = term.edges[0] if term.cond is None or env[term.cond] else term.edges[1]
        values = [env[arg] if isinstance(arg, Reg) else arg.value for arg in edge.args]
        env.update(zip(edge.block.params, values, strict=True))
        block = edge.block


def run_flat(fn: FlatFunction, stores: int | None = None) -> list[int]:
    """Values stored by the flat form; stops after `stores` of them, or at the return."""
    env: dict[Reg, int] = {}
    out: list[int] = []
    places = {item.name: at for at, item in enumerate(fn.body) if isinstance(item, Label)}
    at, steps = 0, 0
    while (stores is None or len(out) < stores) and steps < 20 * STEPS:
        item = fn.body[at]
        at += 1
        steps += 1
        if not isinstance(item, Inst):
            continue
        if item.guard is not None and bool(env[item.guard]) == item.guard_neg:
            continue
        if item.opcode == "ret":
            break
        if item.opcode.startswith("bra"):
            target = item.operands[0]
            assert isinstance(target, LabelRef)
            at = places[target.name]
            continue
        tied = item.operands[0] if item.opcode == "acc" else None
        execute(item, env, out, env[tied] if isinstance(tied, Reg) else None)
    return out


def execute(inst: Inst, env: dict[Reg, int], out: list[int], tied: int | None) -> None:
    def value(operand: Operand) -> int:
        return env[operand] if isinstance(operand, Reg) else operand.value if isinstance(operand, Imm) else 0

    operands = inst.operands
    if inst.opcode.startswith("st."):
        out.append(value(operands[1]))
        return
    dst = operands[0]
    assert isinstance(dst, Reg)
    if inst.opcode.startswith("mov."):
        env[dst] = value(operands[1])
    elif inst.opcode == "add.s32":
        env[dst] = (value(operands[1]) + value(operands[2])) % 1000
    elif inst.opcode == "setp.lt.s32":
        env[dst] = int(value(operands[1]) < value(operands[2]))
    elif inst.opcode == "acc":
        assert tied is not None
        env[dst] = (3 * tied + value(operands[1])) % 1000
    else:
        raise AssertionError(inst.opcode)


@st.composite
def functions(draw: st.DrawFn) -> Function:
    """A valid SSA function: blocks use their own values and those of the entry, which dominates them."""
    count = draw(st.integers(2, 6))
    blocks = [Block(f"b{n}") for n in range(count)]
    for block in blocks[1:]:
        block.params = [Reg("b32", draw(st.sampled_from(["", "x", "y"]))) for _ in range(draw(st.integers(0, 3)))]
    shared: list[Reg] = []
    for n, block in enumerate(blocks):
        values = [*shared, *block.params]
        preds: list[Reg] = []
        if n == 0:
            first = Reg("b32", "start")
            block.insts.append(mov(first, draw(st.integers(0, 9))))
            values.append(first)
        for _ in range(draw(st.integers(1, 5))):
            inst = draw(st.sampled_from(["add", "acc", "store", "less"]))
            a = draw(st.sampled_from(values))
            b: Reg | Imm = draw(st.one_of(st.sampled_from(values), st.integers(0, 9).map(Imm)))
            dst = Reg("b32", draw(st.sampled_from(["", "x", "z"])))
            if inst == "store":
                block.insts.append(store(a))
            elif inst == "less":
                preds.append(Reg("pred"))
                block.insts.append(less(preds[-1], a, b))
            elif inst == "add":
                block.insts.append(add(dst, a, b))
                values.append(dst)
            else:
                block.insts.append(Inst("acc", [dst, b], 1, LOC, tied_in=[a]))
                values.append(dst)
        if n == 0:
            shared = list(values)
        kinds = ["return", "jump"] + (["fork"] * 3 if preds else [])
        block.term = draw_terminator(draw, draw(st.sampled_from(kinds)), blocks, values, preds)
    return function(*blocks)


def draw_terminator(draw: st.DrawFn, kind: str, blocks: list[Block], values: list[Reg], preds: list[Reg]) -> Terminator:
    def edge() -> Edge:
        target = draw(st.sampled_from(blocks[1:]))
        return Edge(
            target, [draw(st.one_of(st.sampled_from(values), st.integers(0, 9).map(Imm))) for _ in target.params]
        )

    if kind == "return":
        return Terminator([])
    if kind == "jump":
        return Terminator([edge()])
    return Terminator([edge(), edge()], draw(st.sampled_from(preds)))


@given(functions())
def test_random_graphs_keep_their_meaning(fn: Function) -> None:
    expected = run_ssa(fn)
    assert run_flat(leave_ssa(fn), len(expected)) == expected


@given(functions())
def test_dead_code_keeps_what_is_stored(fn: Function) -> None:
    expected = run_ssa(fn)
    dead_code(fn, lambda inst: not inst.opcode.startswith("st."))
    assert run_flat(leave_ssa(fn), len(expected)) == expected
