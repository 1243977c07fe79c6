"""Inline assembly: the PTX simulator runs the text, one thread for each group of elements.

So the text means here what it means in the code; which elements lie together in a register is not said, here they are neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.codegen.ptx.inline_text import read_inline_text
from mimw.codegen.ptx.parser import parse
from mimw.diagnostics import CompilationError
from mimw.ir.asm_text import WIDTHS, entry_text, registers_of, split_constraints
from mimw.ir.core import OpBase
from mimw.ir.types import DType
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import run_ptx
from mimw.sim.tile.numerics import Array, numpy_dtype
from mimw.sim.tile.registry import computes

_THREADS = 128
_WORDS: dict[int, Any] = {16: np.uint16, 32: np.uint32, 64: np.uint64}


@computes("inline.asm")
@computes("inline.asm_volatile")
def _inline_asm(op: OpBase, *args: Array) -> Any:
    outs, ins = split_constraints(op.attrs["constraints"])
    pack: int = op.attrs["pack"]
    shape = np.shape(args[0]) if args else ()
    count = int(np.prod(shape))
    groups = -(-count // pack)
    threads = -(-groups // _THREADS) * _THREADS
    inputs = _inputs(args, ins, pack, threads)
    outputs = [np.zeros(threads, _WORDS[WIDTHS[c]]) for c in outs]
    try:
        text = read_inline_text(op.attrs["text"], op.attrs["constraints"])
        if text.addresses():
            raise ValueError(f"{text.addresses()} goes to memory, which the tile simulator does not give to the text")
        module = parse(_text(op.attrs["text"], outs, ins))
        run_ptx(module, None, (threads // _THREADS, 1, 1), [*outputs, *inputs])
    except ValueError as error:
        raise CompilationError("inline-asm", f"inline assembly: {error}", op.loc) from None
    except SimulationError as error:
        raise CompilationError("inline-asm", f"inline assembly: {error.message}", op.loc) from None
    results: list[Array] = []
    dtypes: tuple[DType, ...] = op.attrs["dtypes"]
    for dtype in dtypes:
        n = registers_of(dtype.bits, pack, outs)
        words = np.stack(outputs[:n], 1).reshape(-1)
        outs, outputs = outs[n:], outputs[n:]
        results.append(words.view(numpy_dtype(dtype))[:count].reshape(shape))
    return results[0] if len(results) == 1 else tuple(results)


def _inputs(args: tuple[Array, ...], letters: str, pack: int, threads: int) -> list[Array]:
    """One array a register, with an element for each thread; threads without work get zeros."""
    found: list[Array] = []
    for x in args:
        flat = np.zeros(threads * pack, x.dtype)
        flat[: x.size] = np.reshape(x, -1)
        n = registers_of(x.dtype.itemsize * 8, pack, letters)
        words = flat.view(_WORDS[WIDTHS[letters[0]]]).reshape(threads, n)
        found += [np.ascontiguousarray(words[:, i]) for i in range(n)]
        letters = letters[n:]
    return found


def _text(text: str, outs: str, ins: str) -> str:
    """The text between loads and stores of its operands."""
    names = [(f"asm_o{i}", c) for i, c in enumerate(outs)] + [(f"asm_i{i}", c) for i, c in enumerate(ins)]
    params = ", ".join(f".param .u64 p_{name}" for name, _ in names)
    places = [
        ".reg .b32 asm_t, asm_c;\nmov.u32 asm_t, %tid.x;\nmov.u32 asm_c, %ctaid.x;\n"
        f"mad.lo.s32 asm_t, asm_c, {_THREADS}, asm_t;\n"
    ]
    stores: list[str] = []
    for name, c in names:
        size = WIDTHS[c] // 8
        places.append(
            f".reg .b64 a_{name}, b_{name};\nld.param.u64 a_{name}, [p_{name}];\nmul.wide.u32 b_{name}, asm_t, {size};\n"
            f"add.s64 a_{name}, a_{name}, b_{name};\n"
        )
        if name.startswith("asm_i"):
            places.append(f"ld.global.b{WIDTHS[c]} {name}, [a_{name}];\n")
        else:
            stores.append(f"st.global.b{WIDTHS[c]} [a_{name}], {name};\n")
    return entry_text(text, outs, ins, "".join(places), "".join(stores), params).replace(
        f"({params})", f"({params})\n.reqntid {_THREADS}, 1, 1"
    )
