"""The exact remainder of floats (C fmod), whatever the quotient: in f64, 51 bits of the quotient a step."""

from __future__ import annotations

import math

from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering
from mimw.codegen.machine import Block, Edge
from mimw.codegen.shared.casts import cast
from mimw.codegen.shared.functions import with_sign_of
from mimw.ir.types import F64, I1

_STEP = 2.0**51


def remainder(ctx: Lowering, x: Lane, y: Lane) -> Lane:
    """x - trunc(x / y) * y without rounding; the sign of x; NaN for x infinite or y zero; x for y infinite."""
    b = ctx.b
    dtype = x.dtype
    wide, by = cast(b, x, F64), cast(b, y, F64)
    top, bottom = b.op("abs", F64, wide), b.op("abs", F64, by)
    infinity, zero = b.const(F64, math.inf), b.const(F64, 0.0)
    plain = b.op("and", I1, b.compare("lt", top, infinity), b.compare("gt", bottom, zero))
    plain = b.op("and", I1, plain, b.compare("lt", bottom, infinity))
    start = b.select(plain, top, zero)
    divisor = b.select(plain, bottom, b.const(F64, 1.0))
    rest = _reduce(ctx, start, divisor)
    # y infinite: x itself, unless that is infinite or NaN too.
    whole = b.op("and", I1, b.compare("eq", bottom, infinity), b.compare("lt", top, infinity))
    rest = b.select(plain, rest, b.select(whole, top, b.const(F64, math.nan)))
    return cast(b, with_sign_of(b, rest, wide), dtype)


def _reduce(ctx: Lowering, start: Lane, divisor: Lane) -> Lane:
    """start mod divisor for finite start >= 0 and divisor > 0.

    First the divisor is scaled up by powers of 2^51 to just below; then each step takes off a whole multiple of at most 2^51 times it, which
    is exact: the difference is a multiple of the divisor's last bit and less than the divisor.
    """
    b = ctx.b
    scale, unscale = b.const(F64, _STEP), b.const(F64, 1 / _STEP)
    t = Lane(F64, b.parameter(F64))
    grown = Lane(F64, b.parameter(F64))
    r = Lane(F64, b.parameter(F64))
    assert t.reg is not None and grown.reg is not None and r.reg is not None
    up, down, after = Block("grow", [t.reg]), Block("reduce", [r.reg, grown.reg]), Block("reduced")
    ctx.jump(up, [b.register(divisor)])
    b.open_loop()
    ctx.place(up)
    up.nounroll = True
    following = b.op("mul", F64, t, scale)
    more = b.compare("le", following, start)
    if not b.branches_diverge:  # lanes that are done stay as they are, and go round with the others
        following = b.select(more, following, t)
    first = b.register(start)
    ctx.branch(b.any_lane(more), Edge(up, [b.register(following)]), Edge(down, [first, t.reg]))
    b.close_loop()
    b.open_loop()
    ctx.place(down)
    down.nounroll = True
    quotient = b.op("trunc", F64, b.op("div_rz", F64, r, grown))
    rest = b.op("fma", F64, b.op("neg", F64, quotient), grown, r)
    again = b.compare("gt", grown, divisor)
    smaller = b.op("mul", F64, grown, unscale)
    if not b.branches_diverge:
        smaller = b.select(again, smaller, grown)
    ctx.branch(b.any_lane(again), Edge(down, [b.register(rest), b.register(smaller)]), Edge(after, []))
    b.close_loop()
    ctx.place(after)
    return rest
