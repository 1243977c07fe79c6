"""Parser and printer: each piece of the grammar, round trips on structure, text made by nvcc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mimw.codegen.machine import (
    Addr,
    Comment,
    FlatFunction,
    Imm,
    Inst,
    Label,
    LabelRef,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Symbol,
    Vec,
)
from mimw.codegen.ptx.assemble import assemble, find_ptxas
from mimw.codegen.ptx.isa import check
from mimw.codegen.ptx.module import PtxModule, Variable
from mimw.codegen.ptx.parser import PtxSyntaxError, parse
from mimw.codegen.ptx.printer import print_module
from mimw.diagnostics import Loc
from mimw.target import get_target

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def body_of(text: str) -> FlatFunction:
    """The entry whose body is `text`, with some registers declared."""
    regs = ".reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f<9>;\n"
    return parse(f"{HEAD}.visible .entry k(.param .u64 a)\n{{\n{regs}{text}\n}}\n").entry("k")


def insts(fn: FlatFunction) -> list[Inst]:
    return [item for item in fn.body if isinstance(item, Inst)]


def shape(module: PtxModule) -> list[object]:
    """Everything that a module says, as plain values: the structure that a round trip must keep."""
    out: list[object] = [module.version, module.target, module.files]
    out += [[getattr(v, a) if a != "init" else repr(v.init) for a in Variable.__slots__] for v in module.variables]
    for fn in module.entries:
        out += [fn.name, fn.params, fn.pointers, fn.directives, fn.shared, fn.local, fn.tables]
        out.append(sorted((reg.cls, reg.name) for reg in fn.regs))
        loc: Loc | None = None
        for item in fn.body:
            if isinstance(item, Inst):
                loc = item.loc or loc
                guard = (item.guard.name, item.guard_neg) if item.guard is not None else None
                out.append((item.opcode, repr(item.operands), item.num_results, guard, str(loc)))
            elif isinstance(item, Label):
                out.append((item.name, item.pragma))
    return out


def assert_round_trip(module: PtxModule) -> None:
    text = print_module(module)
    again = parse(text)
    assert shape(again) == shape(module)
    assert print_module(again) == text


# --- the parser


def test_header_and_variables() -> None:
    module = parse(
        HEAD
        + '.file 1 "a.py"\n.extern .shared .align 1024 .b8 smem[];\n.const .align 4 .f32 c[2] = {0f3F800000, -1.5};\n'
        ".global .u32 counter = 7;\n.global .align 8 .u64 table[2] = {counter, generic(counter)};\n"
        ".visible .global .b8 text[] = {72, 0x69, 0};\n.global .v4 .f32 wide[2];\n"
    )
    assert (module.version, module.target, module.files) == ((8, 0), "sm_90a", ["a.py"])
    seen = {v.name: (v.space, v.cls, v.size, v.align, v.linkage) for v in module.variables}
    assert seen["smem"] == ("shared", "b8", 0, 1024, "extern")
    assert seen["c"] == ("const", "f32", 8, 4, "")
    assert seen["text"] == ("global", "b8", 3, 0, "visible")
    assert seen["wide"] == ("global", "f32", 32, 0, "")
    inits = {v.name: repr(v.init) for v in module.variables}
    assert inits["c"] == f"[Imm({0x3F800000}, f32), Imm({0xBFF8 << 48}, f64)]"
    assert inits["table"] == "[counter, generic(counter)]"


def test_entry_parameters_and_directives() -> None:
    fn = parse(
        HEAD + ".visible .entry k(.param .align 64 .b8 tm[128], .param .u64 .ptr .global .align 16 P,\n.param .f32 x)\n"
        ".reqntid 384, 1, 1\n.minnctapersm 1\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{ ret; }\n"
    ).entry()
    assert fn.params == [("b8", "tm", 128, 64), ("u64", "P", 8, 8), ("f32", "x", 4, 4)]
    assert fn.pointers == {"P": ("global", 16)}
    assert fn.directives == {
        "reqntid": (384, 1, 1),
        "minnctapersm": (1,),
        "explicitcluster": (),
        "reqnctapercluster": (2, 1, 1),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mov.b32 %r0, 0x1F;", "[%r0, Imm(31, int)]"),
        ("mov.b32 %r0, -5;", "[%r0, Imm(-5, int)]"),
        ("mov.b32 %r0, 12U;", "[%r0, Imm(12, int)]"),
        ("mov.b32 %r0, 0b101;", "[%r0, Imm(5, int)]"),
        ("mov.b32 %r0, 017;", "[%r0, Imm(15, int)]"),
        ("mov.f32 %f0, 0f3F800000;", f"[%f0, Imm({0x3F800000}, f32)]"),
        ("mov.f32 %f0, 0F3f800000;", f"[%f0, Imm({0x3F800000}, f32)]"),
        ("mov.u32 %r0, %tid.x;", "[%r0, %tid.x]"),
        ("mov.u32 %r0, WARP_SZ;", "[%r0, WARP_SZ]"),
        ("mov.b64 %rd0, {%r1, %r2};", "[%rd0, {%r1, %r2}]"),
        ("setp.lt.and.s32 %p0|%p1, %r0, 4, !%p2;", "[%p0|%p1, %r0, Imm(4, int), !%p2]"),
        ("elect.sync _|%p0, -1;", "[_|%p0, Imm(-1, int)]"),
        ("ld.global.b32 %r0, [%rd0];", "[%r0, [%rd0+0]]"),
        ("ld.global.b32 %r0, [%rd0+-8];", "[%r0, [%rd0+-8]]"),
        ("ld.global.b32 %r0, [%rd0-8];", "[%r0, [%rd0+-8]]"),
        ("ld.param.b32 %r0, [a+4];", "[%r0, [a+4]]"),
        ("ld.shared.b32 %r0, [64];", "[%r0, [Imm(64, int)+0]]"),
        ("st.global.b32 [ %rd0 + 0 ], { %r1 };", "[[%rd0+0], {%r1}]"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%r0+16], [%rd0, {%r1, 8}], [%r2];",
            "[[%r0+16], [%rd0+0, [%r1, Imm(8, int)]], [%r2+0]]",
        ),
    ],
)
def test_operands(text: str, expected: str) -> None:
    assert repr(insts(body_of(text))[0].operands) == expected


def test_guards_labels_and_branches() -> None:
    fn = body_of('@%p0 bra L1;\n@!%p1 bra.uni L1;\n.pragma "nounroll";\nL1: ret;')
    first, second = insts(fn)[:2]
    assert (first.guard and first.guard.name, first.guard_neg) == ("%p0", False)
    assert (second.guard and second.guard.name, second.guard_neg) == ("%p1", True)
    label = next(item for item in fn.body if isinstance(item, Label))
    assert (label.name, label.pragma) == ("L1", "nounroll")


def test_directives_without_spaces() -> None:
    assert body_of("{.reg.b32 t;mov.b32 t,1;}").regs[-1].cls == "b32"


def test_branch_table() -> None:
    fn = body_of("ts: .branchtargets A, B;\nbrx.idx %r0, ts;\nA: ret;\nB: ret;")
    assert fn.tables == {"ts": ["A", "B"]}
    assert repr(insts(fn)[0].operands) == "[%r0, ts]"
    assert isinstance(insts(fn)[0].operands[1], LabelRef)


def test_nested_scopes_have_registers_and_labels_of_their_own() -> None:
    fn = body_of(
        "mov.b32 %r0, 1;\n{ .reg .b32 %r0; .reg .pred q; mov.b32 %r0, 2; @q bra L; L: }\n"
        "{ .reg .pred q; @!q bra L; bra OUT; L: }\nmov.b32 %r1, %r0;\nOUT: ret;"
    )
    outer, inner = insts(fn)[0].operands[0], insts(fn)[1].operands[0]
    assert isinstance(outer, Reg)
    assert isinstance(inner, Reg)
    assert outer is not inner
    assert inner.name == "%r0_1"
    assert insts(fn)[-2].operands[1] is outer
    assert [item.name for item in fn.body if isinstance(item, Label)] == ["L", "L_1", "OUT"]
    assert repr(insts(fn)[3].operands) == "[L_1]"


def test_locations_with_late_file_and_inlining() -> None:
    module = parse(
        HEAD + ".entry k() { .loc 1 3 5\nmembar.gl;\n.loc 1 9 2, function_name $L__info_string0, inlined_at 1 3 5\n"
        'ret; }\n.file 1 "k.py"\n.section .debug_str { $L__info_string0: .b8 102,110,0 }\n'
    )
    first, second = insts(module.entry())
    assert str(first.loc) == "k.py:3:5"
    assert str(second.loc) == "k.py:9:2"
    assert second.loc is not None
    assert str(second.loc.call_site) == "k.py:3:5"


def test_comments_are_dropped_and_lines_kept() -> None:
    with pytest.raises(PtxSyntaxError, match=r"PTX line 9: unknown instruction 'oops\.b32'"):
        body_of("// a comment; with { braces\n/* two\nlines */ oops.b32 %r0;")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mov.b32 %r99, 1;", "register '%r99' is not declared"),
        ("bra NOWHERE;", "no label is called 'NOWHERE'"),
        ("mov.b32 %r0, 1", "expected ','"),
        ("@x bra L; L:", "the guard 'x' is no register"),
        ("call.uni (x), f, (y);", "calls of 'f' are not supported, only of vprintf"),
        ("call f;", "calls of 'f' are not supported"),
        ("{ .param .b32 p0; st.param.b32 [p0], %r0; call.uni g, (p0); }", "calls of 'g' are not supported"),
        ("{ .param .b32 p0; }", "parameters of a call without the call"),
        ("{ .param .align 8 .b8 p0[16]; }", "parameters of calls are 32 or 64 bits wide"),
        ("{ .param .b64 p0; st.param.b32 [p0], %r0; }", "'p0' is no .b32 parameter"),
        ("{ .param .b64 p0; mov.b32 %r0, 1; }", "'mov.b32' cannot stand in a call sequence"),
        ("{ .param .b64 p0; .param .b32 r; call (r), vprintf, (p0); }", r"vprintf takes \(b64, b64\)"),
        ("{ .param .b64 p; .param .b64 q; call (p), vprintf, (p, q); }", r"vprintf returns \(b32\)"),
        ("{ .param .b64 p; .param .b32 r; call (r), vprintf, (p, p); }", "'p' of the call is never stored"),
        ("ld.global.b32 %r0, [%tid.x];", "cannot be an address"),
        (".frob 3;", "unknown directive '.frob'"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message) as caught:
        body_of("\n" + text)
    missing = message.startswith("expected")  # found out at the closing brace, one line on
    assert caught.value.line == (9 if missing else 8)


def test_text_that_ends_early() -> None:
    with pytest.raises(PtxSyntaxError, match="ends too early"):
        parse(HEAD + ".entry k() { ret;")


def test_device_functions_are_passed_over_by_name() -> None:
    module = parse(
        HEAD + ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
        ".func helper() { .reg .b32 x; { mov.b32 x, 1; } ret; }\n.entry k() { ret; }\n"
    )
    assert module.skipped == ["helper"]
    assert [(e.name, e.results, e.params) for e in module.externs] == [
        ("vprintf", [("b32", "r", 4, 4)], [("b64", "a", 8, 8), ("b64", "b", 8, 8)])
    ]
    assert [fn.name for fn in module.entries] == ["k"]


# As nvcc writes a printf.
CALL = """
.extern .func (.param .b32 func_retval0) vprintf
(
.param .b64 vprintf_param_0,
.param .b64 vprintf_param_1
)
;
.extern .func stop (.param .align 8 .b8 why[16], .param .b32 code) .noreturn;
.global .align 1 .b8 format[4] = {37, 100, 10};
.visible .entry k()
{
	.local .align 8 .b8 depot[8];
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<3>;
	mov.u64 %rd1, format;
	mov.u64 %rd2, depot;
	{ // callseq 0, 0
	.reg .b32 temp_param_reg;
	.param .b64 param0;
	st.param.b64 	[param0+0], %rd1;
	.param .b64 param1;
	st.param.b64 	[param1+0], %rd2;
	.param .b32 retval0;
	@!%p1 call.uni (retval0),
	vprintf,
	(
	param0,
	param1
	);
	ld.param.b32 	%r1, [retval0+0];
	} // callseq 0
	ret;
}
"""


def test_a_call_is_one_instruction_and_round_trips() -> None:
    module = parse(HEAD + CALL)
    call = next(i for i in module.entry().body if isinstance(i, Inst) and i.opcode == "call.uni")
    assert [repr(o) for o in call.operands] == ["%r1", "vprintf", "%rd1", "%rd2"]
    assert call.num_results == 1 and call.guard_neg and repr(call.guard) == "%p1"
    check(call, get_target("sm_90a"))
    assert module.entry().local == [("depot", 8, 8)]
    text = print_module(module)
    assert "@!%p1 call.uni (retval), vprintf, (param0, param1);" in text
    assert ".extern .func stop (.param .align 8 .b8 why[16], .param .b32 code) .noreturn;" in text
    again = parse(text)
    assert print_module(again) == text
    assert [e.params for e in again.externs] == [e.params for e in module.externs]


TRITON_STYLE = """
.version 8.0
.target sm_90a
.address_size 64

	// .globl	add_kernel
