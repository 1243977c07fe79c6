"""From a function and a signature to a module: parameters, names, places, calls, dependencies."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.frontend.dependencies import dependencies
from mimw.ir.core import OpBase
from mimw.ir.types import F32, I32
from tests.frontend.kernels import INT, P16, P32, Arg, build, count, kernel, ops, text

SIZE = ml.constexpr(64)
PLAIN = 3
NAMES = ("a", "b")


def add(x, y, z, n, B: ml.constexpr):
    """A docstring."""
    offsets = ml.program_id(0) * B + ml.arange(0, B)
    mask = offsets < n
    a = ml.load(x + offsets, mask=mask)
    b = ml.load(y + offsets, mask=mask)
    ml.store(z + offsets, a + b, mask=mask)


def test_vector_add():
    m = build(add, x=P32, y=P32, z=P32, n=INT, B=128)
    assert count(m)["memory.load"] == 2 and count(m)["memory.store"] == 1
    assert [a.name for a in m.function.arguments] == ["x", "y", "z", "n"]
    assert [a.divisor for a in m.function.arguments] == [16, 16, 16, 1]
    assert m.function.block.ops[-1].name == "control.return"
    assert "%mask = arith.lt %offsets," in text(m)


def test_every_op_has_its_line():
    m = build(add, x=P32, y=P32, z=P32, n=INT, B=128)
    first = add.__code__.co_firstlineno
    assert {op.loc.line - first for op in m.function.walk()} <= {0, 2, 3, 4, 5, 6}
    assert all(op.loc.file == __file__ for op in m.function.walk())
    load = ops(m, "memory.load")[0]
    line = Path(__file__).read_text().splitlines()[load.loc.line - 1]
    assert line[load.loc.col - 1 :].startswith("ml.load(x + offsets")


def matmul(
    a, b, c, M, N, K, sa, sb, sc, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, ACC: ml.constexpr = ml.float32
):
    pid_m, pid_n = ml.swizzle2d(ml.program_id(0), ml.program_id(1), ml.cdiv(M, BM), ml.cdiv(N, BN), 8)
    rm = pid_m * BM + ml.arange(0, BM)
    rn = pid_n * BN + ml.arange(0, BN)
    rk = ml.arange(0, BK)
    pa = a + rm[:, None] * sa + rk[None, :]
    pb = b + rk[:, None] * sb + rn[None, :]
    acc = ml.zeros((BM, BN), dtype=ACC)
    for k in range(ml.cdiv(K, BK)):
        left = K - k * BK
        x = ml.load(pa, mask=(rm[:, None] < M) & (rk[None, :] < left), other=0.0)
        y = ml.load(pb, mask=(rk[:, None] < left) & (rn[None, :] < N), other=0.0)
        acc = ml.dot(x, y, acc)
        pa += BK
        pb += BK * sb
    ml.store(c + rm[:, None] * sc + rn[None, :], acc.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def test_matmul():
    sizes = dict.fromkeys(("M", "N", "K", "sa", "sb", "sc"), Arg(I32, 16))
    m = build(matmul, a=P16, b=P16, c=P16, **sizes, BM=96, BN=128, BK=31)
    loop = ops(m, "control.for")[0]
    assert str(loop.results[2].type) == "tensor<96x128xf32>"
    assert [r.name for r in loop.results] == ["pa", "pb", "acc"]


def test_specialised_arguments_are_constants():
    def k(x, stride, bias):
        if bias is not None:
            ml.store(x, ml.load(bias))
        ml.store(x + ml.program_id(0) * stride, 1.0)

    m = build(k, x=P32, stride=1, bias=None)
    assert [a.name for a in m.function.arguments] == ["x"]
    assert count(m)["memory.load"] == 0


def test_defaults_keywords_and_stars():
    @kernel
    def callee(a, b=2.0, *rest, scale: ml.constexpr = 1):
        return a * b * scale + len(rest)

    def k(x):
        more = (3.0, 4.0, 5.0)
        ml.store(x, callee(ml.load(x), *more, scale=2))
        ml.store(x, callee(b=3.0, a=1.0))

    assert count(build(k, x=P32))["arith.mul"] == 2


def test_captured_constants_modules_and_python_functions():
    def tripled(n):
        return n * 3

    factor = 4

    def k(x):
        ml.store(x + (SIZE * PLAIN + len(NAMES)), math.sqrt(16) + tripled(factor) + math.pi)

    m = build(k, x=P32)
    values = [op.attrs["value"] for op in ops(m, "arith.constant")]
    assert values[0] == 64 * 3 + 2
    assert values[1] == pytest.approx(4 + 12 + math.pi)


def test_constants_made_in_a_kernel():
    def k(x):
        many = ml.constexpr((SIZE, 3))
        few: ml.constexpr = ml.constexpr(value=many[1] + 1)
        if few < many[0] and few.value == 4:
            for i in ml.static_range(ml.constexpr(2)):
                ml.store(x + min(i, few), 2.0 * -few + len(many))

    m = build(k, x=P32)
    assert count(m)["memory.store"] == 2
    assert [op.attrs["value"] for op in ops(m, "arith.constant") if op.results[0].type is F32] == [-6.0, -6.0]


def test_unrolled_loops():
    def k(x):
        total = 0
        for i, name in enumerate(NAMES):
            if name == "b":
                total += i
        for a, b in zip((1, 2), (3, 4)):  # noqa: B905
            total += a * b
        for i in reversed(ml.static_range(3)):
            total = total * 10 + i
        ml.store(x + total, 1.0)

    m = build(k, x=P32)
    assert ops(m, "arith.constant")[0].attrs["value"] == 12210


def test_python_folds_floor_where_the_device_truncates():
    def k(x, n, c: ml.constexpr):
        ml.store(x + c // 2 + c % 4, 1.0)
        ml.store(x + n // 2, 1.0)

    m = build(k, x=P32, n=INT, c=-7)
    assert ops(m, "arith.constant")[0].attrs["value"] == -4
    assert count(m)["arith.div"] == 1


def test_static_print_shows_once(capsys):
    def k(x, n):
        acc = 0
        for i in range(n):
            ml.static_print("acc", acc.dtype if i is None else "?", x)
            acc += ml.load(x + i)
        ml.store(x, acc)

    build(k, x=P32, n=INT)
    assert capsys.readouterr().out == "acc ? <ptr<f32>>\n"


def test_print_is_device_print():
    def k(x, n, WORD: ml.constexpr):
        print("n", n)
        print(WORD, ml.load(x), n, hex=True)

    found = ops(build(k, x=P32, n=INT, WORD="w"), "debug.device_print")
    assert [(op.attrs["prefix"], len(op.operands), op.attrs["hex"]) for op in found] == [
        ("n", 1, False),
        ("w", 2, True),
    ]


def test_device_print_and_assert():
    def k(x, n):
        ml.device_print("n and x", n, ml.load(x))
        ml.device_assert(n > 0, "n is positive")
        assert n < 100, f"limit {PLAIN}"

    m = build(k, x=P32, n=INT)
    assert len(ops(m, "debug.device_print")[0].operands) == 2
    assert [op.attrs["message"] for op in ops(m, "debug.device_assert")] == ["n is positive", "limit 3"]


def test_a_combine_function_with_branches():
    @kernel
    def larger(a, b):
        if a > b:
            return a
        return b

    @kernel
    def pick(a, i, b, j):
        keep = a > b or (a == b and i < j)
        return (a if keep else b), ml.where(keep, i, j)

    def k(x):
        o = ml.arange(0, 33)
        v = ml.load(x + o)
        ml.store(x, ml.reduce(v, 0, larger))
        best, where = ml.reduce((v, o), 0, pick)
        ml.store(x + where, best)
        ml.store(x + o, ml.associative_scan(v, 0, larger, reverse=True))

    m = build(k, x=P32)
    assert count(m)["tensor.reduce"] == 2 and count(m)["tensor.scan"] == 1
    assert count(m)["control.inlined"] == 2


def test_inlined_ops_know_their_call():
    @kernel
    def inner(p):
        return ml.load(p)

    def k(x):
        ml.store(x, inner(x + 1))

    load = ops(build(k, x=P32), "memory.load")[0]
    assert load.loc.call_site is not None
    assert load.loc.call_site.line == k.__code__.co_firstlineno + 1


def test_signature_faults():
    with pytest.raises(CompilationError) as caught:
        build(add, x=P32, y=P32, z=P32, n=INT)
    assert caught.value.code == "bad-signature"
    assert "the parameter B of add" in caught.value.message
    with pytest.raises(CompilationError) as caught:
        build(add, x=P32, y=P32, z=P32, n=INT, B=4, C=3)
    assert "add has no parameter C" in caught.value.message
    with pytest.raises(CompilationError) as caught:
        build(lambda x: x, x=P32)
    assert caught.value.code == "lambda"


def test_source_that_is_not_at_hand():
    space: dict[str, object] = {}
    exec("def k(x):\n    pass\n", space)
    with pytest.raises(CompilationError) as caught:
        build(space["k"], x=P32)
    assert caught.value.code == "no-source"


def test_odd_source_layouts(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(
        "import mimw.language as ml\n"
        "def outer():\n"
        "    def k(\n"
        "        x,\n"
        "    ):\n"
        '        """A text\n'
        "at the margin.\n"
        '        """\n'
        "# a comment at the margin\n"
        "        é = 1.0; ml.store(x, é + undefined)\n"
        "    return k\n"
    )
    space: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    with pytest.raises(CompilationError) as caught:
        build(space["outer"](), x=P32)  # type: ignore[operator]
    assert (caught.value.loc.line, caught.value.loc.col) == (10, 34)


