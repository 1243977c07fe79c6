"""Assembly in kernels: `inline_asm_elementwise`."""

from __future__ import annotations

from typing import Any

from mimw.ir.asm_text import split_constraints, substitute
from mimw.ir.builder import current_builder
from mimw.ir.ops.inline import InlineAsmOp, InlineAsmVolatileOp
from mimw.language import semantic
from mimw.language.core import as_value, const_bool, const_dtype, const_int, const_str, is_tuple, tensor, unwrap
from mimw.language.errors import fail


def inline_asm_elementwise(asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int) -> Any:
    """Apply PTX to the elements of `args` (broadcast together), `pack` at a time: tiles of `dtype`, or of several for a tuple of dtypes.

    ``$0``, ``$1``, ... are the registers of the results, then those of the arguments, as `constraints` say: "=r,=r,r,r", with h for registers
    of 16 bits, r 32, l 64, f f32, d f64. Elements of fewer bits lie together in one register: 16-bit ones take ``pack=2`` with r.
    The text has neither labels nor guarded instructions; temporaries are declared in braces. NVIDIA only; instructions that mimw does
    not know are refused, in the tile simulator also those that go to memory. A text that is not `is_pure` is neither merged with another nor left away.
    """
    what = "inline_asm_elementwise"
    b = current_builder(what)
    text, letters = const_str(asm, f"{what}: asm"), const_str(constraints, f"{what}: constraints")
    given = args if is_tuple(args := unwrap(args)) else (args,)
    values = [as_value(x, f"{what}: an argument") for x in given]
    shape: tuple[int, ...] = ()
    for v in values:
        shape = semantic.broadcast_shapes(shape, semantic.operand_shape(v), what)
    values = [semantic.broadcast_to(v, shape) if shape else v for v in values]
    many = is_tuple(unwrap(dtype))
    dtypes = tuple(const_dtype(d, f"{what}: dtype") for d in (unwrap(dtype) if many else (dtype,)))
    n = const_int(pack, f"{what}: pack")
    if n < 1 or not dtypes:
        fail("bad-argument", f"{what}: pack is {n}, and there are {len(dtypes)} results")
    kind = InlineAsmOp if const_bool(is_pure, f"{what}: is_pure") else InlineAsmVolatileOp
    try:
        op = b.insert(kind(values, text, letters, dtypes, n, loc=b.loc))
        substitute(text, [""] * sum(map(len, split_constraints(letters))))
    except ValueError as error:
        return fail("inline-asm", f"{what}: {error}")
    outs = tuple(tensor(v) for v in op.outs)
    return outs if many else outs[0]