.extern .shared .align 16 .b8 global_smem[];

.visible .entry add_kernel(
	.param .u64 .ptr .global .align 1 add_kernel_param_0,
	.param .u32 add_kernel_param_1
)
.reqntid 128, 1, 1
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<16>;
	.reg .b64 	%rd<3>;
	.loc	1 8 0
$L__func_begin0:
	.loc	1 8 0

// %bb.0:
	ld.param.u64 	%rd1, [add_kernel_param_0];
	mov.u32 %r1, %ctaid.x;
	mov.u32 	%r2, %tid.x;
	setp.lt.s32 	%p1, %r2, %r1;
	mul.wide.s32 	%rd2, %r2, 4;
	// begin inline asm
	mov.u32 %r3, 0x0;
	mov.u32 %r4, 0x0;
	@%p1 ld.global.v2.b32 { %r3, %r4 }, [ %rd1 + 0 ];
	// end inline asm
	bar.sync 	0;
	// begin inline asm
	@!%p1 mov.u32 %r3, 0x0;
	@%p1 st.global.L1::evict_last.b32 [ %rd1 + 16 ], { %r3 };
	// end inline asm
	{ .reg .b16 tmp; mov.b32 {tmp, _}, %r3; cvt.u32.u16 %r5, tmp; }
	ret;
