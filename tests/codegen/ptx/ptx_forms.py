# ruff: noqa: E501
"""PTX forms that must assemble, and forms that must be refused, by family and target.

Registers of the forms: %p pred, %h b16, %r b32, %rd b64, %f f32, %fd f64, %q b128; `smem` is shared, `par` the parameter (u64).
Vectors are spelled ``{r 0..3}`` for ``{%r0, %r1, %r2, %r3}``.
"""

from __future__ import annotations

import re

ACCEPTED: list[tuple[str, str, str]] = [
    (
        "integer",
        "sm_80",
        """
add.s32 %r0, %r1, %r2; add.u16 %h0, %h1, 3; add.sat.s32 %r0, %r1, -7; add.cc.u32 %r0, %r1, %r2; addc.cc.u32 %r0, %r1, %r2
addc.u32 %r0, %r1, %r2; sub.s64 %rd0, %rd1, %rd2; sub.cc.u32 %r0, %r1, %r2; subc.u32 %r0, %r1, %r2; mul.lo.s32 %r0, %r1, 12
mul.hi.u32 %r0, %r1, %r2; mul.hi.s64 %rd0, %rd1, %rd2; mul.wide.s32 %rd0, %r1, 4; mul.wide.u16 %r0, %h1, %h2
mad.lo.s32 %r0, %r1, %r2, %r3; mad.hi.u32 %r0, %r1, %r2, %r3; mad.wide.u32 %rd0, %r1, %r2, %rd3; mad.hi.sat.s32 %r0, %r1, %r2, %r3
mad.lo.cc.u32 %r0, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, %r3; mul24.lo.s32 %r0, %r1, %r2; mad24.lo.u32 %r0, %r1, %r2, %r3
sad.s32 %r0, %r1, %r2, %r3; div.s32 %r0, %r1, %r2; rem.u64 %rd0, %rd1, %rd2; abs.s32 %r0, %r1; neg.s16 %h0, %h1
min.u32 %r0, %r1, %r2; max.s64 %rd0, %rd1, %rd2; popc.b32 %r0, %r1; popc.b64 %r0, %rd1; clz.b32 %r0, %r1; bfind.u32 %r0, %r1
bfind.shiftamt.s64 %r0, %rd1; fns.b32 %r0, %r1, %r2, %r3; brev.b64 %rd0, %rd1; bfe.u32 %r0, %r1, 3, 5; bfe.s64 %rd0, %rd1, %r2, %r3
bfi.b32 %r0, %r1, %r2, 8, 8; bfi.b64 %rd0, %rd1, %rd2, %r3, %r4; dp4a.u32.s32 %r0, %r1, %r2, %r3; dp2a.lo.s32.u32 %r0, %r1, %r2, %r3
bmsk.clamp.b32 %r0, %r1, %r2; szext.wrap.s32 %r0, %r1, %r2
and.b32 %r0, %r1, 0xff; or.b64 %rd0, %rd1, %rd2; xor.b16 %h0, %h1, %h2; not.b32 %r0, %r1; and.pred %p0, %p1, %p2; not.pred %p0, %p1
cnot.b32 %r0, %r1; lop3.b32 %r0, %r1, %r2, %r3, 0xe8; shf.l.wrap.b32 %r0, %r1, %r2, %r3; shf.r.clamp.b32 %r0, %r1, %r2, 7
shl.b32 %r0, %r1, 2; shl.b64 %rd0, %rd1, %r2; shr.s32 %r0, %r1, 31; shr.u64 %rd0, %rd1, 3; shr.b16 %h0, %h1, 2
""",
    ),
    (
        "float",
        "sm_80",
        """
add.f32 %f0, %f1, %f2; add.rn.f32 %f0, %f1, 0f3F800000; add.rz.ftz.sat.f32 %f0, %f1, %f2; add.rn.f64 %fd0, %fd1, 0d3FF0000000000000
sub.rm.f32 %f0, %f1, %f2; mul.rp.f32 %f0, %f1, %f2; mul.f16 %h0, %h1, %h2; add.rn.ftz.sat.f16x2 %r0, %r1, %r2
fma.rn.f32 %f0, %f1, %f2, %f3; fma.rn.ftz.sat.f32 %f0, %f1, %f2, %f3; fma.rz.f64 %fd0, %fd1, %fd2, %fd3; fma.rn.f16 %h0, %h1, %h2, %h3
fma.rn.bf16 %h0, %h1, %h2, %h3; fma.rn.bf16x2 %r0, %r1, %r2, %r3; fma.rn.relu.f16x2 %r0, %r1, %r2, %r3; fma.rn.relu.bf16x2 %r0, %r1, %r2, %r3
mad.rn.f32 %f0, %f1, %f2, %f3; div.rn.f32 %f0, %f1, %f2; div.approx.ftz.f32 %f0, %f1, %f2; div.full.f32 %f0, %f1, %f2
div.full.ftz.f32 %f0, %f1, %f2; div.rn.f64 %fd0, %fd1, %fd2; rcp.approx.ftz.f32 %f0, %f1; rcp.rn.f32 %f0, %f1; rcp.rn.f64 %fd0, %fd1
rcp.approx.ftz.f64 %fd0, %fd1; sqrt.approx.f32 %f0, %f1; sqrt.rn.ftz.f32 %f0, %f1; sqrt.rn.f64 %fd0, %fd1
rsqrt.approx.ftz.f32 %f0, %f1; rsqrt.approx.f64 %fd0, %fd1; rsqrt.approx.ftz.f64 %fd0, %fd1; sin.approx.f32 %f0, %f1
cos.approx.ftz.f32 %f0, %f1; lg2.approx.ftz.f32 %f0, %f1; ex2.approx.ftz.f32 %f0, %f1; ex2.approx.f32 %f0, %f1; ex2.approx.f16x2 %r0, %r1
tanh.approx.f32 %f0, %f1; tanh.approx.f16x2 %r0, %r1; abs.f32 %f0, %f1; abs.ftz.f32 %f0, %f1; neg.f64 %fd0, %fd1; neg.bf16x2 %r0, %r1
abs.f16x2 %r0, %r1; min.f32 %f0, %f1, %f2; max.NaN.f32 %f0, %f1, %f2; min.ftz.NaN.f32 %f0, %f1, %f2; max.f64 %fd0, %fd1, %fd2
max.bf16x2 %r0, %r1, %r2; min.NaN.f16x2 %r0, %r1, %r2; max.NaN.bf16 %h0, %h1, %h2; copysign.f32 %f0, %f1, %f2
testp.infinite.f32 %p0, %f1; testp.notanumber.f64 %p0, %fd1
""",
    ),
    (
        "float",
        "sm_90a",
        """
add.rn.bf16x2 %r0, %r1, %r2; mul.bf16 %h0, %h1, %h2; sub.bf16x2 %r0, %r1, %r2; ex2.approx.ftz.bf16x2 %r0, %r1; tanh.approx.bf16x2 %r0, %r1
max.xorsign.abs.f32 %f0, %f1, %f2; min.NaN.xorsign.abs.bf16x2 %r0, %r1, %r2; add.u16x2 %r0, %r1, %r2; max.s16x2 %r0, %r1, %r2
min.relu.s16x2 %r0, %r1, %r2; max.relu.s32 %r0, %r1, %r2; fma.rn.oob.f16x2 %r0, %r1, %r2, %r3; lop3.or.b32 %r0|%p0, %r1, %r2, %r3, 0x3f, %p1
""",
    ),
    (
        "float",
        "sm_100a",
        """
add.rn.f32x2 %rd0, %rd1, %rd2; mul.rn.ftz.f32x2 %rd0, %rd1, %rd2; fma.rn.f32x2 %rd0, %rd1, %rd2, %rd3; sub.rn.f32x2 %rd0, %rd1, %rd2
max.f32 %f0, %f1, %f2, %f3; min.NaN.abs.f32 %f0, %f1, %f2, %f3; fma.rn.f32.bf16 %f0, %h1, %h2, %f3; add.f32.f16 %f0, %h1, %f2
redux.sync.max.f32 %f0, %f1, -1; redux.sync.min.abs.NaN.f32 %f0, %f1, %r1
""",
    ),
    (
        "compare",
        "sm_80",
        """
setp.eq.s32 %p0, %r1, %r2; setp.lt.u64 %p0|%p1, %rd1, 5; setp.gtu.ftz.f32 %p0, %f1, %f2; setp.ne.and.s32 %p0, %r1, 0, %p1
setp.ge.or.u32 %p0|%p1, %r1, %r2, !%p2; setp.num.f64 %p0, %fd1, %fd2; setp.nan.f32 %p0, %f1, %f2; setp.eq.f16 %p0, %h1, %h2
setp.lt.f16x2 %p0|%p1, %r1, %r2; setp.hi.u32 %p0, %r1, %r2; setp.equ.f32 %p0, %f1, %f2; setp.eq.b32 %p0, %r1, %r2; setp.ne.b16 %p0, %h1, 0
set.eq.u32.s32 %r0, %r1, %r2; set.lt.f32.f32 %f0, %f1, %f2; set.gt.and.s32.u32 %r0, %r1, %r2, %p0; set.eq.f16x2.f16x2 %r0, %r1, %r2
selp.b32 %r0, %r1, %r2, %p0; selp.f32 %f0, 0f3F800000, 0f00000000, %p0; selp.u64 %rd0, 1, 0, %p0; selp.b16 %h0, %h1, %h2, %p0
slct.f32.s32 %f0, %f1, %f2, %r3; slct.u64.f32 %rd0, %rd1, %rd2, %f3
setp.neu.and.ftz.f16 %p0, %h1, %h2, %p1
""",
    ),
    (
        "compare",
        "sm_90a",
        """
setp.gt.bf16 %p0, %h1, %h2; setp.eq.bf16x2 %p0|%p1, %r1, %r2; setp.lt.and.bf16x2 %p0|%p1, %r1, %r2, %p2; set.eq.bf16.bf16 %h0, %h1, %h2
set.gt.bf16x2.bf16x2 %r0, %r1, %r2
""",
    ),
    (
        "move",
        "sm_80",
        """
mov.u32 %r0, %tid.x; mov.b32 %r0, 0x3f; mov.f32 %f0, 0f3F800000; mov.b64 %rd0, {%r1, %r2}; mov.b64 {%r1, %r2}, %rd0; mov.pred %p0, %p1
mov.b32 %r0, {%h1, %h2}; mov.b32 {%h1, %h2}, %r0; mov.u64 %rd0, %clock64; mov.u32 %r0, smem; mov.b16 %h0, 5; mov.f64 %fd0, 0d0000000000000000
mov.b32 %f0, %r1; mov.b32 %r0, %f1; mov.b64 %rd0, %fd1; mov.u32 %r0, %laneid; mov.u32 %r0, WARP_SZ; mov.b64 {_, %r1}, %rd0; mov.pred %p0, 1
mov.b32 %f0, 0; mov.b32 %r1, -1; mov.b64 %rd2, 0x12F0000000000000
prmt.b32 %r0, %r1, %r2, 0x5410; prmt.b32.f4e %r0, %r1, %r2, %r3; cvta.to.global.u64 %rd0, %rd1; cvta.shared.u64 %rd0, %rd1
isspacep.shared %p0, %rd1; cvta.local.u64 %rd0, %rd1; prefetch.global.L2 [%rd0]; prefetchu.L1 [%rd0]; prefetch.global.L2::evict_last [%rd0]
applypriority.global.L2::evict_normal [%rd0], 128; discard.global.L2 [%rd0], 128; createpolicy.fractional.L2::evict_last.b64 %rd0, 1.0
createpolicy.fractional.L2::evict_first.b64 %rd0; createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd0, 0f3F000000
createpolicy.range.global.L2::evict_last.b64 %rd0, [%rd1], 0x100000, 0x200000; createpolicy.cvt.L2.b64 %rd0, 0x12F0000000000000
""",
    ),
    (
        "move",
        "sm_90a",
        """
mapa.shared::cluster.u32 %r0, %r1, %r2; mapa.u64 %rd0, %rd1, 1; getctarank.shared::cluster.u32 %r0, %r1; mov.b128 %q0, {%rd0, %rd1}
mov.b128 {%rd0, %rd1}, %q0; isspacep.shared::cluster %p0, %rd1; mov.pred %p0, %is_explicit_cluster; mov.u32 %r0, %cluster_ctarank
prefetch.tensormap [%rd0]; prefetch.param.tensormap [par]; cvta.param.u64 %rd0, %rd1; cvta.to.shared::cta.u64 %rd0, %rd1
""",
    ),
    (
        "convert",
        "sm_80",
        """
cvt.s32.s16 %r0, %h1; cvt.u64.u32 %rd0, %r1; cvt.u32.u64 %r0, %rd1; cvt.rn.f32.s32 %f0, %r1; cvt.rzi.s32.f32 %r0, %f1
cvt.rni.ftz.s32.f32 %r0, %f1; cvt.rmi.f32.f32 %f0, %f1; cvt.rpi.f64.f64 %fd0, %fd1; cvt.f32.f16 %f0, %h1; cvt.rn.f16.f32 %h0, %f1
cvt.rn.bf16.f32 %h0, %f1; cvt.f64.f32 %fd0, %f1; cvt.rn.f32.f64 %f0, %fd1; cvt.sat.u8.s32 %r0, %r1; cvt.u32.u8 %r0, %h1
cvt.s64.s32 %rd0, %r1; cvt.rn.bf16x2.f32 %r0, %f1, %f2; cvt.rn.relu.f16x2.f32 %r0, %f1, %f2; cvt.rz.bf16x2.f32 %r0, %f1, %f2
cvt.rna.tf32.f32 %r0, %f1; cvt.rn.f16.s32 %h0, %r1; cvt.rzi.u64.f64 %rd0, %fd1; cvt.sat.f32.f32 %f0, %f1; cvt.u16.u32 %h0, %r1
cvt.pack.sat.u16.s32 %r0, %r1, %r2; cvt.pack.sat.s8.s32.b32 %r0, %r1, %r2, %r3; cvt.ftz.f32.f16 %f0, %h1; cvt.s32.s8 %r0, %r1
""",
    ),
    (
        "convert",
        "sm_89",
        """
cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2; cvt.rn.satfinite.relu.e5m2x2.f32 %h0, %f1, %f2; cvt.rn.f16x2.e4m3x2 %r0, %h1
cvt.rn.satfinite.e5m2x2.f16x2 %h0, %r1; cvt.rn.relu.f16x2.e5m2x2 %r0, %h1
""",
    ),
    (
        "convert",
        "sm_90a",
        """
cvt.f32.bf16 %f0, %h1; cvt.rn.bf16.s32 %h0, %r1; cvt.rn.tf32.f32 %r0, %f1; cvt.rz.relu.tf32.f32 %r0, %f1; cvt.rzi.s32.bf16 %r0, %h1
cvt.rn.bf16.f16 %h0, %h1; cvt.rna.satfinite.tf32.f32 %r0, %f1; cvt.rn.satfinite.f16x2.f32 %r0, %f1, %f2
""",
    ),
    (
        "convert",
        "sm_100a",
        """
cvt.rn.satfinite.e2m3x2.f32 %h0, %f1, %f2; cvt.rn.satfinite.relu.e3m2x2.f32 %h0, %f1, %f2; cvt.rp.satfinite.ue8m0x2.f32 %h0, %f1, %f2
cvt.rs.satfinite.e4m3x4.f32 %r0, {%f0, %f1, %f2, %f3}, %r1; cvt.rs.bf16x2.f32 %r0, %f1, %f2, %r3; cvt.rn.bf16x2.ue8m0x2 %r0, %h1
cvt.rn.f16x2.e2m3x2 %r0, %h1; cvt.rn.satfinite.e2m1x2.f32 %b0, %f1, %f2; cvt.rn.f16x2.e2m1x2 %r0, %b0; cvt.rz.ue8m0x2.bf16x2 %h0, %r1
cvt.rs.satfinite.e2m1x4.f32 %h0, {%f0, %f1, %f2, %f3}, %r1
""",
    ),
    (
        "memory",
        "sm_80",
        """
ld.param.u64 %rd0, [par]; ld.global.b32 %r0, [%rd0]; ld.global.v4.b32 {r 0..3}, [%rd0+16]; ld.global.v2.f64 {%fd0, %fd1}, [%rd0]
ld.global.nc.v4.f32 {f 0..3}, [%rd0]; ld.global.ca.u8 %r0, [%rd0]; ld.global.cg.s16 %r0, [%rd0+-4]; ld.volatile.global.u32 %r0, [%rd0]
ld.relaxed.gpu.global.u32 %r0, [%rd0]; ld.acquire.sys.global.b64 %rd1, [%rd0]; ld.shared.b16 %h0, [%r0]; ld.shared.v4.b32 {r 0..3}, [smem+16]
ld.global.L1::no_allocate.L2::128B.b32 %r0, [%rd0]; ld.global.nc.L1::evict_last.L2::256B.v4.b32 {r 0..3}, [%rd0]; ld.u32 %r0, [%rd0]
ld.global.L1::evict_first.L2::cache_hint.v4.b32 {r 0..3}, [%rd0], %rd1; ld.local.u32 %r0, [%rd0]; ld.const.f32 %f0, [%rd0]; ldu.global.u32 %r0, [%rd0]
ld.global.nc.L2::cache_hint.f32 %f0, [%rd0], %rd1; ld.global.b32 {%r0}, [%rd0]; ld.weak.global.u32 %r0, [%rd0]; ld.global.cv.u32 %r0, [%rd0]
ld.global.s8 %r0, [%rd0]; ld.global.u8 %h0, [%rd0]; ld.shared.u32 %rd1, [%r0]
st.global.b32 [%rd0], %r0; st.global.v4.f32 [%rd0+16], {f 0..3}; st.shared.u8 [%r0], %r1; st.global.cs.b64 [%rd0], %rd1; st.global.wt.u32 [%rd0], %r1
st.release.gpu.global.u32 [%rd0], %r0; st.relaxed.sys.global.b64 [%rd0], %rd1; st.volatile.shared.u32 [%r0], %r1; st.global.b32 [%rd0], {%r0}
st.global.L1::no_allocate.b32 [%rd0], %r0; st.global.L2::cache_hint.v2.b32 [%rd0], {%r0, %r1}, %rd1; st.shared.v2.b32 [smem], {%r0, 5}; st.global.u32 [%rd0], 7
st.global.b16 [%rd0], %h0; st.b64 [%rd0], %rd1; st.shared.b32 [%r0+4], %f0; st.local.u32 [%rd0], %r0
""",
    ),
    (
        "memory",
        "sm_90a",
        """
ld.shared::cluster.u32 %r0, [%r1]; st.shared::cluster.v2.b32 [%r0], {%r1, %r2}; ld.shared::cta.b32 %r0, [%r1]; ld.param::entry.u64 %rd0, [par]
ld.global.b128 %q0, [%rd0]; st.global.b128 [%rd0], %q0; ld.acquire.cluster.shared::cluster.u32 %r0, [%r1]; st.release.cluster.shared::cta.u32 [%r0], %r1
ld.mmio.relaxed.sys.global.u32 %r0, [%rd0]
st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r0], %r1, [%r2]; st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r0], {r 0..3}, [%r2]
st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 [%r0], {%rd0, %rd1}, [%r2]
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r0], %r1, [%r2]
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.or.b32 [%r0], %r1, [%r2]
""",
    ),
    (
        "memory",
        "sm_100a",
        """
ld.global.v8.f32 {f 0..7}, [%rd0]; ld.global.v8.b32 {r 0..7}, [%rd0]; ld.global.v4.b64 {rd 0..3}, [%rd0]; st.global.v8.b32 [%rd0], {r 0..7}
st.bulk.weak.shared::cta [%rd0], %rd1, 0; st.async.release.gpu.global.u32 [%rd0], %r0
""",
    ),
    (
        "atomic",
        "sm_80",
        """
atom.global.add.u32 %r0, [%rd0], %r1; atom.relaxed.gpu.global.add.f32 %f0, [%rd0], %f1; atom.global.gpu.acq_rel.add.u32 %r0, [%rd0], %r1
atom.global.add.noftz.f16x2 %r0, [%rd0], %r1; atom.global.max.s64 %rd1, [%rd0], %rd2; atom.shared.cas.b32 %r0, [%r1], %r2, %r3
atom.acquire.sys.global.exch.b64 %rd1, [%rd0], %rd2; atom.global.inc.u32 %r0, [%rd0], 5; atom.and.b32 %r0, [%rd0], %r1; atom.add.acq_rel.gpu.u32 %r0, [%rd0], %r1; atom.global.cas.b16 %h0, [%rd0], %h1, %h2
atom.global.acq_rel.gpu.cas.b64 %rd1, [%rd0], %rd2, %rd3; atom.add.f64 %fd0, [%rd0], %fd1; atom.shared.xor.b64 %rd0, [%r1], %rd2; atom.global.min.u32 _, [%rd0], %r1
red.global.add.f32 [%rd0], %f1; red.relaxed.gpu.global.add.u64 [%rd0], %rd1; red.global.add.noftz.f16 [%rd0], %h1; red.shared.or.b32 [%r0], %r1
red.release.gpu.global.max.s32 [%rd0], %r1; red.global.gpu.relaxed.add.u32 [%rd0], 1; atom.global.add.L2::cache_hint.u32 %r0, [%rd0], %r1, %rd1
""",
    ),
    (
        "atomic",
        "sm_90a",
        """
atom.global.add.noftz.bf16x2 %r0, [%rd0], %r1; atom.relaxed.gpu.global.add.v4.f32 {f 0..3}, [%rd0], {f 4..7}; red.relaxed.gpu.global.add.v2.f32 [%rd0], {%f0, %f1}
red.relaxed.gpu.global.add.noftz.v4.bf16x2 [%rd0], {r 0..3}; red.relaxed.gpu.global.add.noftz.v8.f16 [%rd0], {h 0..7}; atom.global.exch.b128 %q0, [%rd0], %q1
atom.global.cas.b128 %q0, [%rd0], %q1, %q2; red.global.add.noftz.bf16 [%rd0], %h1; atom.shared::cluster.add.u32 %r0, [%r1], %r2
multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {f 0..3}, [%rd0]; multimem.st.relaxed.sys.global.v4.f32 [%rd0], {f 0..3}; multimem.red.relaxed.sys.global.add.v4.f32 [%rd0], {f 0..3}
multimem.ld_reduce.weak.global.add.acc::f32.v4.bf16x2 {r 0..3}, [%rd0]; multimem.red.release.gpu.global.min.s32 [%rd0], %r0
""",
    ),
    (
        "copy",
        "sm_80",
        """
cp.async.ca.shared.global [%r0], [%rd0], 4; cp.async.cg.shared.global [%r0], [%rd0], 16; cp.async.cg.shared.global [%r0+16], [%rd0], 16, %r1
cp.async.ca.shared.global.L2::128B [smem+8], [%rd0+8], 8; cp.async.cg.shared.global.L2::cache_hint [%r0], [%rd0], 16, %rd1
cp.async.cg.shared.global.L2::cache_hint.L2::256B [%r0], [%rd0], 16, %r1, %rd1; cp.async.ca.shared.global [%r0], [%rd0], 4, %p0
cp.async.commit_group; cp.async.wait_group 2; cp.async.wait_all; cp.async.mbarrier.arrive.noinc.shared.b64 [%r0]; cp.async.mbarrier.arrive.b64 [%rd0]
cp.async.ca.shared.global [%r0], [%rd0], 16, 8
""",
    ),
    (
        "copy",
        "sm_90a",
        """
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0], %r1, [%r2]
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r0], [%rd0], 256, [%r2], %h0
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r0], [%rd0], %r1, [%r2], %rd1
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [smem], [%rd0], %r1, [%r2]
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r0], [%r1], %r2, [%r3]; cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r0], %r1
cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%rd0], [%r0], %r1, %rd1; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0
cp.async.bulk.wait_group.read 1; cp.async.bulk.prefetch.L2.global [%rd0], %r1; cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd0], 64, %rd1
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r0], %r1; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%rd0], [%r0], %r1
cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r0], [%r1], %r2, [%r3]
cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f16 [%rd0], [%r0], %r1
cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1}], [%r2]
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0+1024], [%rd0, {%r1, 64}], [%r2+8]
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%r0], [%rd0, {%r1, %r2}], [%r3], %h0, %rd1
cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r0], [%rd0, {%r1, %r2, %r3}], [%r4], %rd1
cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0, {r 1..5}], [%r2]
cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r0], [%rd0, {r 1..4}], [%r5], {%h0, %h1}
cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [smem], [%rd0, {%r1, %r2}], [%r3]
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {%r1, %r2}], [%r0]; cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%rd0, {%r1, %r2}], [%r0], %rd1
cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd0, {r 1..4}], [%r0]
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd0, {%r1, %r2}], [%r0]; cp.reduce.async.bulk.tensor.3d.global.shared::cta.xor.bulk_group [%rd0, {%r1, %r2, %r3}], [%r0]
cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd0, {%r1, %r2}]; cp.async.bulk.prefetch.tensor.3d.L2.global.L2::cache_hint [%rd0, {%r1, %r2, 0}], %rd1
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r0], %rd1; tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r0], 1, %r1
tensormap.replace.tile.rank.global.b1024.b32 [%rd0], %r1; tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r0], 6; tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r0], 0, %rd1
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd0], [%r0], 128
""",
    ),
    (
        "copy",
        "sm_100a",
        """
cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [%r0], [%rd0, {r 1..5}], [%r6]
cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r0], [%rd0, {r 1..5}], [%r6]
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd0, {r 1..5}], [%r6]
cp.async.bulk.tensor.4d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes [%r0], [%rd0, {r 1..4}], [%r5], {%h0, %h1}
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%r0], [%rd0, {%r1, %r2}], [%r3]
cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r0], %r1, %h0
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], [%r1]
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r0], [%r1]
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p0, %q0; clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r0, %r1, %r2, _}, %q0
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r0, %q0
""",
    ),
    (
        "barrier",
        "sm_80",
        """
bar.sync 0; bar.sync 1, 128; bar.sync %r0, %r1; bar.arrive 2, 64; barrier.sync 0; barrier.sync.aligned 3, 64; barrier.arrive.aligned 2, 64; barrier.cta.sync 0
bar.red.popc.u32 %r0, 0, %p0; bar.red.and.pred %p0, 0, 64, !%p1; barrier.red.or.pred %p0, 0, %p1; bar.warp.sync -1; bar.warp.sync %r0; bar.cta.sync 0
membar.gl; membar.cta; membar.sys; fence.sc.gpu; fence.acq_rel.cta; fence.acq_rel.sys; fence.proxy.alias; fence.gpu
vote.sync.all.pred %p0, %p1, -1; vote.sync.ballot.b32 %r0, !%p1, %r1; match.any.sync.b32 %r0, %r1, -1; match.all.sync.b64 %r0|%p0, %rd1, %r1; activemask.b32 %r0
redux.sync.add.s32 %r0, %r1, -1; redux.sync.or.b32 %r0, %r1, %r2; redux.sync.min.u32 %r0, %r1, -1
shfl.sync.bfly.b32 %r0, %r1, 16, 31, -1; shfl.sync.idx.b32 %r0|%p0, %r1, %r2, 0x1f, 0xffffffff; shfl.sync.up.b32 %r0, %r1, %r2, 0, -1; shfl.sync.down.b32 %f0, %f1, 1, 31, %r3
mbarrier.init.shared.b64 [%r0], 4; mbarrier.inval.shared.b64 [%r0]; mbarrier.arrive.shared.b64 %rd0, [%r0]; mbarrier.arrive.noComplete.shared.b64 %rd0, [%r0], 1
mbarrier.test_wait.shared.b64 %p0, [%r0], %rd0; mbarrier.test_wait.parity.shared.b64 %p0, [%r0], %r1; mbarrier.pending_count.b64 %r0, %rd0; mbarrier.arrive_drop.shared.b64 %rd0, [%r0]
mbarrier.init.b64 [%rd0], %r1; nanosleep.u32 100; nanosleep.u32 %r0; pmevent 3
""",
    ),
    (
        "barrier",
        "sm_90a",
        """
mbarrier.init.shared::cta.b64 [smem+8], 1; mbarrier.arrive.shared::cta.b64 _, [%r0]; mbarrier.arrive.shared::cta.b64 %rd0, [%r0], 2; mbarrier.arrive.shared::cluster.b64 _, [%r0]
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r0]; mbarrier.arrive.release.cta.shared::cta.b64 %rd0, [%r0]; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], %r1
mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r0], 1024; mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%r0], %r1
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], %r1; mbarrier.complete_tx.shared::cta.b64 [%r0], %r1; mbarrier.try_wait.shared::cta.b64 %p0, [%r0], %rd0
mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], %r1; mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], %r1, 1000; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r0], 1
mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p0, [%r0], %r1; mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p0, [%r0], 0; mbarrier.arrive_drop.expect_tx.shared::cta.b64 _, [%r0], 64
cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r0]
barrier.cluster.arrive; barrier.cluster.arrive.release.aligned; barrier.cluster.arrive.relaxed; barrier.cluster.wait; barrier.cluster.wait.acquire.aligned
elect.sync %r0|%p0, -1; elect.sync _|%p0, %r1; fence.proxy.async; fence.proxy.async.shared::cta; fence.proxy.async.global; fence.mbarrier_init.release.cluster
fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128; fence.proxy.tensormap::generic.release.gpu; fence.acq_rel.cluster; fence.acquire.cta; fence.release.gpu
fence.acquire.sync_restrict::shared::cluster.cluster; fence.release.sync_restrict::shared::cta.cluster
fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster; fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster
griddepcontrol.wait; griddepcontrol.launch_dependents; setmaxnreg.inc.sync.aligned.u32 232; setmaxnreg.dec.sync.aligned.u32 40
""",
    ),
    (
        "matrix",
        "sm_80",
        """
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 4..7}; mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 0..3}
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r0, %r1}, {r 2..5}, {%r6, %r7}, {%r8, %r9}; mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {f 0..3}, {%r0, %r1}, {%r4}, {f 4..7}
mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {f 0..3}, {%r0, %r1}, {%r4}, {f 4..7}; mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 4..7}
mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {f 0..3}, {%r0, %r1}, {%r4}, {f 4..7}; mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {r 0..3}, {r 4..7}, {%r8, %r9}, {r 0..3}
mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 {r 0..3}, {%r4, %r5}, {%r8}, {r 0..3}; mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {r 0..3}, {r 4..7}, {%r8, %r9}, {r 0..3}
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd0, %fd1}, {%fd2}, {%fd3}, {%fd4, %fd5}; mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {r 0..3}, {r 4..7}, {%r8, %r9}, {r 0..3}
mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r0, %r1}, {%r2}, {%r3}, {%r4, %r5}; mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {f 0..3}, {r 0..3}, {r 4..7}, {f 0..3}, %r8, 0
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r1]; ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r0, %r1}, [%r2]; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r 0..3}, [%r4+16]
movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1
""",
    ),
    (
        "matrix",
        "sm_89",
        """
mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 4..7}; mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 4..7}
""",
    ),
    (
        "matrix",
        "sm_90a",
        """
mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {fd 0..3}, {fd 0..7}, {fd 8..11}, {fd 0..3}; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r0], {r 1..4}
stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r0], {%r1}; stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [smem+16], {%r1, %r2}
mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16 {%r0, %r1}, {r 2..5}, {%r6, %r7}, {%r8, %r9}
wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f 0..3}, %rd0, %rd1, %p0, 1, 1, 0, 1; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f 0..3}, {r 0..3}, %rd1, 1, 1, -1, 0
wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 {r 0..15}, %rd0, %rd1, %p0, 1, 1, 0, 0; wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {f 0..63}, %rd0, %rd1, %p0, 1, 1
wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e5m2 {f 0..15}, %rd0, %rd1, %p0, 1, 1; wgmma.mma_async.sync.aligned.m64n32k32.f16.e5m2.e5m2 {r 0..7}, {r 8..11}, %rd1, %p0, 1, 1
wgmma.mma_async.sync.aligned.m64n24k32.s32.s8.u8 {r 0..11}, %rd0, %rd1, %p0; wgmma.mma_async.sync.aligned.m64n16k32.s32.u8.u8.satfinite {r 0..7}, {r 8..11}, %rd1, 0
wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {r 0..3}, %rd0, %rd1, %p0; wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {f 0..3}, %rd0, %rd1, %r8, 0, %p0, 1, 1, 0, 0
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0
""",
    ),
    (
        "matrix",
        "sm_100a",
        """
ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r2]; ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {r 0..3}, [%r4]
ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64 {r 0..3}, [%r4]; stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%r0], {r 1..4}
ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b6x16_p32 {%r0, %r1}, [%r2]
""",
    ),
    (
        "tensor memory",
        "sm_100a",
        """
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 128; tcgen05.alloc.cta_group::2.sync.aligned.b32 [%rd0], %r1
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 128
tcgen05.ld.sync.aligned.32x32b.x4.b32 {r 0..3}, [%r5+8]; tcgen05.ld.sync.aligned.16x256b.x2.pack::16b.b32 {r 0..7}, [%r8]
tcgen05.ld.sync.aligned.16x32bx2.x4.b32 {r 0..3}, [%r5], 16; tcgen05.st.sync.aligned.16x128b.x1.b32 [%r5], {%r0, %r1}
tcgen05.st.sync.aligned.16x32bx2.x2.unpack::16b.b32 [%r5], 16, {%r0, %r1}; tcgen05.wait::ld.sync.aligned; tcgen05.wait::st.sync.aligned
tcgen05.fence::before_thread_sync; tcgen05.fence::after_thread_sync
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r0]; tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r0], %h0
tcgen05.cp.cta_group::1.128x256b [%r0], %rd0; tcgen05.cp.cta_group::1.32x128b.warpx4 [%r0], %rd0; tcgen05.cp.cta_group::2.64x128b.warpx2::02_13.b8x16.b4x16_p64 [%r0], %rd0
tcgen05.shift.cta_group::1.down [%r0]; tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd0, %rd1, %r1, %p0; tcgen05.mma.cta_group::1.kind::f16 [%r0+64], %rd0, %rd1, 0x8400490, 1
tcgen05.mma.cta_group::2.kind::tf32 [%r0], [%r1], %rd1, %r2, %p0; tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd0, %rd1, %r1, {r 4..7}, %p0, 3
tcgen05.mma.cta_group::2.kind::f8f6f4 [%r0], %rd0, %rd1, %r1, {r 4..11}, %p0; tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::lastuse [%r0], [%r1], %rd1, %r2, %p0
tcgen05.mma.cta_group::1.kind::i8 [%r0], %rd0, %rd1, %r1, %p0; tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r0], %rd0, %rd1, %r1, [%r2], [%r3], %p0
tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%r0], [%r4], %rd1, %r1, [%r2], [%r3], %p0; tcgen05.mma.sp.cta_group::1.kind::f16 [%r0], %rd0, %rd1, [%r2], %r1, %p0
tcgen05.mma.ws.cta_group::1.kind::f16.collector::b1::fill [%r0], %rd0, %rd1, %r1, %p0, %rd2; tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%r0], %rd0, %rd1, %r1, [%r2], [%r3], %p0
""",
    ),
    (
        "matrix",
        "sm_120a",
        """
mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 4..7}
mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 4..7}, %r6, {%h0, %h1}, %r7, {0, 0}
mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 4..7}, %r6, {%h0, %h1}, %r7, {%h0, %h1}
add.rn.f32x2 %rd0, %rd1, %rd2; setmaxnreg.inc.sync.aligned.u32 104
""",
    ),
]

