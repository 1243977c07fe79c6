"""Mathematical functions, element by element. Bounds are those of the PTX ISA for the instructions they become (f32).

16-bit floats are computed in f32 and rounded once; f64 uses its own sequences.
"""

from __future__ import annotations

from mimw.ir.opdef import declare_elementwise

_F = ("float",)

declare_elementwise(
    "math.exp2", 1, "same", _F, "2**x by `ex2.approx.ftz`: denormal inputs and results are flushed.", ulp=2.0
)
declare_elementwise(
    "math.exp",
    1,
    "same",
    _F,
    "e**x as exp2(x*log2(e)).",
    ulp=4.0,
    bound="2 ulp + |x|*2^-23 relative, from the rounded product",
)
declare_elementwise(
    "math.log2", 1, "same", _F, "Base-2 logarithm by `lg2.approx.ftz`.", ulp=4.0, bound="2^-22 absolute near 1"
)
declare_elementwise(
    "math.log", 1, "same", _F, "Natural logarithm as log2(x)*ln(2).", ulp=4.0, bound="2^-21 absolute near 1"
)
declare_elementwise("math.sqrt", 1, "same", _F, "Square root by `sqrt.approx.ftz`; `math.sqrt_rn` is exact.", ulp=2.0)
declare_elementwise("math.sqrt_rn", 1, "same", _F, "Correctly rounded square root.")
declare_elementwise("math.rsqrt", 1, "same", _F, "1/sqrt(x) by `rsqrt.approx.ftz`.", ulp=2.0)
declare_elementwise(
    "math.sin", 1, "same", _F, "Sine with range reduction.", ulp=4.0, bound="2^-21 absolute for |x| < 100"
)
declare_elementwise(
    "math.cos", 1, "same", _F, "Cosine with range reduction.", ulp=4.0, bound="2^-21 absolute for |x| < 100"
)
declare_elementwise("math.tanh", 1, "same", _F, "Hyperbolic tangent, from exp2.", ulp=8.0, bound="2^-21 absolute")
declare_elementwise("math.erf", 1, "same", _F, "Error function by polynomial.", ulp=8.0, bound="2^-21 absolute")
declare_elementwise("math.floor", 1, "same", _F, "Largest integer not above x.", ulp=0.0)
declare_elementwise("math.ceil", 1, "same", _F, "Smallest integer not below x.", ulp=0.0)
declare_elementwise("math.rint", 1, "same", _F, "Nearest integer, ties to even.", ulp=0.0)
declare_elementwise("math.trunc", 1, "same", _F, "Integer part.", ulp=0.0)
