"""vprintf in the PTX simulator: conversions, sizes, who prints, and what is refused."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import RunReport, run_ptx
from tests.sim.ptx.programs import frame

CALL = """{{ .param .b64 a; st.param.b64 [a], d40; .param .b64 b; st.param.b64 [b], d41; .param .b32 c;
{guard} call (c), vprintf, (a, b); ld.param.b32 r20, [c]; }}"""


def variable(name: str, text: str) -> str:
    data = [*text.encode(), 0]
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};"


def run_printf(text: str, values: bytes, guard: str = "", threads: int = 32, extra: str = "") -> RunReport:
    """Every lane that `guard` lets prints `text` with arguments from the global array `values`."""
    body = f"mov.u64 d40, text; mov.u64 d41, d0; setp.lt.u32 p1, r0, 1; {extra} {CALL.format(guard=guard)}"
    return run_ptx(frame(body, module=variable("text", text), threads=threads), None, (1, 1, 1), [array(values)])


def array(values: bytes) -> Any:
    return np.frombuffer(values.ljust(64, b"\0"), np.uint8).copy()


@pytest.mark.parametrize(
    ("text", "layout", "values", "shown"),
    [
        ("%d|%i|%5d|%-5d|%05d", "<iiiii", (-1, 2, -3, 4, 5), "-1|2|   -3|4    |00005"),
        ("%u %x %X %#x %o", "<5I", (4294967295, 255, 255, 16, 8), "4294967295 ff FF 0x10 10"),
        ("%lld %llu", "<qQ", (-(2**63), 2**64 - 1), "-9223372036854775808 18446744073709551615"),
        ("%d %lld %d", "<i4xqi", (1, 2, 3), "1 2 3"),  # 8-byte arguments are aligned
        ("%ld %hd %hhx", "<qii", (-5, 65537, 0x1FF), "-5 1 ff"),
        (
            "%f %.2f %e %g %8.3f",
            "<5d",
            (1.5, -2.125, 1e10, 0.0001, 3.14159),
            "1.500000 -2.12 1.000000e+10 0.0001    3.142",
        ),
        ("%f %f %08f", "<3d", (float("inf"), float("nan"), float("-inf")), "inf nan     -inf"),
        ("%f|%6f|%-6f", "<3d", (math.copysign(math.nan, -1),) * 3, "-nan|  -nan|-nan  "),
        ("%c%c 100%%", "<ii", (72, 105), "Hi 100%"),
        ("%p", "<Q", (0x7F00,), "0x7f00"),
        ("no arguments", "", (), "no arguments"),
    ],
)
def test_conversions(text: str, layout: str, values: tuple[Any, ...], shown: str) -> None:
    report = run_printf(text + "\n", struct.pack(layout, *values), "@p1")
    assert report.printed == [shown]


def test_strings_are_followed() -> None:
    body = "mov.u64 d40, text; mov.u64 d42, word; st.global.b64 [d0], d42; mov.u64 d41, d0; setp.lt.u32 p1, r0, 1;"
    module = variable("text", "<%s>\n") + variable("word", "w\u00f6rd")
    report = run_ptx(frame(body + CALL.format(guard="@p1"), module=module), None, (1, 1, 1), [array(b"")])
    assert report.printed == ["<w\u00f6rd>"]


def test_all_executing_lanes_print_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    report = run_printf("x\n", b"", threads=40)
    assert len(report.printed) == 40
    local = "mov.u64 d41, buffer; cvta.local.u64 d41, d41; st.local.b32 [buffer], r0; setp.gt.u32 p1, r0, 36;"
    text = frame(
        f".local .align 8 .b8 buffer[8]; mov.u64 d40, text; {local} {CALL.format(guard='@p1')}",
        module=variable("text", "lane %d;"),
        threads=40,
    )
    capsys.readouterr()
    assert run_ptx(text, None, (1, 1, 1), [array(b"")]).printed == ["lane 37;lane 38;lane 39;"]
    assert capsys.readouterr().out == "lane 37;lane 38;lane 39;"


def test_the_result_counts_the_arguments() -> None:
    out = array(struct.pack("<ii", 5, 6))
    body = f"mov.u64 d40, text; mov.u64 d41, d0; {CALL.format(guard='')} st.global.b32 [d0+8], r20;"
    run_ptx(frame(body, module=variable("text", "%d %% %d\n"), threads=1), None, (1, 1, 1), [out])
    assert out.view(np.int32)[2] == 2


@pytest.mark.parametrize(
    ("text", "extra", "message"),
    [
        ("%q\n", "", "unknown conversion %q"),
        ("%*d\n", "", "a width that is an argument"),
        ("%d\n", "add.u64 d41, d41, 2;", "misaligned"),
        ("%d\n", "add.u64 d41, d41, 64;", "outside every allocation"),
        ("%s\n", "", "no string lies at 0x0"),
        ("%d\n", "mov.u64 d40, 0;", "no string lies at 0x0"),
    ],
)
def test_faults(text: str, extra: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message) as caught:
        run_printf(text, b"", "@p1", extra=extra)
    assert caught.value.inst is not None and caught.value.inst.opcode == "call"
