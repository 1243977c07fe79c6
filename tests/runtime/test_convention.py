"""Offsets, formats and the JSON form of the calling convention."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.runtime.convention import (
    KINDS,
    KernelMetadata,
    LaunchAttributes,
    Param,
    buffer_size,
    layout_params,
    struct_format,
)


def make(*kinds: str) -> list[Param]:
    params = [Param(f"p{i}", kind, 0) for i, kind in enumerate(kinds)]
    layout_params(params)
    return params


def test_offsets_are_multiples_of_sizes():
    params = make("pointer", "i32", "i1", "f16", "i64", "i8", "f64")
    assert [p.offset for p in params] == [0, 8, 12, 14, 16, 24, 32]
    assert [p.size for p in params] == [8, 4, 1, 2, 8, 1, 8]
    assert buffer_size(params) == 40


def test_no_parameters():
    assert layout_params([]) == 0
    assert buffer_size([]) == 0
    assert struct.calcsize(struct_format([])) == 0


def test_packed_bytes():
    packed = struct.pack(struct_format(make("pointer", "i1", "i32", "f32")), 0x1122334455667788, True, -2, 1.0)
    assert packed == bytes.fromhex("887766554433221101000000feffffff0000803f")


def _sample(kind: str, value: int) -> int | bytes:
    return bytes([value]) * 128 if kind == "tensormap" else value


def test_tensor_maps_lie_at_multiples_of_64():
    params = make("i32", "tensormap", "i32", "tensormap")
    assert [p.offset for p in params] == [0, 64, 192, 256]
    assert buffer_size(params) == 384
    assert params[1].describe() == "tensor descriptor"


@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=12))
def test_format_agrees_with_offsets(kinds: list[str]):
    params = make(*kinds)
    assert struct.calcsize(struct_format(params)) == buffer_size(params)
    for i, param in enumerate(params):
        assert param.offset % param.align == 0
        values = [_sample(p.kind, int(j == i)) for j, p in enumerate(params)]
        packed = struct.pack(struct_format(params), *values)
        one = struct.pack("<" + KINDS[param.kind][1], _sample(param.kind, 1))
        assert packed == bytes(param.offset) + one + bytes(len(packed) - param.offset - param.size)


def test_overlapping_offsets_are_refused():
    with pytest.raises(ValueError, match="'b' at byte 4 overlaps"):
        struct_format([Param("a", "i64", 0), Param("b", "i32", 4)])


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'x' has the unknown kind 'i33'"):
        Param("x", "i33", 0)


def test_metadata_round_trip_through_json():
    params = [Param("x", "pointer", 0, dtype="f16", divisor=16), Param("s", "pointer", 8, hidden=True)]
    meta = KernelMetadata(
        "add",
        "add_0",
        "sm_90a",
        params,
        num_warps=8,
        shared_bytes=1024,
        registers=32,
        spill_bytes=0,
        warnings=["w"],
        attributes=LaunchAttributes((2, 1, 1), cooperative=True, programmatic=True),
        extra={"barriers": 3},
    )
    again = KernelMetadata.from_dict(json.loads(json.dumps(meta.to_dict())))
    assert again.to_dict() == meta.to_dict()
    assert again.num_threads == 256
    assert again.params[0].describe() == "pointer to f16"
    assert again.params[1].hidden
    assert again.attributes.cluster == (2, 1, 1)


def test_other_convention_is_refused():
    data = KernelMetadata("k", "k", "sm_80", []).to_dict()
    data["convention"] = 2
    with pytest.raises(ValueError, match="calling convention 2, this mimw speaks 1"):
        KernelMetadata.from_dict(data)


def test_plain_attributes():
    assert LaunchAttributes().plain
    assert not LaunchAttributes((1, 2, 1)).plain
    assert not LaunchAttributes(cooperative=True).plain
    assert not LaunchAttributes(programmatic=True).plain
