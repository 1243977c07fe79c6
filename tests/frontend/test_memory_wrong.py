"""Wrong uses of buffers that share memory, of layouts that are asked for, and of tiles through descriptors; markers as in `test_tasks_wrong`."""

# fmt: off
# ruff: noqa: F841
from __future__ import annotations

from typing import Any

import pytest

import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.frontend.error_codes import ERROR_CODES
from mimw.tools.reference import OTHER_CODES
from tests.frontend.kernels import P16, build
from tests.frontend.test_wrong_kernels import expectation

WRONG: list[tuple[Any, dict[str, Any]]] = []


def wrong(**signature: Any) -> Any:
    def add(fn: Any) -> Any:
        WRONG.append((fn, signature))
        return fn

    return add


@wrong()
def too_small():
    spec = ml.storage_alias_spec(buffer_size_bytes=4096)
    a = ml.local_alloc((64, 64), ml.float16, 1, reuse=spec)  # ! shared-memory @ ml.local_alloc | 8192 bytes do not fit the 4096


@wrong()
def too_small_side_by_side():
    spec = ml.storage_alias_spec(buffer_size_bytes=8192)
    a = ml.local_alloc((64, 64), ml.float16, 1, reuse=spec)
    b = ml.local_alloc((64,), ml.float16, 1, reuse=spec)
    spec.set_buffer_overlap(ml.reuse_group(a, b, group_type=ml.reuse_group_type.distinct))  # ! shared-memory @ spec.set | need 8320 bytes


@wrong()
def in_two_places():
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((64, 64), ml.float16, 1, reuse=spec)
    spec.set_buffer_overlap(ml.reuse_group(a, ml.reuse_group(a)))  # ! bad-argument @ spec.set | a stands in two places


@wrong()
def left_out():
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((64, 64), ml.float16, 1, reuse=spec)
    b = ml.local_alloc((64, 64), ml.float16, 1, reuse=spec)
    spec.set_buffer_overlap(ml.reuse_group(a))  # ! bad-argument @ spec.set | b stands in no group


@wrong()
def a_stranger():
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((64, 64), ml.float16, 1, reuse=spec)
    b = ml.local_alloc((64, 64), ml.float16, 1)
    spec.set_buffer_overlap(ml.reuse_group(a, b))  # ! bad-argument @ spec.set | b is no buffer of this spec


@wrong()
def a_slot():
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((64, 64), ml.float16, 2, reuse=spec)
    spec.set_buffer_overlap(ml.reuse_group(a[0]))  # ! bad-argument @ spec.set | is no buffer of this spec


@wrong()
def settled_twice():
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((64, 64), ml.float16, 2, reuse=spec)
    spec.set_buffer_overlap(ml.reuse_group(a))
    spec.set_buffer_overlap(ml.reuse_group(a))  # ! bad-argument @ spec.set | this was said before


@wrong()
def settled_too_early():
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((64, 64), ml.float16, 2, reuse=spec)
    spec.set_buffer_overlap(ml.reuse_group(a))
    b = ml.local_alloc((64, 64), ml.float16, 2, reuse=spec)  # ! bad-argument @ ml.local_alloc | set_buffer_overlap has settled this spec


@wrong()
def no_group():
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((64, 64), ml.float16, 2, reuse=spec)
    spec.set_buffer_overlap(a)  # ! bad-argument @ spec.set | takes a reuse_group, not


@wrong()
def group_of_tiles():
    ml.reuse_group(ml.arange(0, 4))  # ! not-a-buffer @ ml.reuse_group | takes buffers and groups


@wrong()
def group_kind():
    a = ml.local_alloc((64, 64), ml.float16, 2)
    ml.reuse_group(a, group_type="apart")  # ! bad-argument @ ml.reuse_group | group_type is 'apart'


@wrong()
def empty_group():
    ml.reuse_group()  # ! bad-argument @ ml.reuse_group | reuse_group of nothing