# Text that the assembler refuses for the target. "table" where our own check refuses it too.
REFUSED: list[tuple[str, str, str]] = [
    ("sm_80", "table", "add.f32 %r0, %f1, %r2x"),
    ("sm_80", "table", "add.s32 %f0, %r1, %r2"),
    ("sm_80", "table", "add.s32 %rd0, %r1, %r2"),
    ("sm_80", "table", "add.s32 %r0, %r1"),
    ("sm_80", "table", "mul.s32 %r0, %r1, %r2"),
    ("sm_80", "table", "mul.wide.s32 %r0, %r1, %r2"),
    ("sm_80", "table", "fma.f32 %f0, %f1, %f2, %f3"),
    ("sm_80", "table", "add.bf16 %h0, %h1, %h2"),
    ("sm_80", "table", "div.f32 %f0, %f1, %f2"),
    ("sm_80", "table", "ex2.f32 %f0, %f1"),
    ("sm_80", "table", "setp.eq.s32 %r0, %r1, %r2"),
    ("sm_80", "table", "ld.global.v4.b32 {%r0, %r1}, [%rd0]"),
    ("sm_80", "table", "ld.global.v3.b32 {%r0, %r1, %r2}, [%rd0]"),
    ("sm_80", "table", "ld.global.f64 %r1, [%rd0]"),
    ("sm_80", "table", "ld.global.v8.b32 {r 0..7}, [%rd0]"),
    ("sm_80", "table", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {f 0..3}, {r 0..1}, {%r4, %r5}, {f 4..7}"),
    ("sm_80", "table", "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r0], {r 1..4}"),
    ("sm_80", "table", "mbarrier.try_wait.parity.shared.b64 %p0, [%r0], %r1"),
    ("sm_80", "table", "elect.sync %r0|%p0, -1"),
    ("sm_80", "table", "cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2"),
    ("sm_80", "table", "cp.async.wait_group %r0"),
    ("sm_80", "table", "fence.proxy.async"),
    ("sm_80", "table", "selp.b32 %r0, %r1, %r2, %r3"),
    ("sm_90a", "table", "elect.sync %r0, -1"),
    ("sm_90a", "table", "wgmma.wait_group.sync.aligned %r0"),
    ("sm_90a", "table", "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f 0..1}, %rd0, %rd1, %p0, 1, 1, 0, 1"),
    ("sm_90a", "table", "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {f 0..3}, %rd0, %rd1, %p0, 1, 1, 0, 1"),
    ("sm_90a", "table", "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {r 0..1}, %rd0, %rd1, %p0, 1, 1, 0, 1"),
    ("sm_90a", "table", "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {r 0..19}, %rd0, %rd1, %p0"),
    ("sm_90a", "table", "setmaxnreg.inc.sync.aligned.u32 %r0"),
    ("sm_90a", "ptxas", "setmaxnreg.inc.sync.aligned.u32 25"),
    ("sm_90a", "table", "mbarrier.try_wait.parity.shared::cluster.b64 %p0, [%r0], %r1"),
    (
        "sm_90a",
        "table",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1}], [%r2]",
    ),
    (
        "sm_90a",
        "table",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0+128, {%r1, %r2}], [%r2]",
    ),
    ("sm_90a", "table", "fma.rn.f32x2 %rd0, %rd1, %rd2, %rd3"),
    ("sm_90a", "table", "redux.sync.max.f32 %f0, %f1, -1"),
    ("sm_90a", "table", "mbarrier.arrive.shared::cluster.b64 %rd0, [%r0]"),
    ("sm_90a", "ptxas", "bar.sync 16"),
    ("sm_100a", "table", "wgmma.fence.sync.aligned"),
    ("sm_100a", "table", "tcgen05.ld.sync.aligned.16x256b.x64.b32 {r 0..31}, [%r5]"),
    ("sm_100a", "table", "tcgen05.cp.cta_group::1.64x128b [%r0], %rd0"),
    ("sm_100a", "table", "tcgen05.mma.cta_group::1.kind::f16.ashift [%r0], %rd0, %rd1, %r1, %p0"),
    ("sm_100a", "table", "tcgen05.mma.ws.cta_group::2.kind::f16 [%r0], %rd0, %rd1, %r1, %p0"),
    ("sm_120a", "table", "tcgen05.fence::before_thread_sync"),
    (
        "sm_100a",
        "table",
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32 {f 0..3}, {r 0..3}, {%r4, %r5}, {f 4..7}",
    ),
]