def test_dependencies():
    def plus_constant(n):
        return n + PLAIN

    @kernel
    def callee(x):
        return x * SIZE

    def k(x, B: ml.constexpr = 3):
        ml.store(x, callee(plus_constant(B)) + math.pi)

    found = dependencies(k)
    assert sorted(n.split(".")[-1] for n in found.sources) == ["callee", "k", "plus_constant"]
    values = set(found.constants.values())
    assert {"3", "64", repr(math.pi)} <= values


def test_imports_stay_light():
    code = (
        "import sys; import mimw.language, mimw.frontend.trace; "
        "print([m for m in ('numpy', 'ml_dtypes', 'torch', 'cuda', 'rich', 'inspect') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_trace_leaves_no_half_made_ops():
    """Roll-backs of loops and inlined functions leave every value's users exact (the verifier checks them)."""

    @kernel
    def find(x, n, limit):
        for i in range(n):
            v = ml.load(x + i)
            if v > limit:
                return i
        return n

    def k(x, n):
        acc = 0
        for i in range(n):
            for j in range(i):
                acc += ml.load(x + find(x, j, acc))
        ml.store(x, acc)

    m = build(k, x=P32, n=INT)
    assert all(isinstance(op, OpBase) for op in m.function.walk())
    assert count(m)["control.for"] == 3