$L__tmp2:
$L__func_end0:
}
	.file	1 "/tmp/add.py"
	.section	.debug_abbrev
	{
.b8 1
.b8 17
	}
"""


def test_triton_style_text() -> None:
    module = parse(TRITON_STYLE)
    for inst in insts(module.entry("add_kernel")):
        check(inst, get_target("sm_90a"))
    assert str(insts(module.entry())[0].loc) == "/tmp/add.py:8:0"
    assert_round_trip(module)


# --- the printer


def small_module() -> PtxModule:
    module = PtxModule("sm_90a")
    module.variables.append(Variable("shared", "smem", "b8", 0, 1024, "extern"))
    fn = FlatFunction("k", [("b8", "tm", 128, 64), ("u64", "P", 8, 8), ("u32", "n", 4, 4)])
    fn.pointers["P"] = ("global", 16)
    fn.directives = {"reqntid": (128, 1, 1), "minnctapersm": (1,), "explicitcluster": ()}
    fn.shared.append(("bars", 8, 64))
    p, i, x, v = Reg("pred"), Reg("b32", "i"), Reg("f32", "row max"), Reg("b32", "tid")
    acc = [Reg("f32", "acc") for _ in range(3)]
    fn.regs = [p, i, x, v, *acc]
    here, there = Loc("k.py", 3, 5), Loc("k.py", 4, 5)
    two: list[Operand] = [acc[0], Sink()]
    fn.body = [
        Comment("x = load(p)"),
        Inst("mov.u32", [v, Special("%tid.x")], 1, here),
        Inst("mov.b32", [i, Imm(0)], 1, here),
        Label("L1_loop", "nounroll"),
        Inst("setp.lt.s32", [Pair(p, Sink()), i, v], 1, there),
        Inst("ld.shared.v2.f32", [Vec(two), Addr(Symbol("bars"), 8)], 1, there, guard=p, guard_neg=True),
        Inst("selp.f32", [x, acc[0], Imm(0xFF800000, "f32"), p], 1, there),
        Inst("vote.sync.any.pred", [p, Not(p), Imm(-1)], 1, there),
        Inst("bra", [LabelRef("L1_loop")], 0, here, guard=p),
        Inst("ret", [], 0),
    ]
    module.entries.append(fn)
    return module


def test_printed_text() -> None:
    assert print_module(small_module()) == (
        '.version 8.0\n.target sm_90a\n.address_size 64\n\n.file 1 "k.py"\n'
        ".extern .shared .align 1024 .b8 smem[];\n\n"
        ".visible .entry k(\n\t.param .align 64 .b8 tm[128],\n\t.param .u64 .ptr .global .align 16 P,\n"
        "\t.param .u32 n\n)\n"
        ".reqntid 128, 1, 1\n.minnctapersm 1\n.explicitcluster\n{\n"
        "\t.reg .f32 %acc_<3>;\n\t.reg .b32 %i, %tid_0;\n\t.reg .f32 %row_max;\n\t.reg .pred %p0;\n"
        "\t.shared .align 8 .b8 bars[64];\n\n"
        "\t// x = load(p)\n\t.loc 1 3 5\n\tmov.u32 %tid_0, %tid.x;\n\tmov.b32 %i, 0;\n"
        '\t.pragma "nounroll";\nL1_loop:\n\t.loc 1 4 5\n\tsetp.lt.s32 %p0|_, %i, %tid_0;\n'
        "\t@!%p0 ld.shared.v2.f32 {%acc_0, _}, [bars+8];\n\tselp.f32 %row_max, %acc_0, 0fFF800000, %p0;\n"
        "\tvote.sync.any.pred %p0, !%p0, -1;\n\t.loc 1 3 5\n\t@%p0 bra L1_loop;\n\tret;\n}\n"
    )


def test_printed_module_round_trips() -> None:
    module = small_module()
    print_module(module)  # names the registers, and says the version
    module.version, module.files = (8, 0), ["k.py"]
    module.entries[0].body.pop(0)  # the parser drops comments
    assert_round_trip(module)


@pytest.mark.parametrize("hint", ["r1", "p0", "tid", "clock64", "acc_0", "f12", "_", "a b-c", "envreg3", "r"])
def test_hints_never_collide(hint: str) -> None:
    fn = FlatFunction("k", [])
    fn.regs = [Reg("b32", hint), Reg("b32", hint), Reg("b32"), Reg("b32"), Reg("f32", "acc"), Reg("f32", "acc")]
    fn.body = [Inst("mov.b32", [reg, Imm(n)], 1) for n, reg in enumerate(fn.regs)]
    module = PtxModule("sm_90a")
    module.entries.append(fn)
    text = print_module(module)
    assert len({reg.name for reg in fn.regs}) == len(fn.regs)
    assert len(parse(text).entry().regs) == len(fn.regs)
    if find_ptxas() is not None:
        assemble(text, "sm_90a")


def test_smallest_version_is_printed() -> None:
    module = small_module()
    module.entries[0].directives["blocksareclusters"] = ()
    assert print_module(module).startswith(".version 9.0\n")


# --- text of another compiler


CUDA = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__constant__ float table[4] = {1, 2, 3, 4};
__device__ int counter;
__global__ void softmax(const float* x, float* y, int n) {
  __shared__ float s[32];
  extern __shared__ float dyn[];
  float m = -1e30f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, x[blockIdx.x * n + i]);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, o));
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = m;
  __syncthreads();
  m = s[threadIdx.x % (blockDim.x / 32)];
  float t = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) t += __expf(x[blockIdx.x * n + i] - m);
  atomicAdd(&dyn[0], t);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    y[blockIdx.x * n + i] = expf(x[blockIdx.x * n + i] - m) / dyn[0] * table[i % 4] + sinf(x[i]);
}
__global__ void mixed(__half2* a, __nv_bfloat16* b, double* d, long long* l, int sw) {
  int i = threadIdx.x;
  a[i] = __hfma2(a[i], a[i], a[i]);
  b[i] = __float2bfloat16(__bfloat162float(b[i]) * 2);
  d[i] = d[i] / 3.0 + sqrt(d[i]);
  l[i] = l[i] / (i + 1) % 7 + __popcll(l[i]) + __brev(i) + __ballot_sync(0xffffffffu, i & 1);
  switch (sw) {
    case 0: l[i]++; break;
    case 1: l[i] *= 3; break;
    case 2: l[i] ^= 9; break;
    case 3: d[i] = 0; break;
    case 4: l[i] = -1; break;
    case 5: l[i] <<= 2; break;
    case 6: atomicMax(&counter, sw); break;
  }
}
"""


