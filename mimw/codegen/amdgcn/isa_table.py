"""The rows of the AMDGCN instruction table. Data only: `isa` reads it, nothing else should.

One row a line: ``mnemonics ; operands ; flags``. Braces in mnemonics make several: ``v_{add,sub}_f32``.

*Operands*, separated by commas, in printed order; results first, marked by ``=``:

    v32 v64 ..   vector registers (v128a: accumulation registers too)       s32 s64 ..   scalar registers (s64 takes a mask too)
    V32 V64      vector, scalar or constant                                 S32 S64      scalar or constant
    m            lane mask (a pair of scalar registers)                     M            lane mask or the constant 0 or -1
    @            address: v32, v64 or ``off``                               o32 o64      scalar registers or ``off``
    #            number                                                     T            text (``hwreg(HW_REG_MODE, 0, 8)``)
    L            label                                                      ...          any number of registers and constants

*Flags*: the encoding (``sop1 sop2 sopc sopp sopk smem vop1 vop2 vop3 vop3p vopc mfma ds mubuf flat`` or ``pseudo``), which says unit and
literals; ``r`` and ``w`` read and write memory; ``keep`` has another effect, so that it must stay; ``scc vcc exec m0`` are written,
``?scc ?vcc ?exec ?m0`` read; ``part``: the result keeps some of its old bits (the instruction must be tied to them); ``pN`` passes of an
MFMA, ``fN`` on gfx950 if other; ``only942 only950``; sets of modifiers (`MODIFIERS`).

Sources: "AMD Instinct MI300 Instruction Set Architecture" (CDNA3) and "AMD Instinct CDNA4 Instruction Set Architecture", chapters on each
encoding; every row is assembled by LLVM in the tests.
"""

from __future__ import annotations

MODIFIERS: dict[str, str] = {
    "GLOBAL": "offset sc0 sc1 nt",
    "BUFFER": "offen idxen offset sc0 sc1 nt",
    "LDS": "offset gds",
    "LDS2": "offset0 offset1 gds",
    "SMEM": "offset glc",
    "DPP": "quad_perm row_shl row_shr row_ror row_newbcast row_mirror row_half_mirror wave_shl wave_rol wave_shr wave_ror"
    " row_bcast row_mask bank_mask bound_ctrl",
    "CACHE": "sc0 sc1 nt",
    "OPSEL": "op_sel",
    "PACK": "op_sel op_sel_hi neg_lo neg_hi clamp",
    "MIX": "op_sel op_sel_hi clamp",
    "MATRIX": "cbsz abid blgp",
    "SCALE": "op_sel op_sel_hi cbsz blgp",
    "CLAMP": "clamp omod mul div",
    "BITOP": "bitop3",
    "SEL": "src0_sel dst_sel dst_unused",
}
"""Names of modifiers that stand after the operands."""