_RANGE = re.compile(r"\{(\w+) (\d+)\.\.(\d+)\}")


def expand(text: str) -> str:
    """``{r 0..3}`` to ``{%r0, %r1, %r2, %r3}``."""

    def registers(match: re.Match[str]) -> str:
        names = ", ".join(f"%{match[1]}{i}" for i in range(int(match[2]), int(match[3]) + 1))
        return "{" + names + "}"

    return _RANGE.sub(registers, text)


def instructions(block: str) -> list[str]:
    """The instructions of a block, one string each."""
    return [expand(part.strip()) for part in block.replace("\n", ";").split(";") if part.strip()]


HEADER = """.version {version}
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry forms(.param .u64 par)
.maxntid 128, 1, 1
.minnctapersm 1
{{
	.reg .pred %p<4>;
	.reg .b8 %b<2>;
	.reg .b16 %h<8>;
	.reg .b32 %r<32>;
	.reg .b64 %rd<8>;
	.reg .f32 %f<128>;
	.reg .f64 %fd<16>;
	.reg .b128 %q<4>;
"""


def module_text(target: str, version: tuple[int, int], lines: list[str]) -> str:
    """A module whose one entry holds the instructions `lines`, the first on line `first_line()`."""
    header = HEADER.format(target=target, version=f"{version[0]}.{version[1]}")
    if version < (8, 3):
        header = header.replace("\t.reg .b128 %q<4>;", "\t// no .b128 in this version")
    return header + "".join(f"\t{line};\n" for line in lines) + "\tret;\n}\n"


def first_line() -> int:
    """The 1-based line of the first instruction of `module_text`."""
    return HEADER.count("\n") + 1
