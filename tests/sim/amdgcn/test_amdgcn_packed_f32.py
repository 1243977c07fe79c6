"""Packed f32 instructions give what the single ones do, bit for bit, for every choice of halves and signs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.amdgcn.programs import execute

SOURCES = {"add": 2, "mul": 2, "fma": 3}
_BITS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3F800000]),
)


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=25)
@given(data=st.data())
def test_pairs_are_two_single_operations(name: str, data: st.DataObject) -> None:
    count = SOURCES[name]
    words = np.array(data.draw(st.lists(_BITS, min_size=6, max_size=6)), np.uint32).reshape(3, 2, 1).repeat(64, axis=2)
    flags = {key: data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
             for key in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")}  # fmt: skip
    text = " ".join(f"{key}:[{','.join(map(str, bits))}]" for key, bits in flags.items())
    vectors = {2 * i: words[i - 1] for i in range(1, count + 1)}
    pairs = ", ".join(f"v[{2 * i}:{2 * i + 1}]" for i in range(1, count + 1))
    single: list[str] = []
    for k, (pick, sign) in enumerate((("op_sel", "neg_lo"), ("op_sel_hi", "neg_hi"))):
        operands = [f"{'-' * flags[sign][i]}v{2 * (i + 1) + flags[pick][i]}" for i in range(count)]
        single.append(f"v_{name}_f32 v{102 + k}, {', '.join(operands)}")
    body = f"v_pk_{name}_f32 v[100:101], {pairs} {text}\n" + "\n".join(single)
    with np.errstate(all="ignore"):
        got = execute(body, vectors, out=4)
    pair, alone = got[:2], got[2:]
    nan = np.isnan(pair.view(np.float32)) & np.isnan(alone.view(np.float32))
    assert ((pair == alone) | nan).all()


def test_a_scalar_and_a_constant_for_both_halves() -> None:
    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    body = (
        "v_pk_mul_f32 v[100:101], v[2:3], s[4:5] op_sel_hi:[1,0]\n v_pk_add_f32 v[102:103], v[2:3], 1.0 op_sel_hi:[1,0]"
    )
    got = execute(body, {2: x.view(np.uint32)}, {4: 0x3F000000, 5: 0x40000000}, out=4).view(np.float32)
    np.testing.assert_array_equal(got, np.concatenate([x * np.float32(0.5), x + np.float32(1)]))
