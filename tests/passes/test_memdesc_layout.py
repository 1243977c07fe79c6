"""Layouts of buffers and descriptors: chosen by what uses them, told where uses exclude each other."""

from __future__ import annotations

import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.diagnostics import CompilationError
from mimw.ir.core import Module, Value
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.parser import parse_module
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.tma import box_plan
from mimw.ir.types import MemDescType, TensorDescType
from mimw.ir.verifier import verify
from mimw.passes import memdesc_layout
from mimw.target import get_target

ACC = "  %acc = arith.constant {value = 0.0} : tensor<128x128xf32>\n"


def build(body: str, arguments: str = "") -> Module:
    """A kernel with a barrier and i32 numbers at hand, after the pass."""
    head = "  %i0 = arith.constant {value = 0} : i32\n  %bar = barrier.alloc : barrier<0, arrive 1>\n"
    module = parse_module(
        f"kernel @k(%n: i32{', ' + arguments if arguments else ''}) num_warps = 4 {{\n{head}{body}\n  control.return\n}}\n"
    )
    memdesc_layout.run(module, get_target("sm_90a"))
    verify(module)
    return module


def layouts(module: Module) -> list[SharedLayout | None]:
    """Those of the allocations."""
    return [op.type.layout for op in module.function.walk() if isinstance(op, LocalAllocOp)]


def values(module: Module) -> dict[str, Value]:
    return {
        v.name: v
        for op in module.function.walk()
        for v in (*op.results, *(a for r in op.regions for a in r.block.args))
    }


def desc(module: Module, index: int = 0) -> TensorDescType:
    t = module.function.arguments[index + 1].type
    assert isinstance(t, TensorDescType)
    return t


def load(name: str, buffer: str, rank: int = 2) -> str:
    return f"  async_copy.tma_load %{name}, %{buffer}, %bar, [{', '.join(['%i0'] * rank)}]\n"


def product(a: str, b: str, out: str = "d") -> str:
    return f"  %{out} = mma.async_dot %{a}, %{b}, %acc : inflight<tensor<128x128xf32>>\n"


