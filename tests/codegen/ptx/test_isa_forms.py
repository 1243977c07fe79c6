"""The instruction table against ptxas: what it takes assembles at the version it claims, what it refuses does not."""

from __future__ import annotations

import re

import pytest

from mimw.codegen.machine import Imm, Inst, Reg, Sink
from mimw.codegen.ptx.assemble import AssemblerError, assemble, find_ptxas
from mimw.codegen.ptx.isa import (
    ASYNC,
    CONTROL,
    READ,
    WRITE,
    UnknownInstruction,
    check,
    fits_class,
    form_of,
    register_class,
    resolve,
)
from mimw.codegen.ptx.parser import PtxSyntaxError, parse
from mimw.codegen.ptx.printer import print_module, smallest_version
from mimw.diagnostics import InternalError
from mimw.target import get_target
from tests.codegen.ptx.ptx_forms import ACCEPTED, REFUSED, expand, first_line, instructions, module_text

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas on this machine")
NEWEST = (9, 0)


def only_inst(text: str, target: str) -> Inst:
    body = parse(module_text(target, NEWEST, [text])).entries[0].body
    assert isinstance(body[0], Inst)
    return body[0]


def lines_by_version(target: str) -> dict[tuple[int, int], list[str]]:
    """Every accepted form of the target, by the version that the table says is enough for it."""
    groups: dict[tuple[int, int], list[str]] = {}
    for _, name, block in ACCEPTED:
        for line in instructions(block) if name == target else ():
            version = max(form_of(only_inst(line, target)).ptx, get_target(target).ptx_version)
            groups.setdefault(version, []).append(line)
    return groups


TARGETS = sorted({target for _, target, _ in ACCEPTED})


def test_there_are_enough_forms() -> None:
    assert sum(len(instructions(block)) for _, _, block in ACCEPTED) > 500


@pytest.mark.parametrize("family,target,block", ACCEPTED, ids=[f"{family}-{target}" for family, target, _ in ACCEPTED])
def test_forms_parse_check_and_print_again(family: str, target: str, block: str) -> None:
    del family
    lines = instructions(block)
    module = parse(module_text(target, NEWEST, lines))
    insts = [item for item in module.entries[0].body if isinstance(item, Inst)]
    assert len(insts) == len(lines) + 1  # and the return
    for inst in insts:
        check(inst, get_target(target))
    text = print_module(module)
    assert print_module(parse(text)) == text


@needs_ptxas
@pytest.mark.parametrize("target", TARGETS)
def test_forms_assemble_at_the_version_the_table_claims(target: str) -> None:
    for version, lines in lines_by_version(target).items():
        pairs = [line for line in lines if line.startswith("tcgen05") and "cta_group::2" in line]
        for some in (pairs, [line for line in lines if line not in pairs]):  # ptxas wants one granularity an entry
            try:
                assemble(module_text(target, version, some), target)
            except AssemblerError as error:
                pytest.fail(f"{target} at {version}: {error}")


@needs_ptxas
@pytest.mark.parametrize("target", TARGETS)
def test_an_older_version_is_refused_where_the_table_claims_a_newer_one(target: str) -> None:
    """The claim is the smallest that is enough: one step below it every form of the group is an error."""
    base = get_target(target).ptx_version
    known = sorted({*((7, n) for n in range(1, 9)), *((8, n) for n in range(9)), NEWEST})
    for version, lines in lines_by_version(target).items():
        older = max((v for v in known if v < version), default=base)
        if older < base or version == base:
            continue
        with pytest.raises(AssemblerError) as caught:
            assemble(module_text(target, older, lines), target)
        refused = {int(n) - first_line() for n in re.findall(r"line (\d+);\s*error", caught.value.log)}
        assert [line for i, line in enumerate(lines) if i not in refused] == []


@needs_ptxas
@pytest.mark.parametrize("target", sorted({target for target, _, _ in REFUSED}))
def test_refused_forms_are_refused_by_ptxas(target: str) -> None:
    for name, _, line in REFUSED:
        if name == target:
            with pytest.raises(AssemblerError):
                assemble(module_text(target, NEWEST, [expand(line)]), target)


@pytest.mark.parametrize(("target", "who", "line"), REFUSED, ids=[line[:40] for _, _, line in REFUSED])
def test_refused_forms_are_refused_by_the_table(target: str, who: str, line: str) -> None:
    if who == "ptxas":  # a value that only the assembler looks at
        check(only_inst(expand(line), target), get_target(target))
        return
    with pytest.raises((InternalError, PtxSyntaxError)):
        check(only_inst(expand(line), target), get_target(target))