INTRINSICS = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
__global__ void whole(unsigned* u, unsigned long long* l, float* x, double* d) {
  int i = threadIdx.x, all;
  u[i] = __popc(u[i]) + __clz(u[i]) + __ffs(u[i]) + __funnelshift_l(u[i], u[i + 1], 3)
       + __byte_perm(u[i], u[i + 1], 0x1234)
       + __umulhi(u[i], 7) + __dp4a((int)u[i], (int)u[i + 1], 3) + __vadd2(u[i], u[i + 1])
       + __reduce_add_sync(~0u, u[i])
       + __match_any_sync(~0u, u[i]) + __usad(u[i], 1, 2) + __match_all_sync(~0u, u[i], &all) + all
       + __syncthreads_count(i & 1)
       + __syncthreads_or(i) + clock() + __activemask() + __shfl_up_sync(~0u, i, 1) + __shfl_down_sync(~0u, i, 2, 8);
  x[i] = __ldg(x + i) + __ldcs(x + i + 1) + __ldcg(x + i + 2) + rsqrtf(x[i]) + __fdividef(x[i], 3.f)
       + sqrtf(x[i]) + tanhf(x[i])
       + powf(x[i], 1.3f) + __saturatef(x[i]) + rintf(x[i]) + copysignf(x[i], -1.f) + __fmaf_rz(x[i], 2.f, 3.f);
  __stcs(x + i, 3.f);
  atomicAdd(x, 1.f); atomicMax((int*)u, 3); atomicCAS(l, 1ull, 2ull);
  atomicExch(u, 3u); atomicInc(u, 4u); atomicAdd(d, 1.0);
  __threadfence(); __threadfence_block(); __threadfence_system(); __syncwarp(); __nanosleep(20);
  d[i] = fma(d[i], 2.0, 1.0) + floor(d[i]) + (double)l[i] + __double2int_rz(d[i]);
  l[i] = l[i] / 3 + __umul64hi(l[i], 7) + (unsigned long long)d[i] + __ffsll(l[i]);
  short s = (short)u[i];
  u[i + 2] = s * s + (char)u[i] + (s >> 2) + (unsigned char)(s * 3);
  __shared__ int buf[512];
  __pipeline_memcpy_async(buf + i * 4, u + i * 4, 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  reinterpret_cast<int4*>(u)[i] = reinterpret_cast<int4*>(buf)[i];
}
__global__ void halves(__half* h, __nv_bfloat16* b, __half2* h2, __nv_bfloat162* b2) {
  int i = threadIdx.x;
  h[i] = hexp(h[i]) + hsqrt(h[i]) + __hmax(h[i], h[i + 1])
       + __float2half_rz(2.f * i) + __hfma_relu(h[i], h[i], h[i]);
  b[i] = hexp(b[i]) + __hmin(b[i], b[i + 1]) * b[i] - hlog(b[i]);
  h2[i] = __hmax2_nan(h2[i], h2[i + 1]) / h2[i] + h2exp2(h2[i]) + __heq2(h2[i], h2[i + 1]);
  b2[i] = __hfma2(b2[i], b2[i], b2[i]) + __hge2(b2[i], b2[i + 1]) + __floats2bfloat162_rn(i, i) * b2[i];
  if (__hbeq2(h2[i], h2[i + 1])) h2[i] = __hneg2(h2[i]);
  atomicAdd(h2, h2[3]);
  atomicAdd(b2, b2[3]);
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc on this machine")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("cuda", [CUDA, INTRINSICS], ids=["kernels", "intrinsics"])
def test_text_of_nvcc(cuda: str, arch: str, tmp_path: Path) -> None:
    source, out = tmp_path / "kernel.cu", tmp_path / "kernel.ptx"
    source.write_text(cuda)
    done = subprocess.run(
        ["nvcc", f"-arch={arch}", "-lineinfo", "-ptx", str(source), "-o", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    module = parse(out.read_text())
    assert len(module.entries) == 2
    for fn in module.entries:
        for inst in insts(fn):
            check(inst, get_target(arch))
    assert_round_trip(module)
    if find_ptxas() is not None:
        assert assemble(print_module(module), arch).registers > 0