ROWS = r"""
# --- scalar: one source
s_mov_b32 ; =s32,S32 ; sop1
s_mov_b64 ; =s64,S64 ; sop1
s_movk_i32 ; =s32,# ; sopk
s_not_b32 ; =s32,S32 ; sop1 scc
s_not_b64 ; =s64,S64 ; sop1 scc
s_brev_b32 ; =s32,S32 ; sop1
s_bcnt1_i32_b32 ; =s32,S32 ; sop1 scc
s_bcnt1_i32_b64 ; =s32,S64 ; sop1 scc
s_{ff1_i32_b32,flbit_i32_b32,flbit_i32,sext_i32_i8,sext_i32_i16} ; =s32,S32 ; sop1
s_{ff1_i32_b64,flbit_i32_b64} ; =s32,S64 ; sop1
s_abs_i32 ; =s32,S32 ; sop1 scc
s_{and,or,xor,andn2,orn2}_saveexec_b64 ; =s64,S64 ; sop1 scc exec ?exec keep
s_getpc_b64 ; =s64 ; sop1
# --- scalar: two sources
s_{add,sub}_{u32,i32} ; =s32,S32,S32 ; sop2 scc
s_{addc,subb}_u32 ; =s32,S32,S32 ; sop2 scc ?scc
s_{min,max}_{i32,u32} ; =s32,S32,S32 ; sop2 scc
s_{and,or,xor,andn2,orn2,nand,nor,xnor}_b32 ; =s32,S32,S32 ; sop2 scc
s_{and,or,xor,andn2,orn2,nand,nor,xnor}_b64 ; =s64,S64,S64 ; sop2 scc
s_{lshl_b32,lshr_b32,ashr_i32} ; =s32,S32,S32 ; sop2 scc
s_{lshl_b64,lshr_b64,ashr_i64} ; =s64,S64,S32 ; sop2 scc
s_bfm_b32 ; =s32,S32,S32 ; sop2
s_bfm_b64 ; =s64,S32,S32 ; sop2
s_{mul_i32,mul_hi_u32,mul_hi_i32} ; =s32,S32,S32 ; sop2
s_{bfe_u32,bfe_i32} ; =s32,S32,S32 ; sop2 scc
s_{bfe_u64,bfe_i64} ; =s64,S64,S32 ; sop2 scc
s_lshl{1,2,3,4}_add_u32 ; =s32,S32,S32 ; sop2 scc
s_pack_{ll,lh,hh}_b32_b16 ; =s32,S32,S32 ; sop2
s_absdiff_i32 ; =s32,S32,S32 ; sop2 scc
s_cselect_b32 ; =s32,S32,S32 ; sop2 ?scc
s_cselect_b64 ; =s64,S64,S64 ; sop2 ?scc
# --- scalar: comparisons
s_cmp_{eq,lg,gt,ge,lt,le}_{i32,u32} ; S32,S32 ; sopc scc keep
s_cmp_{eq,lg}_u64 ; S64,S64 ; sopc scc keep
s_bitcmp{0,1}_b32 ; S32,S32 ; sopc scc keep
# --- program control
s_nop ; # ; sopp keep
s_endpgm ; ; sopp keep
s_branch ; L ; sopp keep
s_cbranch_{scc0,scc1} ; L ; sopp keep ?scc
s_cbranch_{vccz,vccnz} ; L ; sopp keep ?vcc
s_cbranch_{execz,execnz} ; L ; sopp keep ?exec
s_barrier ; ; sopp keep r w
s_waitcnt ; ... ; sopp keep r w
s_{setprio,sleep,sethalt,trap} ; # ; sopp keep
s_sendmsg ; T ; sopp keep ?m0
s_getreg_b32 ; =s32,T ; sopk
s_setreg_b32 ; T,s32 ; sopk keep
s_setreg_imm32_b32 ; T,# ; sopk keep
# --- scalar memory
s_load_dword ; =s32,s64,S32 ; smem r SMEM
s_load_dwordx2 ; =s64,s64,S32 ; smem r SMEM
s_load_dwordx4 ; =s128,s64,S32 ; smem r SMEM
s_load_dwordx8 ; =s256,s64,S32 ; smem r SMEM
s_load_dwordx16 ; =s512,s64,S32 ; smem r SMEM
s_buffer_load_dword ; =s32,s128,S32 ; smem r SMEM
s_buffer_load_dwordx2 ; =s64,s128,S32 ; smem r SMEM
s_buffer_load_dwordx4 ; =s128,s128,S32 ; smem r SMEM
s_{memtime,memrealtime} ; =s64 ; smem keep
s_dcache_{inv,wb} ; ; smem keep r w
# --- vector: one source
v_mov_b32 ; =v32,V32 ; vop1
v_mov_b64 ; =v64,V64 ; vop1
v_mov_b32_dpp ; =v32,v32 ; vop1 part DPP
v_readfirstlane_b32 ; =s32,v32 ; vop1
v_{not_b32,bfrev_b32,ffbh_u32,ffbl_b32,ffbh_i32} ; =v32,V32 ; vop1
v_cvt_{f32_i32,f32_u32,i32_f32,u32_f32,f32_f16,f16_f32,f16_u16,f16_i16,u16_f16,i16_f16,rpi_i32_f32,flr_i32_f32} ; =v32,V32 ; vop1
v_cvt_f32_ubyte{0,1,2,3} ; =v32,V32 ; vop1
v_cvt_{f64_f32,f64_i32,f64_u32} ; =v64,V32 ; vop1
v_cvt_{f32_f64,i32_f64,u32_f64} ; =v32,V64 ; vop1
v_{trunc,ceil,rndne,floor,fract}_{f16,f32} ; =v32,V32 ; vop1
v_{trunc,ceil,rndne,floor,fract}_f64 ; =v64,V64 ; vop1
v_{exp,log,rcp,rsq,sqrt,sin,cos}_{f16,f32} ; =v32,V32 ; vop1 trans
v_rcp_iflag_f32 ; =v32,V32 ; vop1 trans
v_{rcp,rsq,sqrt}_f64 ; =v64,V64 ; vop1 trans
v_frexp_{exp_i32,mant}_f32 ; =v32,V32 ; vop1
v_frexp_exp_i32_f64 ; =v32,V64 ; vop1
v_frexp_mant_f64 ; =v64,V64 ; vop1
v_cvt_f32_{fp8,bf8} ; =v32,V32 ; vop1
v_cvt_pk_f32_{fp8,bf8} ; =v64,V32 ; vop1
v_cvt_f32_{fp8,bf8}_sdwa ; =v32,v32 ; vop1 SEL
v_cvt_pk_f32_{fp8,bf8}_sdwa ; =v64,v32 ; vop1 SEL
v_permlane{16,32}_swap_b32 ; =v32,=v32 ; vop1 part only950
v_swap_b32 ; =v32,=v32 ; vop1 part
v_prng_b32 ; =v32,V32 ; vop1 only950
# --- vector: two sources
v_{add,sub,mul,min,max}_{f16,f32} ; =v32,V32,V32 ; vop2
v_subrev_{f16,f32} ; =v32,V32,V32 ; vop2
v_{min,max}_{i32,u32} ; =v32,V32,V32 ; vop2
v_{lshrrev_b32,ashrrev_i32,lshlrev_b32,and_b32,or_b32,xor_b32,xnor_b32} ; =v32,V32,V32 ; vop2
v_{add,sub,subrev}_u32 ; =v32,V32,V32 ; vop2
v_mul_{i32_i24,hi_i32_i24,u32_u24,hi_u32_u24} ; =v32,V32,V32 ; vop2
v_{add_u16,sub_u16,mul_lo_u16,lshlrev_b16,lshrrev_b16,ashrrev_i16,max_u16,max_i16,min_u16,min_i16} ; =v32,V32,V32 ; vop2
v_ldexp_f16 ; =v32,V32,V32 ; vop2
v_fmac_f32 ; =v32,V32,v32 ; vop2 part
v_fmac_f64 ; =v64,V64,v64 ; vop2 part
v_pk_fmac_f16 ; =v32,V32,v32 ; vop2 part
v_{add,sub,mul,min,max}_{f32,f16}_dpp ; =v32,v32,v32 ; vop2 part DPP
v_{min,max}_{i32,u32}_dpp ; =v32,v32,v32 ; vop2 part DPP
v_{add_u32,and_b32,or_b32,xor_b32}_dpp ; =v32,v32,v32 ; vop2 part DPP
v_fmamk_f32 ; =v32,V32,#,v32 ; vop2
v_fmaak_f32 ; =v32,V32,v32,# ; vop2
v_cvt_pkrtz_f16_f32 ; =v32,V32,V32 ; vop3
# --- vector: masks
v_cndmask_b32 ; =v32,V32,V32,m ; vop3
v_cmp_{lt,eq,le,gt,lg,ge,o,u,nge,nlg,ngt,nle,neq,nlt}_{f16,f32} ; =m,V32,V32 ; vopc
v_cmp_{lt,eq,le,gt,lg,ge,o,u,nge,nlg,ngt,nle,neq,nlt}_f64 ; =m,V64,V64 ; vopc
v_cmp_{lt,eq,le,gt,ne,ge}_{i16,u16,i32,u32} ; =m,V32,V32 ; vopc
v_cmp_{lt,eq,le,gt,ne,ge}_{i64,u64} ; =m,V64,V64 ; vopc
v_cmp_class_{f16,f32} ; =m,V32,V32 ; vopc
v_cmp_class_f64 ; =m,V64,V32 ; vopc
# --- vector: three sources, and what has no short form
v_fma_{f16,f32} ; =v32,V32,V32,V32 ; vop3 CLAMP
v_fma_f64 ; =v64,V64,V64,V64 ; vop3
v_{mad_u32_u24,mad_i32_i24,bfe_u32,bfe_i32,bfi_b32,alignbit_b32,alignbyte_b32} ; =v32,V32,V32,V32 ; vop3
v_{min3,max3,med3}_{f32,i32,u32,f16,i16,u16} ; =v32,V32,V32,V32 ; vop3
v_{lshl_add_u32,add_lshl_u32,add3_u32,lshl_or_b32,and_or_b32,or3_b32,xad_u32,perm_b32} ; =v32,V32,V32,V32 ; vop3
v_{mul_lo_u32,mul_hi_u32,mul_hi_i32,bcnt_u32_b32,mbcnt_lo_u32_b32,mbcnt_hi_u32_b32} ; =v32,V32,V32 ; vop3
v_ldexp_f32 ; =v32,V32,V32 ; vop3
v_ldexp_f64 ; =v64,V64,V32 ; vop3
v_{add,mul,min,max}_f64 ; =v64,V64,V64 ; vop3
v_{lshlrev_b64,lshrrev_b64,ashrrev_i64} ; =v64,V32,V64 ; vop3
v_lshl_add_u64 ; =v64,V64,V32,V64 ; vop3
v_mad_{u64_u32,i64_i32} ; =v64,=m,V32,V32,V64 ; vop3
v_{add_co_u32,sub_co_u32} ; =v32,=m,V32,V32 ; vop3
v_{addc_co_u32,subb_co_u32} ; =v32,=m,V32,V32,m ; vop3
v_div_scale_f32 ; =v32,=m,V32,V32,V32 ; vop3
v_div_scale_f64 ; =v64,=m,V64,V64,V64 ; vop3
v_div_fmas_f32 ; =v32,V32,V32,V32 ; vop3 ?vcc
v_div_fmas_f64 ; =v64,V64,V64,V64 ; vop3 ?vcc
v_div_fixup_{f16,f32} ; =v32,V32,V32,V32 ; vop3
v_div_fixup_f64 ; =v64,V64,V64,V64 ; vop3
v_readlane_b32 ; =s32,v32,S32 ; vop3
v_writelane_b32 ; =v32,S32,S32 ; vop3 part
v_pack_b32_f16 ; =v32,V32,V32 ; vop3 OPSEL
v_cvt_pk_{fp8,bf8}_f32 ; =v32,V32,V32 ; vop3 part OPSEL
v_cvt_sr_{fp8,bf8}_f32 ; =v32,V32,V32 ; vop3 part OPSEL
v_cvt_pk_bf16_f32 ; =v32,V32,V32 ; vop3 only950
v_bitop3_b32 ; =v32,V32,V32,V32 ; vop3 BITOP only950
v_{minimum3,maximum3}_f32 ; =v32,V32,V32,V32 ; vop3 only950
v_ashr_pk_i8_i32 ; =v32,V32,V32,V32 ; vop3 only950
v_accvgpr_read_b32 ; =v32,a32 ; vop3
v_accvgpr_write_b32 ; =a32,V32 ; vop3
v_accvgpr_mov_b32 ; =a32,a32 ; vop1
# --- packed
v_pk_{add,mul,min,max}_f16 ; =v32,V32,V32 ; vop3p PACK
v_pk_fma_f16 ; =v32,V32,V32,V32 ; vop3p PACK
v_pk_{add_u16,sub_u16,add_i16,sub_i16,mul_lo_u16,min_i16,min_u16,max_i16,max_u16} ; =v32,V32,V32 ; vop3p PACK
v_pk_{lshlrev_b16,lshrrev_b16,ashrrev_i16} ; =v32,V32,V32 ; vop3p PACK
v_pk_{add,mul}_f32 ; =v64,V64,V64 ; vop3p PACK
v_pk_fma_f32 ; =v64,V64,V64,V64 ; vop3p PACK
v_pk_mov_b32 ; =v64,V64,V64 ; vop3p PACK
v_fma_mix_f32 ; =v32,V32,V32,V32 ; vop3p MIX
v_fma_mix{lo,hi}_f16 ; =v32,V32,V32,V32 ; vop3p part MIX
v_{dot2_f32_f16,dot4_i32_i8,dot4_u32_u8} ; =v32,V32,V32,V32 ; vop3p PACK
v_dot2_f32_bf16 ; =v32,V32,V32,V32 ; vop3p PACK only950
v_pk_{minimum3,maximum3}_f16 ; =v32,V32,V32,V32 ; vop3p PACK only950
# --- products of matrices: d, a, b, c
v_mfma_f32_32x32x8_{f16,bf16} ; =v512a,v64a,v64a,V512a ; mfma p8 MATRIX
v_mfma_f32_16x16x16_{f16,bf16} ; =v128a,v64a,v64a,V128a ; mfma p4 MATRIX
v_mfma_f32_32x32x16_{f16,bf16} ; =v512a,v128a,v128a,V512a ; mfma p8 MATRIX only950
v_mfma_f32_16x16x32_{f16,bf16} ; =v128a,v128a,v128a,V128a ; mfma p4 MATRIX only950
v_mfma_f32_32x32x16_{fp8,bf8}_{fp8,bf8} ; =v512a,v64a,v64a,V512a ; mfma p8 MATRIX
v_mfma_f32_16x16x32_{fp8,bf8}_{fp8,bf8} ; =v128a,v64a,v64a,V128a ; mfma p4 MATRIX
v_mfma_i32_32x32x16_i8 ; =v512a,v64a,v64a,V512a ; mfma p8 MATRIX
v_mfma_i32_16x16x32_i8 ; =v128a,v64a,v64a,V128a ; mfma p4 MATRIX
v_mfma_i32_32x32x32_i8 ; =v512a,v128a,v128a,V512a ; mfma p8 MATRIX only950
v_mfma_i32_16x16x64_i8 ; =v128a,v128a,v128a,V128a ; mfma p4 MATRIX only950
v_mfma_f32_32x32x2_f32 ; =v512a,v32a,v32a,V512a ; mfma p16 MATRIX
v_mfma_f32_16x16x4_f32 ; =v128a,v32a,v32a,V128a ; mfma p8 MATRIX
v_mfma_f32_32x32x4_xf32 ; =v512a,v64a,v64a,V512a ; mfma p16 MATRIX only942
v_mfma_f32_16x16x8_xf32 ; =v128a,v64a,v64a,V128a ; mfma p8 MATRIX only942
v_mfma_f64_16x16x4_f64 ; =v256a,v64a,v64a,V256a ; mfma p8 f16 MATRIX
v_mfma_f32_32x32x64_f8f6f4 ; =v512a,v256a,v256a,V512a ; mfma p16 MATRIX only950
v_mfma_f32_16x16x128_f8f6f4 ; =v128a,v256a,v256a,V128a ; mfma p8 MATRIX only950
v_mfma_scale_f32_32x32x64_f8f6f4 ; =v512a,v256a,v256a,V512a,v32,v32 ; mfma p16 SCALE only950
v_mfma_scale_f32_16x16x128_f8f6f4 ; =v128a,v256a,v256a,V128a,v32,v32 ; mfma p8 SCALE only950
# --- shared memory
ds_read_{u8,i8,u16,i16,b32} ; =v32a,v32 ; ds r LDS
ds_read_b64 ; =v64a,v32 ; ds r LDS
ds_read_b96 ; =v96a,v32 ; ds r LDS
ds_read_b128 ; =v128a,v32 ; ds r LDS
ds_read_{u8_d16,u8_d16_hi,i8_d16,i8_d16_hi,u16_d16,u16_d16_hi} ; =v32a,v32 ; ds r part LDS
ds_read2_b32 ; =v64a,v32 ; ds r LDS2
ds_read2st64_b32 ; =v64a,v32 ; ds r LDS2
ds_read2_b64 ; =v128a,v32 ; ds r LDS2
ds_read2st64_b64 ; =v128a,v32 ; ds r LDS2
ds_read_b64_tr_{b16,b8,b4} ; =v64a,v32 ; ds r LDS only950
ds_read_b96_tr_b6 ; =v96a,v32 ; ds r LDS only950
ds_write_{b8,b16,b32,b8_d16_hi,b16_d16_hi} ; v32,v32a ; ds w LDS
ds_write_b64 ; v32,v64a ; ds w LDS
ds_write_b96 ; v32,v96a ; ds w LDS
ds_write_b128 ; v32,v128a ; ds w LDS
ds_write2_b32 ; v32,v32a,v32a ; ds w LDS2
ds_write2st64_b32 ; v32,v32a,v32a ; ds w LDS2
ds_write2_b64 ; v32,v64a,v64a ; ds w LDS2
ds_{bpermute,permute}_b32 ; =v32,v32,v32 ; ds LDS
ds_swizzle_b32 ; =v32,v32 ; ds LDS
ds_{add_u32,sub_u32,min_i32,min_u32,max_i32,max_u32,and_b32,or_b32,xor_b32,add_f32,pk_add_f16,pk_add_bf16} ; v32,v32 ; ds r w LDS
ds_{add_rtn_u32,min_rtn_i32,min_rtn_u32,max_rtn_i32,max_rtn_u32,and_rtn_b32,or_rtn_b32,xor_rtn_b32,wrxchg_rtn_b32,add_rtn_f32} ; =v32,v32,v32 ; ds r w LDS
ds_cmpst_rtn_b32 ; =v32,v32,v32,v32 ; ds r w LDS
ds_{add_rtn_u64,wrxchg_rtn_b64} ; =v64,v32,v64 ; ds r w LDS
ds_cmpst_rtn_b64 ; =v64,v32,v64,v64 ; ds r w LDS
# --- global memory
global_load_{ubyte,sbyte,ushort,sshort,dword} ; =v32a,@,o64 ; flat r GLOBAL
global_load_{ubyte_d16,ubyte_d16_hi,sbyte_d16,sbyte_d16_hi,short_d16,short_d16_hi} ; =v32a,@,o64 ; flat r part GLOBAL
global_load_dwordx2 ; =v64a,@,o64 ; flat r GLOBAL
global_load_dwordx3 ; =v96a,@,o64 ; flat r GLOBAL
global_load_dwordx4 ; =v128a,@,o64 ; flat r GLOBAL
global_store_{byte,byte_d16_hi,short,short_d16_hi,dword} ; @,v32a,o64 ; flat w GLOBAL
global_store_dwordx2 ; @,v64a,o64 ; flat w GLOBAL
global_store_dwordx3 ; @,v96a,o64 ; flat w GLOBAL
global_store_dwordx4 ; @,v128a,o64 ; flat w GLOBAL
global_load_lds_dword ; @,o64 ; flat r w ?m0 GLOBAL
global_load_lds_dwordx{3,4} ; @,o64 ; flat r w ?m0 GLOBAL only950
global_atomic_{add,sub,smin,umin,smax,umax,and,or,xor,swap,add_f32,pk_add_f16,pk_add_bf16} ; @,v32a,o64 ; flat r w GLOBAL
global_atomic_{add,sub,smin,umin,smax,umax,and,or,xor,swap,add_f32,pk_add_f16,pk_add_bf16}_rtn ; =v32a,@,v32a,o64 ; flat r w GLOBAL
global_atomic_{add,sub,smin,umin,smax,umax,and,or,xor,swap}_x2 ; @,v64a,o64 ; flat r w GLOBAL
global_atomic_{add,sub,smin,umin,smax,umax,and,or,xor,swap}_x2_rtn ; =v64a,@,v64a,o64 ; flat r w GLOBAL
global_atomic_{add,min,max}_f64 ; @,v64a,o64 ; flat r w GLOBAL
global_atomic_{add,min,max}_f64_rtn ; =v64a,@,v64a,o64 ; flat r w GLOBAL
global_atomic_cmpswap ; @,v64a,o64 ; flat r w GLOBAL
global_atomic_cmpswap_rtn ; =v32a,@,v64a,o64 ; flat r w GLOBAL
global_atomic_cmpswap_x2 ; @,v128a,o64 ; flat r w GLOBAL
global_atomic_cmpswap_x2_rtn ; =v64a,@,v128a,o64 ; flat r w GLOBAL
scratch_load_{ubyte,sbyte,ushort,sshort,dword} ; =v32a,@,o32 ; flat r GLOBAL
scratch_load_dwordx2 ; =v64a,@,o32 ; flat r GLOBAL
scratch_load_dwordx3 ; =v96a,@,o32 ; flat r GLOBAL
scratch_load_dwordx4 ; =v128a,@,o32 ; flat r GLOBAL
scratch_store_{byte,short,dword} ; @,v32a,o32 ; flat w GLOBAL
scratch_store_dwordx2 ; @,v64a,o32 ; flat w GLOBAL
scratch_store_dwordx3 ; @,v96a,o32 ; flat w GLOBAL
scratch_store_dwordx4 ; @,v128a,o32 ; flat w GLOBAL
# --- buffers
buffer_load_{ubyte,sbyte,ushort,sshort,dword} ; =v32a,@,s128,S32 ; mubuf r BUFFER
buffer_load_{ubyte_d16,ubyte_d16_hi,short_d16,short_d16_hi} ; =v32a,@,s128,S32 ; mubuf r part BUFFER
buffer_load_dwordx2 ; =v64a,@,s128,S32 ; mubuf r BUFFER
buffer_load_dwordx3 ; =v96a,@,s128,S32 ; mubuf r BUFFER
buffer_load_dwordx4 ; =v128a,@,s128,S32 ; mubuf r BUFFER
buffer_load_dword_lds ; @,s128,S32 ; mubuf r w ?m0 BUFFER
buffer_load_dwordx{3,4}_lds ; @,s128,S32 ; mubuf r w ?m0 BUFFER only950
buffer_store_{byte,byte_d16_hi,short,short_d16_hi,dword} ; v32a,@,s128,S32 ; mubuf w BUFFER
buffer_store_dwordx2 ; v64a,@,s128,S32 ; mubuf w BUFFER
buffer_store_dwordx3 ; v96a,@,s128,S32 ; mubuf w BUFFER
buffer_store_dwordx4 ; v128a,@,s128,S32 ; mubuf w BUFFER
buffer_{wbl2,inv} ; ; mubuf r w CACHE
# --- pseudo instructions: gone before anything is printed
p_entry ; =?,T ; pseudo keep
p_undef ; =? ; pseudo
p_copy ; =?,? ; pseudo
p_pack ; =?,... ; pseudo
p_part ; =?,?,# ; pseudo
p_cmp_{eq,lg,gt,ge,lt,le}_{i32,u32} ; =m,S32,S32 ; pseudo scc
p_cmp_{eq,lg}_u64 ; =m,S64,S64 ; pseudo scc
p_select_b32 ; =s32,S32,S32,m ; pseudo scc
p_select_b64 ; =s64,S64,S64,m ; pseudo scc
p_{add,sub}_u64 ; =s64,S64,S64 ; pseudo scc
p_div_fmas_f32 ; =v32,V32,V32,V32,m ; pseudo vcc
p_div_fmas_f64 ; =v64,V64,V64,V64,m ; pseudo vcc
p_global_load_lds_dword ; @,o64,S32,# ; pseudo r w m0 scc GLOBAL
p_global_load_lds_dwordx{3,4} ; @,o64,S32,# ; pseudo r w m0 scc GLOBAL only950
p_buffer_load_lds_dword ; @,s128,S32,S32,# ; pseudo r w m0 scc BUFFER
p_buffer_load_lds_dwordx{3,4} ; @,s128,S32,S32,# ; pseudo r w m0 scc BUFFER only950
p_wait_vm ; # ; pseudo keep r w
p_wait_lgkm ; # ; pseudo keep r w
p_commit_group ; ; pseudo keep r w
p_wait_group ; # ; pseudo keep r w
p_end_copy ; # ; pseudo keep r w
p_wait_copy ; # ; pseudo keep r w
"""
