"""Text of the target's own assembly, applied to elements."""

from __future__ import annotations

from mimw.ir.asm_text import registers_of, split_constraints
from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, attr, attr_default, op, results, variadic
from mimw.ir.types import DType, PointerType, TensorType, Type, element_of, like


class _Asm(Op):
    """What both ops have in common: checks and results."""

    def infer(self) -> list[Type]:
        args: list[Value] = self.operands
        outs, ins = split_constraints(self.attrs["constraints"])
        pack: int = self.attrs["pack"]
        dtypes: tuple[DType, ...] = self.attrs["dtypes"]
        for types, letters in (([element_of(v.type) for v in args], ins), (list(dtypes), outs)):
            for t in types:
                if isinstance(t, PointerType) or t.kind == "bool":
                    raise ValueError(f"inline assembly takes and gives numbers, not {t}")
                letters = letters[registers_of(t.bits, pack, letters) :]
            if letters:
                raise ValueError(f"there are more constraints than operands need: {letters!r} are left")
        shape = args[0].type if args else dtypes[0]
        if any(isinstance(v.type, TensorType) != isinstance(shape, TensorType) for v in args):
            raise ValueError("operands of inline assembly have one shape")
        return [like(shape, d) for d in dtypes]


@op("inline.asm", layout="elementwise", bound="what the text computes")
class InlineAsmOp(_Asm):
    """Apply PTX `text` to `pack` elements at a time (which ones lie together is not said). `constraints` name the registers of the results,
    then those of the operands, in order; `dtypes` are the results' elements."""

    args: list[Value] = variadic()
    text: str = attr()
    constraints: str = attr()
    dtypes: tuple[DType, ...] = attr()
    pack: int = attr_default(default=1)
    outs: list[Value] = results()


@op("inline.asm_volatile", effects=[Effect("debug", "write")], layout="elementwise", bound="what the text computes")
class InlineAsmVolatileOp(_Asm):
    """As `inline.asm`, for texts that do more than compute their results: neither merged nor left away nor moved."""

    args: list[Value] = variadic()
    text: str = attr()
    constraints: str = attr()
    dtypes: tuple[DType, ...] = attr()
    pack: int = attr_default(default=1)
    outs: list[Value] = results()