@pytest.mark.parametrize(("inner", "span"), [(64, 128), (32, 64), (16, 32), (128, 128), (96, 64), (48, 32)])
def test_a_block_lies_in_the_widest_swizzle_that_divides_its_rows(inner: int, span: int) -> None:
    module = build(
        f"  %a = memory.local_alloc : memdesc<64x{inner}xbf16, shared>\n" + load("t", "a"),
        f"%t: tensor_desc<64x{inner}xbf16>",
    )
    assert layouts(module) == [SharedLayout.swizzled((64, inner), None, 2, span)]
    plan = box_plan(desc(module).layout, (64, inner), 2)
    assert plan.swizzle == span and plan.box == (64, span // 2)


@pytest.mark.parametrize("shape", ["64x8", "256", "8x24"])
def test_short_rows_and_vectors_lie_plainly(shape: str) -> None:
    rank = shape.count("x") + 1
    sizes = tuple(map(int, shape.split("x")))
    module = build(
        f"  %a = memory.local_alloc : memdesc<{shape}xbf16, shared>\n" + load("t", "a", rank),
        f"%t: tensor_desc<{shape}xbf16>",
    )
    assert layouts(module) == [SharedLayout.row_major(sizes)]
    assert box_plan(desc(module).layout, sizes, 2).swizzle == 0


def test_a_block_of_three_dimensions() -> None:
    module = build(
        "  %a = memory.local_alloc : memdesc<4x8x64xbf16, shared>\n" + load("t", "a", 3), "%t: tensor_desc<4x8x64xbf16>"
    )
    assert box_plan(desc(module).layout, (4, 8, 64), 2).box == (4, 8, 64)


def ring(dtype: str = "bf16", turned: bool = False) -> str:
    """Slots of A [128, 64] and B [64, 128] (`turned`: B^T) filled by TMA, multiplied."""
    b = "128x64" if turned else "64x128"
    text = f"""  %as = memory.local_alloc : memdesc<3x128x64x{dtype}, shared>
  %bs = memory.local_alloc : memdesc<3x{b}x{dtype}, shared>
  %a = memory.local_view %as, %n : memdesc<128x64x{dtype}, shared, alloc 3x128x64>
  %b0 = memory.local_view %bs, %n : memdesc<{b}x{dtype}, shared, alloc 3x{b}>
"""
    text += load("ta", "a") + load("tb", "b0")
    if turned:
        text += f"  %b = memory.local_trans %b0 {{order = [1, 0]}} : memdesc<64x128x{dtype}, shared, alloc 3x128x64>\n"
    return text + ACC + product("a", "b" if turned else "b0")


def descriptors(dtype: str = "bf16", turned: bool = False) -> str:
    return f"%ta: tensor_desc<128x64x{dtype}>, %tb: tensor_desc<{'128x64' if turned else '64x128'}x{dtype}>"


def test_rings_for_products_of_16_bits_take_either_major() -> None:
    module = build(ring(), descriptors())
    a, b = SharedLayout.swizzled((128, 64), None, 2, 128), SharedLayout.swizzled((64, 128), None, 2, 128)
    assert layouts(module) == [a, b]
    assert desc(module, 0).layout is a and desc(module, 1).layout is b
    for name in ("a", "b0"):
        t = values(module)[name].type
        assert isinstance(t, MemDescType) and t.layout in (a, b)


def test_a_transposed_view_has_the_turned_layout() -> None:
    module = build(ring(turned=True), descriptors(turned=True))
    whole, view = values(module)["b0"].type, values(module)["b"].type
    assert isinstance(whole, MemDescType) and isinstance(view, MemDescType)
    assert whole.layout and view.layout
    for x, y in ((0, 0), (3, 1), (64, 9), (127, 63)):
        assert whole.layout.offset((x, y)) == view.layout.offset((y, x))


def test_eight_bit_operands_are_contiguous_along_k() -> None:
    module = build(ring("f8e4m3", turned=True), descriptors("f8e4m3", turned=True))
    assert layouts(module) == [SharedLayout.swizzled((128, 64), None, 1, 64)] * 2
    with pytest.raises(CompilationError, match="contiguous along dimension") as e:
        build(ring("f8e4m3"), descriptors("f8e4m3"))
    assert e.value.code == "layout-conflict" and len(e.value.notes) == 2


def test_rows_of_a_small_operand_are_filled_up_for_the_instruction() -> None:
    body = """  %a = memory.local_alloc : memdesc<16x64xbf16, shared>
  %b = memory.local_alloc : memdesc<64x128xbf16, shared>
  %acc = arith.constant {value = 0.0} : tensor<16x128xf32>
  %d = mma.async_dot %a, %b, %acc : inflight<tensor<16x128xf32>>
"""
    module = build(body + load("t", "a"), "%t: tensor_desc<16x64xbf16>")
    assert layouts(module)[0] == SharedLayout.swizzled((64, 64), None, 2, 128)
    assert box_plan(desc(module).layout, (16, 64), 2).box == (16, 64)


def test_slices_see_the_whole_buffers_layout() -> None:
    body = """  %as = memory.local_alloc : memdesc<256x64xbf16, shared>
  %b = memory.local_alloc : memdesc<64x128xbf16, shared>
  %i128 = arith.constant {value = 128} : i32
  %a = memory.local_slice %as, [%i128, %i0] {shape = [128, 64]} : memdesc<128x64xbf16, shared, alloc 256x64>
"""
    module = build(body + ACC + product("a", "b"))
    t = values(module)["a"].type
    assert isinstance(t, MemDescType) and t.layout == SharedLayout.swizzled((256, 64), None, 2, 128)


def test_a_block_copied_into_a_part_of_a_row_narrows_the_swizzle() -> None:
    body = """  %as = memory.local_alloc : memdesc<64x64xbf16, shared>
  %i32 = arith.constant {value = 32} : i32
  %a = memory.local_slice %as, [%i0, %i32] {shape = [64, 32]} : memdesc<64x32xbf16, shared, alloc 64x64>
"""
    module = build(body + load("t", "a"), "%t: tensor_desc<64x32xbf16>")
    assert layouts(module) == [SharedLayout.swizzled((64, 64), None, 2, 64)]


def test_buffers_that_a_loop_carries_lie_alike() -> None:
    body = """  %as = memory.local_alloc : memdesc<64x64xbf16, shared>
  %bs = memory.local_alloc : memdesc<64x64xbf16, shared>
  %x, %y = control.for %i0, %n, %n, [%as, %bs] body(%i: i32, %p: memdesc<64x64xbf16, shared>, %q: memdesc<64x64xbf16, shared>) {
    async_copy.tma_load %t, %p, %bar, [%i0, %i0]
    control.yield %q, %p
  } : memdesc<64x64xbf16, shared>, memdesc<64x64xbf16, shared>
"""
    module = build(body, "%t: tensor_desc<64x64xbf16>")
    wanted = SharedLayout.swizzled((64, 64), None, 2, 128)
    assert layouts(module) == [wanted, wanted]
    assert {values(module)[n].type.layout for n in "xypq"} == {wanted}  # type: ignore[union-attr]


def test_threads_alone_get_rows_on_different_banks() -> None:
    touch = "  %x = memory.local_load %a : tensor<32x{0}xf32>\n"
    for inner, wanted in (
        (32, SharedLayout.swizzled((32, 32), None, 4, 128)),
        (12, SharedLayout.padded((32, 12), None, 4)),
    ):
        module = build(f"  %a = memory.local_alloc : memdesc<32x{inner}xf32, shared>\n" + touch.format(inner))
        assert layouts(module) == [wanted]


def test_gathered_buffers_are_plain() -> None:
    body = """  %a = memory.local_alloc : memdesc<32x32xf32, shared>
  %i = arith.constant {value = 1} : tensor<32x32xi32>
  %x = memory.local_gather %a, %i {axis = 1} : tensor<32x32xf32>
"""
    assert layouts(build(body)) == [SharedLayout.row_major((32, 32))]


def test_a_view_of_other_elements_of_one_size_keeps_the_swizzle() -> None:
    body = """  %a = memory.local_alloc : memdesc<64x64xbf16, shared>
  %r = memory.local_reinterpret %a : memdesc<64x64xi16, shared>
  %x = memory.local_load %r : tensor<64x64xi16>
"""
    module = build(body + load("t", "a"), "%t: tensor_desc<64x64xbf16>")
    t = values(module)["r"].type
    assert isinstance(t, MemDescType) and t.layout == layouts(module)[0] == SharedLayout.swizzled(
        (64, 64), None, 2, 128
    )


def test_a_view_under_another_shape_makes_both_plain() -> None:
    body = """  %a = memory.local_alloc : memdesc<64x64xbf16, shared>
  %r = memory.local_reinterpret %a : memdesc<32x64xf32, shared>
  %x = memory.local_load %r : tensor<32x64xf32>
"""
    module = build(body + load("t", "a"), "%t: tensor_desc<64x64xbf16>")
    assert layouts(module) == [SharedLayout.row_major((64, 64))]
    assert values(module)["r"].type.layout == SharedLayout.row_major((32, 64))  # type: ignore[union-attr]
    assert box_plan(desc(module).layout, (64, 64), 2).swizzle == 0


def test_a_product_of_a_plain_view_is_refused() -> None:
    body = """  %a0 = memory.local_alloc : memdesc<128x32xf32, shared>
  %a = memory.local_reinterpret %a0 : memdesc<128x64xbf16, shared>
  %b = memory.local_alloc : memdesc<64x128xbf16, shared>
"""
    with pytest.raises(CompilationError) as e:
        build(body + ACC + product("a", "b"))
    assert e.value.code == "layout-conflict" and e.value.notes


def test_one_descriptor_for_buffers_that_lie_differently_is_refused() -> None:
    body = """  %a = memory.local_alloc : memdesc<64x64xbf16, shared>
  %b = memory.local_alloc : memdesc<64x64xbf16, shared>
  %r = memory.local_reinterpret %b : memdesc<4096xbf16, shared>
  %x = memory.local_load %r : tensor<4096xbf16>
"""
    with pytest.raises(CompilationError) as e:
        build(body + load("t", "a") + load("t", "b"), "%t: tensor_desc<64x64xbf16>")
    assert e.value.code == "layout-conflict"
    assert "descriptor" in e.value.message


def test_rows_of_no_multiple_of_16_bytes_are_refused() -> None:
    with pytest.raises(CompilationError) as e:
        build(
            "  %a = memory.local_alloc : memdesc<64x12xbf16, shared>\n" + load("t", "a"), "%t: tensor_desc<64x12xbf16>"
        )
    assert e.value.code == "tma-block"


def test_prefetched_and_unused_descriptors_have_a_layout_too() -> None:
    module = build("  async_copy.tma_prefetch %t, [%i0, %i0]", "%t: tensor_desc<64x64xbf16>, %u: tensor_desc<8x32xf32>")
    assert desc(module).layout == SharedLayout.swizzled((64, 64), None, 2, 128)
    assert desc(module, 1).layout == SharedLayout.swizzled((8, 32), None, 4, 128)


def test_a_layout_that_is_there_stays() -> None:
    text = str(SharedLayout.row_major((64, 64)))
    module = build(
        f"  %a = memory.local_alloc : memdesc<64x64xbf16, shared, {text}>\n" + load("t", "a"),
        "%t: tensor_desc<64x64xbf16>",
    )
    assert layouts(module) == [SharedLayout.row_major((64, 64))] and desc(module).layout == layouts(module)[0]