@wrong()
def group_of_none():
    a = ml.local_alloc((64, 64), ml.float16, 2)
    ml.reuse_group(a, group_size=0)  # ! bad-argument @ ml.reuse_group | group_size is 0


@wrong()
def cluster_storage():
    spec = ml.storage_alias_spec(ml.storage_kind.smemCluster)  # ! bad-argument @ ml.storage_alias_spec | the cluster's shared memory


@wrong()
def tensor_storage():
    spec = ml.storage_alias_spec(ml.storage_kind.tmem)  # ! not-yet @ ml.storage_alias_spec | in tensor memory


@wrong()
def reuse_of_a_slot():
    a = ml.local_alloc((64, 64), ml.float16, 2)
    b = ml.local_alloc((64, 64), ml.float16, 1, reuse=a[0])  # ! bad-argument @ ml.local_alloc | is a part of a buffer


@wrong()
def reuse_of_a_member():
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((64, 64), ml.float16, 2, reuse=spec)
    b = ml.local_alloc((64, 64), ml.float16, 1, reuse=a)  # ! bad-argument @ ml.local_alloc | a belongs to a storage_alias_spec


@wrong()
def reuse_of_a_number():
    b = ml.local_alloc((64, 64), ml.float16, 1, reuse=3)  # ! bad-argument @ ml.local_alloc | is a storage_alias_spec or a buffer


@wrong(x=P16)
def pointer_reuse(x):
    b = ml.local_alloc((64, 64), ml.float16, 1, reuse=x)  # ! bad-argument @ ml.local_alloc | is a storage_alias_spec or a buffer


@wrong()
def layout_of_another_shape():
    layout = ml.nv_mma_shared_layout_encoding.make_default([64, 32], ml.float16)
    b = ml.local_alloc((64, 64), ml.float16, 1, layout=layout)  # ! bad-shape @ ml.local_alloc | it was made for [64, 32]


@wrong()
def layout_that_is_none():
    b = ml.local_alloc((64, 64), ml.float16, 1, layout="swizzled")  # ! bad-argument @ ml.local_alloc | takes a layout of shared memory, not


@wrong()
def swizzle_of_three():
    layout = ml.swizzled_shared_layout_encoding(3, 1, 8, [1, 0])  # ! bad-argument @ ml.swizzled_shared_layout_encoding | are to be powers of two


@wrong()
def swizzle_without_a_shift():
    layout = ml.swizzled_layout(3, 4)  # ! bad-argument @ ml.swizzled_layout | the shift is at least the bits


@wrong()
def swizzle_of_odd_rows():
    b = ml.local_alloc((6, 64), ml.float16, 1, layout=ml.swizzled_layout(3, 3, 3))  # ! bad-shape @ ml.local_alloc | powers of two


@wrong()
def order_of_another_rank():
    b = ml.local_alloc((64, 64), ml.float16, 1, layout=ml.swizzled_layout(0, order=[0]))  # ! bad-shape @ ml.local_alloc | the order [0]


@wrong()
def paddings_elsewhere():
    layout = ml.padded_shared_layout_encoding.with_identity_for([[32, 4]])
    b = ml.local_alloc((64, 64), ml.float16, 1, layout=layout)  # ! bad-shape @ ml.local_alloc | after each row, which has 64 elements


@wrong()
def two_paddings():
    layout = ml.padded_shared_layout_encoding.with_identity_for([[32, 4], [64, 8]])  # ! not-yet @ ml.padded | more are not there yet


@pytest.mark.parametrize(("fn", "signature"), WRONG, ids=lambda x: getattr(x, "__name__", ""))
def test_wrong_kernel(fn: Any, signature: dict[str, Any]) -> None:
    expected = expectation(fn)
    assert expected is not None
    line, column, code, what = expected
    with pytest.raises(CompilationError) as caught:
        build(fn, **signature)
    error = caught.value
    assert (error.code, error.loc.line, error.loc.col) == (code, line, column), str(error)
    assert what in error.message
    assert code in ERROR_CODES or code in OTHER_CODES