def test_forms_say_what_they_do() -> None:
    assert resolve("add.s32").pure
    assert resolve("ld.param.u64").pure
    assert resolve("ld.global.b32").effects == READ
    assert resolve("ld.global.b32").removable
    assert not resolve("ld.acquire.gpu.global.b32").removable
    assert resolve("atom.global.add.u32").effects == READ | WRITE
    assert resolve("cp.async.cg.shared.global").effects & ASYNC
    assert resolve("bra.uni").effects == CONTROL
    assert not resolve("shfl.sync.idx.b32").removable


def test_form_parts() -> None:
    form = resolve("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes")
    assert form.mnemonic == "cp.async.bulk.tensor"
    assert form.modifiers == ("2d", "shared::cluster", "global", "mbarrier::complete_tx::bytes")
    assert (form.num_results, form.ptx, form.arch) == (0, (8, 0), 90)
    form = resolve("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16")
    assert form.types == ("f32", "bf16", "bf16")
    assert (form.operands[0].count, form.operands[0].also_read, form.only) == (128, True, (90,))
    assert resolve("add.s32") is resolve("add.s32")


@pytest.mark.parametrize(
    ("opcode", "message"),
    [
        ("frobnicate.b32", "no PTX instruction is called 'frobnicate'"),
        ("add.s33", "no form of add is spelled 'add.s33'"),
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16", "wgmma has no shape m64n12k16 for bf16"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16", "a product of bf16 cannot be accumulated in f16"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "mma.sync has no shape m16n8k16 for tf32"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32", "operands of f16 and bf16 cannot be multiplied"),
    ],
)
def test_unknown_opcodes_are_explained(opcode: str, message: str) -> None:
    with pytest.raises(UnknownInstruction, match=re.escape(message)):
        resolve(opcode)


def test_check_names_what_is_wrong() -> None:
    r, f, p = Reg("b32"), Reg("f32"), Reg("pred")
    with pytest.raises(InternalError, match=r"operands of add.s32 are \(b32, f32, Imm\)"):
        check(Inst("add.s32", [r, f, Imm(1)], 1), get_target("sm_80"))
    with pytest.raises(InternalError, match=r"sm_80 has no elect\.sync"):
        check(only_inst("elect.sync _|%p0, -1", "sm_90a"), get_target("sm_80"))
    with pytest.raises(InternalError, match="has 1 results, the instruction says 0"):
        check(Inst("add.s32", [r, r, Imm(1)], 0), get_target("sm_80"))
    with pytest.raises(InternalError, match=r"the guard of add\.s32 is a b32 register"):
        check(Inst("add.s32", [r, r, Imm(1)], 1, guard=r), get_target("sm_80"))
    check(Inst("add.s32", [r, r, Imm(1)], 1, guard=p), get_target("sm_80"))
    check(
        Inst("atom.global.add.u32", [Sink(), only_inst("ld.b32 %r0, [%rd0]", "sm_80").operands[1], r], 1),
        get_target("sm_80"),
    )


def test_register_classes() -> None:
    assert [register_class(t) for t in ("s32", "f32", "f16", "bf16x2", "pred", "e4m3x2", "e2m1x2")] == [
        "b32", "f32", "b16", "b32", "pred", "b16", "b8",
    ]  # fmt: skip
    assert fits_class("b32", "f32")
    assert fits_class("f32", "b32")
    assert not fits_class("f32", "s32")
    assert not fits_class("u32", "f32")
    assert not fits_class("b64", "s32")
    assert fits_class("b64", "s32", wide=True)


def test_smallest_version_follows_target_and_forms() -> None:
    def version(target: str, line: str) -> tuple[int, int]:
        module = parse(module_text(target, NEWEST, [line]))
        return smallest_version(module)

    assert version("sm_80", "add.s32 %r0, %r1, %r2") == (7, 1)
    assert version("sm_80", "ld.global.L1::no_allocate.b32 %r0, [%rd0]") == (7, 4)
    assert version("sm_90a", "wgmma.fence.sync.aligned") == (8, 0)
    assert version("sm_100a", "max.f32 %f0, %f1, %f2") == (8, 6)
    assert version("sm_100a", "max.f32 %f0, %f1, %f2, %f3") == (8, 8)
