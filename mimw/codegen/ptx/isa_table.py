"""The rows of the PTX instruction table. Data only: `isa` reads it, nothing else should.

One row a line (`\\` joins lines): ``mnemonic modifiers ; operands ; flags``.

*Modifiers* stand in order; ``a|b`` is a choice, a trailing ``?`` makes it optional, ``*a|b`` repeats it any number of
times in any order, a capital word is a named choice from `SETS`, ``X:`` in front remembers the choice under the name
X.

*Operands* are separated by commas, alternative lists by `` / ``::

    =T      result of the type named T           T     source: register or immediate      T!    register only
    +T      read and written (an accumulator)    2T    twice as wide as T                 #     immediate only
    p       predicate, perhaps negated           p#    the same, or an immediate
    =T|p    with an optional second result, a predicate   =T&p  with a required one
    n*T     tuple of n (a remembered v2, v4 or v8, or a number); a single register where nothing was remembered
    =_      a result that is thrown away
    []      address                              [n]   tensor map with n coordinates      label, table
    moved   what mov takes: T, or a tuple of it  X>T   there exactly when modifier X is   T?    optional
    ~T      register may be wider than T (memory and conversion)

*Flags*: ``r`` reads memory, ``w`` writes memory, ``b`` barrier or fence, ``a`` asynchronous, ``c`` control, ``v``
other reason to stay in place (warp-collective, clocks, traps); ``ptx8.0`` smallest version; ``sm90`` smallest arch;
``only90,100`` the archs whose ``a`` target has it. A row named ``!f`` gets its operands from the function ``_f`` of
`isa`.

Sources: PTX ISA 9.0, sections 9.7.1 to 9.7.19; every family is assembled by ptxas in the tests.
"""

from __future__ import annotations

SETS: dict[str, str] = {
    "RND": "rn|rz|rm|rp",
    "IRND": "rni|rzi|rmi|rpi",
    "INT": "u16|s16|u32|s32|u64|s64",
    "INT8": "u8|s8|u16|s16|u32|s32|u64|s64",
    "CMPU": "eq|ne|lt|le|gt|ge|lo|ls|hi|hs",
    "CMPS": "eq|ne|lt|le|gt|ge",
    "CMPF": "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan",
    "BOOL": "and|or|xor",
    "SPACE": "global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func",
    "SHL": "shared|shared::cta",
    "SH": "shared|shared::cta|shared::cluster",
    "SCOPE": "cta|cluster|gpu|sys",
    "SEM": "relaxed|acquire|release|acq_rel",
    "LDWAY": "weak|volatile|relaxed|acquire|mmio|cta|cluster|gpu|sys|global|shared|shared::cta|shared::cluster|local"
    "|const|param|param::entry|param::func",
    "STWAY": "weak|volatile|relaxed|release|mmio|cta|cluster|gpu|sys|global|shared|shared::cta|shared::cluster|local"
    "|param|param::func",
    "ATWAY": "relaxed|acquire|release|acq_rel|cta|cluster|gpu|sys|global|shared|shared::cta|shared::cluster",
    "EVICT1": "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate",
    "EVICT2": "L2::evict_normal|L2::evict_first|L2::evict_last",
    "HINT": "L2::cache_hint",
    "L2P": "L2::64B|L2::128B|L2::256B",
    "VEC": "v2|v4|v8",
    "MEM32": "b8|u8|s8|b16|u16|s16|b32|u32|s32|f32",
    "MEM64": "b64|u64|s64|f64",
    "TX": "mbarrier::complete_tx::bytes",
    "MOVT": "pred|b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64",
    "F8": "e4m3x2|e5m2x2",
    "F6": "e2m3x2|e3m2x2",
    "RANK": "1d|2d|3d|4d|5d",
    "REDOP": "add|min|max|inc|dec|and|or|xor",
    "CTAG": "cta_group::1|cta_group::2",
}

# Smallest (ptx version, arch) that a modifier needs wherever it stands.
MODIFIER_NEEDS: dict[str, tuple[tuple[int, int], int]] = {
    "L1::evict_normal": ((7, 4), 70),
    "L1::evict_unchanged": ((7, 4), 70),
    "L1::evict_first": ((7, 4), 70),
    "L1::evict_last": ((7, 4), 70),
    "L1::no_allocate": ((7, 4), 70),
    "L2::64B": ((7, 4), 75),
    "L2::128B": ((7, 4), 75),
    "L2::256B": ((7, 4), 80),
    "L2::cache_hint": ((7, 4), 80),
    "shared::cta": ((7, 8), 30),
    "shared::cluster": ((7, 8), 90),
    "param::entry": ((8, 3), 30),
    "param::func": ((8, 3), 30),
    "cluster": ((7, 8), 90),
    "cta_group::1": ((8, 6), 100),
    "cta_group::2": ((8, 6), 100),
    "block16": ((8, 8), 100),
    "block32": ((8, 8), 100),
    "im2col::w": ((8, 6), 100),
    "im2col::w::128": ((8, 6), 100),
    "cp_mask": ((8, 6), 100),
    "mmio": ((8, 2), 70),
    "L2::evict_normal": ((7, 4), 80),
}

# Modifiers of atom and red in the order of the rows; compilers write them in any order and ptxas takes them so.
ATOMIC_ORDER: tuple[str, ...] = (
    *SETS["ATWAY"].split("|"),
    *SETS["REDOP"].split("|"),
    *("exch", "cas", "noftz", "L2::cache_hint", "v2", "v4", "v8"),
)

# Forms that only the "a" (or "f") targets of these archs have, by modifier.
MODIFIER_ONLY: dict[str, tuple[int, ...]] = {
    "tile::scatter4": (100, 103, 110),
    "multicast::cluster::all": (100, 103, 110, 120, 121),
}

ROWS = r"""
# --- integer arithmetic (9.7.1)
add,sub T:u16|s16|u32|s32|u64|s64 ; =T,T,T
add T:u16x2|s16x2 ; =T,T,T ; ptx8.0 sm90
add,sub sat T:s32 ; =T,T,T
add,sub,addc,subc cc T:u32|s32|u64|s64 ; =T,T,T ; v
addc,subc T:u32|s32|u64|s64 ; =T,T,T ; v
mul hi|lo T:INT ; =T,T,T
mul wide T:u16|s16|u32|s32 ; =2T,T,T
mad hi|lo T:INT ; =T,T,T,T
mad hi sat T:s32 ; =T,T,T,T
mad wide T:u16|s16|u32|s32 ; =2T,T,T,2T
mad,madc hi|lo cc T:u32|s32|u64|s64 ; =T,T,T,T ; v
madc hi|lo T:u32|s32|u64|s64 ; =T,T,T,T ; v
madc hi T:u16|s16 ; =T,T,T,T ; v
mul24 hi|lo T:u32|s32 ; =T,T,T
mad24 hi|lo T:u32|s32 ; =T,T,T,T
mad24 hi sat T:s32 ; =T,T,T,T
sad T:INT ; =T,T,T,T
div,rem T:INT ; =T,T,T
abs,neg T:s16|s32|s64 ; =T,T
min,max T:INT ; =T,T,T
min,max relu T:s16x2|s32 ; =T,T,T ; ptx8.0 sm90
min,max T:u16x2|s16x2 ; =T,T,T ; ptx8.0 sm90
popc,clz T:b32|b64 ; =u32,T
bfind shiftamt? T:u32|s32|u64|s64 ; =u32,T
fns b32 ; =b32,b32,b32,b32
brev T:b32|b64 ; =T,T
bfe T:u32|s32|u64|s64 ; =T,T,u32,u32
bfi T:b32|b64 ; =T,T,T,u32,u32
bmsk clamp|wrap b32 ; =u32,u32,u32 ; ptx7.6
szext clamp|wrap T:u32|s32 ; =T,T,u32 ; ptx7.6
dp4a A:u32|s32 B:u32|s32 ; =u32,A,B,u32
dp2a lo|hi A:u32|s32 B:u32|s32 ; =u32,A,B,u32

# --- floating point (9.7.3 to 9.7.5)
add,sub,mul RND? ftz? sat? T:f32 ; =T,T,T
add,sub,mul RND? T:f64 ; =T,T,T
add,sub,mul RND? ftz? T:f32x2 ; =T,T,T ; ptx8.6 sm100
add,sub,mul rn? ftz? sat? T:f16|f16x2 ; =T,T,T
add,sub,mul rn? T:bf16|bf16x2 ; =T,T,T ; ptx7.8 sm90
add,sub RND? sat? T:f32 U:f16|bf16 ; =T,U,T ; ptx8.6 sm100
fma RND ftz? sat? T:f32 ; =T,T,T,T
fma RND T:f64 ; =T,T,T,T
mad RND? ftz? sat? T:f32 ; =T,T,T,T
mad RND T:f64 ; =T,T,T,T
fma RND ftz? T:f32x2 ; =T,T,T,T ; ptx8.6 sm100
fma RND sat? T:f32 U:f16|bf16 ; =T,U,U,T ; ptx8.6 sm100
fma rn ftz? sat? T:f16|f16x2 ; =T,T,T,T
fma rn ftz? relu T:f16|f16x2 ; =T,T,T,T
fma rn relu? T:bf16|bf16x2 ; =T,T,T,T
fma rz T:bf16|bf16x2 ; =T,T,T,T
fma rn oob relu? T:f16|f16x2|bf16|bf16x2 ; =T,T,T,T ; ptx8.1 sm90
div approx|full ftz? T:f32 ; =T,T,T
div RND ftz? T:f32 ; =T,T,T
div RND T:f64 ; =T,T,T
rcp,sqrt approx|rn|rz|rm|rp ftz? T:f32 ; =T,T
rcp,sqrt RND T:f64 ; =T,T
rcp,rsqrt approx ftz T:f64 ; =T,T
rsqrt approx T:f64 ; =T,T
rsqrt,sin,cos,lg2,ex2 approx ftz? T:f32 ; =T,T
ex2 approx T:f16|f16x2 ; =T,T
ex2 approx ftz T:bf16|bf16x2 ; =T,T ; ptx7.8 sm90
tanh approx T:f32|f16|f16x2 ; =T,T
tanh approx T:bf16|bf16x2 ; =T,T ; ptx7.8 sm90
abs,neg ftz? T:f32|f16|f16x2 ; =T,T
abs,neg T:f64|bf16|bf16x2 ; =T,T
min,max ftz? NaN? T:f32|f16|f16x2 ; =T,T,T
min,max ftz? NaN? xorsign abs T:f32 ; =T,T,T ; ptx7.2 sm86
min,max ftz? NaN? xorsign abs T:f16|f16x2 ; =T,T,T ; ptx7.2 sm86
min,max ftz? NaN? abs? T:f32 ; =T,T,T,T ; ptx8.8 sm100
min,max T:f64 ; =T,T,T
min,max NaN? T:bf16|bf16x2 ; =T,T,T
min,max NaN? xorsign abs T:bf16|bf16x2 ; =T,T,T ; ptx7.2 sm86
copysign T:f32|f64 ; =T,T,T
testp finite|infinite|number|notanumber|normal|subnormal T:f32|f64 ; =p,T

# --- comparison, selection, logic, shifts (9.7.6 to 9.7.8)
set CMPU D:u32|s32|f32 T:u16|u32|u64 ; =D,T,T
set CMPS D:u32|s32|f32 T:s16|s32|s64 ; =D,T,T
set eq|ne D:u32|s32|f32 T:b16|b32|b64 ; =D,T,T
set CMPF ftz? D:u32|s32|f32 T:f32 ; =D,T,T
set CMPF D:u32|s32|f32 T:f64 ; =D,T,T
set CMPU BOOL D:u32|s32|f32 T:u16|u32|u64 ; =D,T,T,p#
set CMPS BOOL D:u32|s32|f32 T:s16|s32|s64 ; =D,T,T,p#
set eq|ne BOOL D:u32|s32|f32 T:b16|b32|b64 ; =D,T,T,p#
set CMPF BOOL ftz? D:u32|s32|f32 T:f32 ; =D,T,T,p#
set CMPF BOOL D:u32|s32|f32 T:f64 ; =D,T,T,p#
set CMPF ftz? D:f16|u16|s16|u32|s32 T:f16 ; =D,T,T
set CMPF BOOL ftz? D:f16|u16|s16|u32|s32 T:f16 ; =D,T,T,p#
set CMPF D:bf16|u16|s16|u32|s32 T:bf16 ; =D,T,T ; ptx7.8 sm90
set CMPF BOOL D:bf16|u16|s16|u32|s32 T:bf16 ; =D,T,T,p# ; ptx7.8 sm90
set CMPF ftz? D:f16x2|b32|u32|s32 T:f16x2 ; =D,T,T
set CMPF D:bf16x2|b32|u32|s32 T:bf16x2 ; =D,T,T ; ptx7.8 sm90
setp CMPU T:u16|u32|u64 ; =p|p,T,T
setp CMPS T:s16|s32|s64 ; =p|p,T,T
setp eq|ne T:b16|b32|b64 ; =p|p,T,T
setp CMPF ftz? T:f32|f16|f16x2 ; =p|p,T,T
setp CMPF T:f64 ; =p|p,T,T
setp CMPU BOOL T:u16|u32|u64 ; =p|p,T,T,p#
setp CMPS BOOL T:s16|s32|s64 ; =p|p,T,T,p#
setp eq|ne BOOL T:b16|b32|b64 ; =p|p,T,T,p#
setp CMPF BOOL ftz? T:f32|f16|f16x2 ; =p|p,T,T,p#
setp CMPF BOOL T:f64 ; =p|p,T,T,p#
setp CMPF T:bf16|bf16x2 ; =p|p,T,T ; ptx7.8 sm90
setp CMPF BOOL T:bf16|bf16x2 ; =p|p,T,T,p ; ptx7.8 sm90
setp eq|ne T:b128 ; =p|p,T,T ; ptx8.3 sm70
selp T:b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64 ; =T,T,T,p#
slct ftz? T:b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64 U:s32|f32 ; =T,T,T,U
and,or,xor T:b16|b32|b64 ; =T,T,T
and,or,xor pred ; =p,p#,p#
not T:b16|b32|b64 ; =T,T
not pred ; =p,p#
cnot T:b16|b32|b64 ; =T,T
lop3 b32 ; =b32,b32,b32,b32,#
lop3 and|or b32 ; =b32&p,b32,b32,b32,#,p ; ptx8.2 sm70
shf l|r clamp|wrap b32 ; =b32,b32,b32,u32
shl T:b16|b32|b64 ; =T,T,u32
shr T:b16|b32|b64|u16|s16|u32|s32|u64|s64 ; =T,T,u32

# --- data movement and conversion (9.7.9)
mov T:MOVT ; =moved,moved
mov T:b128 ; =moved,moved ; ptx8.3 sm70
prmt b32 f4e|b4e|rc8|ecl|ecr|rc16? ; =b32,b32,b32,b32
ld *LDWAY ca|cg|cs|lu|cv? nc? EVICT1? HINT? L2P? n:v2|v4? T:MEM32 ; =n*~T,[],L2::cache_hint>b64 ; r
ld *LDWAY ca|cg|cs|lu|cv? nc? EVICT1? HINT? L2P? n:v2? T:MEM64 ; =n*~T,[],L2::cache_hint>b64 ; r
ld *LDWAY nc? EVICT1? HINT? L2P? T:b128 ; =T,[],L2::cache_hint>b64 ; r ptx8.3 sm70
ld *LDWAY nc? EVICT1? EVICT2? HINT? L2P? n:v8 T:b32|u32|s32|f32 ; =n*T,[],L2::cache_hint>b64 ; r ptx8.8 sm100
ld *LDWAY nc? EVICT1? EVICT2? HINT? L2P? n:v4 T:MEM64 ; =n*T,[],L2::cache_hint>b64 ; r ptx8.8 sm100
ldu global? n:v2|v4? T:MEM32 ; =n*~T,[] ; r
ldu global? n:v2? T:MEM64 ; =n*~T,[] ; r
st *STWAY wb|cg|cs|wt? EVICT1? HINT? n:v2|v4? T:MEM32 ; [],n*~T,L2::cache_hint>b64 ; w
st *STWAY wb|cg|cs|wt? EVICT1? HINT? n:v2? T:MEM64 ; [],n*~T,L2::cache_hint>b64 ; w
st *STWAY EVICT1? HINT? T:b128 ; [],T,L2::cache_hint>b64 ; w ptx8.3 sm70
st *STWAY EVICT1? EVICT2? HINT? n:v8 T:b32|u32|s32|f32 ; [],n*T,L2::cache_hint>b64 ; w ptx8.8 sm100
st *STWAY EVICT1? EVICT2? HINT? n:v4 T:MEM64 ; [],n*T,L2::cache_hint>b64 ; w ptx8.8 sm100
st.async weak? shared::cluster? TX n:v2|v4? T:b32|b64|u32|u64|s32|s64|f32|f64 ; [],n*T,[] ; w a ptx8.1 sm90
st.async mmio? release gpu|sys global? T:b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64 ; [],~T ; w a ptx8.7 sm100
st.bulk weak? shared::cta? ; [],b64,# ; w ptx8.6 sm100
red.async relaxed cluster shared::cluster? TX REDOP T:u32|s32|u64|b32 ; [],T,[] ; w a ptx8.1 sm90
red.async mmio? release gpu|sys global? add T:u32|s32|u64 ; [],T ; w a ptx8.7 sm100
prefetch global|local? L1|L2 ; [] ; v
prefetch global L2::evict_last|L2::evict_normal ; [] ; v ptx7.4
prefetch const|param? tensormap ; [] ; v ptx8.0 sm90
prefetchu L1 ; [] ; v
applypriority global? L2::evict_normal ; [],# ; v ptx7.4
discard global? L2 ; [],# ; w ptx7.4
createpolicy.fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged \
  L2::evict_first|L2::evict_unchanged? b64 ; =b64,f32? ; ptx7.4
createpolicy.range global? L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged \
  L2::evict_first|L2::evict_unchanged? b64 ; =b64,[],u32,u32 ; ptx7.4
createpolicy.cvt L2 b64 ; =b64,b64 ; ptx7.4
isspacep const|global|local|shared|shared::cta|shared::cluster|param|param::entry ; =p,addr
cvta to? global|shared|shared::cta|shared::cluster|local|const|param|param::entry T:u32|u64 ; =T,T
mapa shared::cluster? T:u32|u64 ; =T,T,u32 ; ptx7.8 sm90
getctarank shared::cluster? T:u32|u64 ; =u32,T ; ptx7.8 sm90
cvt D:INT8 A:INT8 ; =~D,~A
cvt sat D:u8 A:s8|u16|s16|u32|s32|u64|s64 ; =~D,~A
cvt sat D:s8 A:u8|u16|s16|u32|s32|u64|s64 ; =~D,~A
cvt sat D:u16 A:s8|s16|u32|s32|u64|s64 ; =~D,~A
cvt sat D:s16 A:u16|u32|s32|u64|s64 ; =~D,~A
cvt sat D:u32 A:s8|s16|s32|u64|s64 ; =~D,~A
cvt sat D:s32 A:u32|u64|s64 ; =~D,~A
cvt sat D:u64 A:s8|s16|s32|s64 ; =~D,~A
cvt sat D:s64 A:u64 ; =~D,~A
cvt RND ftz? sat? D:f32 A:INT8 ; =~D,~A
cvt RND sat? D:f16|f64 A:INT8 ; =~D,~A
cvt RND D:bf16 A:INT ; =D,A ; ptx7.8 sm90
cvt IRND ftz? sat? D:INT8 A:f32 ; =~D,~A
cvt IRND sat? D:INT8 A:f16|f64 ; =~D,~A
cvt IRND D:INT A:bf16 ; =D,A ; ptx7.8 sm90
cvt IRND? ftz? sat? D:f32 A:f32 ; =~D,~A
cvt IRND? sat? D:f16 A:f16 ; =~D,~A
cvt IRND? sat? D:f64 A:f64 ; =~D,~A
cvt IRND? D:bf16 A:bf16 ; =D,A ; ptx7.8 sm90
cvt RND ftz? sat? D:f16 A:f32 ; =~D,~A
cvt RND ftz? sat? D:f32 A:f64 ; =~D,~A
cvt RND sat? D:f16 A:f64 ; =~D,~A
cvt RND ftz? D:bf16 A:f32 ; =D,A
cvt RND? D:bf16 A:f16 ; =D,A ; ptx7.8 sm90
cvt RND D:bf16 A:f64 ; =D,A ; ptx7.8 sm90
cvt RND? D:f16|f64 A:bf16 ; =D,A ; ptx7.8 sm90
cvt ftz? sat? D:f32 A:f16 ; =~D,~A
cvt ftz? sat? D:f64 A:f32 ; =~D,~A
cvt sat? D:f64 A:f16 ; =~D,~A
cvt RND? D:f32 A:bf16 ; =D,A
cvt RND? ftz D:f32 A:bf16 ; =D,A ; ptx7.8 sm90
cvt rn|rz relu? D:f16|bf16 A:f32 ; =D,A
cvt rn|rz relu? satfinite D:f16|bf16 A:f32 ; =D,A ; ptx8.1
cvt rn|rz relu? D:f16x2|bf16x2 A:f32 ; =D,A,A
cvt rn|rz relu? satfinite D:f16x2|bf16x2 A:f32 ; =D,A,A ; ptx8.1
cvt rs relu? satfinite? D:f16x2|bf16x2 A:f32 ; =D,A,A,b32 ; ptx8.7 only100,103
cvt rna D:tf32 A:f32 ; =D,A
cvt rna satfinite D:tf32 A:f32 ; =D,A ; ptx8.1 sm89
cvt rn|rz relu? D:tf32 A:f32 ; =D,A ; ptx7.8 sm90
cvt rn|rz satfinite? relu? D:tf32 A:f32 ; =D,A ; ptx8.6 sm100
cvt rn satfinite relu? D:F8 A:f32 ; =D,A,A ; ptx8.1 sm89
cvt rn satfinite relu? D:F8 A:f16x2|bf16x2 ; =D,A ; ptx8.1 sm89
cvt rn relu? D:f16x2 A:F8 ; =D,A ; ptx8.1 sm89
cvt rn relu? scaled::n2::ue8m0? satfinite? D:bf16x2 A:F8|F6|e2m1x2 ; =D,A ; ptx9.1 only100,103,110,120
cvt rn satfinite relu? D:F6|e2m1x2 A:f32 ; =D,A,A ; ptx8.6 only100,103,110,120
cvt rn relu? D:f16x2 A:F6|e2m1x2 ; =D,A ; ptx8.6 only100,103,110,120
cvt rz|rp satfinite? D:ue8m0x2 A:f32 ; =D,A,A ; ptx8.6 only100,103,110,120
cvt rz|rp satfinite? D:ue8m0x2 A:bf16x2 ; =D,A ; ptx8.6 only100,103,110,120
cvt rn D:bf16x2 A:ue8m0x2 ; =D,A ; ptx8.6 only100,103,110,120
cvt rs relu? satfinite D:e4m3x4|e5m2x4|e2m1x4|e2m3x4|e3m2x4 A:f32 ; =D,4*f32,b32 ; ptx8.7 only100,103
cvt.pack sat D:u16|s16 A:s32 ; =u32,A,A ; ptx6.5
cvt.pack sat D:u8|s8|u4|s4|u2|s2 A:s32 b32 ; =u32,A,A,u32 ; ptx6.5
tensormap.replace tile|im2col FIELD:global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype\
|interleave_layout|swizzle_mode|fill_mode|swizzle_atomicity global|shared::cta? b1024 T:b32|b64 ; !tensormap_replace \
; w ptx8.3 only90,100,103,110,120
tensormap.cp_fenceproxy global shared::cta tensormap::generic release SCOPE sync aligned ; [],[],# ; r w b ptx8.3 sm90

# --- asynchronous copies (9.7.9.25)
cp.async ca|cg shared|shared::cta global HINT? L2P? ; [],[],#,u32?,L2::cache_hint>b64 ; r w a
cp.async ca|cg shared|shared::cta global HINT? L2P? ; [],[],#,p,L2::cache_hint>b64 ; r w a ptx7.5
cp.async.commit_group ; ; b
cp.async.wait_group ; # ; b
cp.async.wait_all ; ; b
cp.async.mbarrier.arrive noinc? SH? b64 ; [] ; w b a
cp.async.bulk shared::cluster global TX multicast::cluster? HINT? ; \
  [],[],u32,[],multicast::cluster>u16,L2::cache_hint>b64 ; r w a ptx8.0 sm90
cp.async.bulk shared::cta global TX HINT? ; [],[],u32,[],L2::cache_hint>b64 ; r w a ptx8.6 sm90
cp.async.bulk shared::cluster shared::cta TX ; [],[],u32,[] ; r w a ptx8.0 sm90
cp.async.bulk global shared::cta bulk_group HINT? cp_mask? ; \
  [],[],u32,L2::cache_hint>b64,cp_mask>u16 ; r w a ptx8.0 sm90
cp.reduce.async.bulk shared::cluster shared::cta TX and|or|xor|add|inc|dec|min|max T:s32|u32|s64|u64|b32|b64 ; \
  [],[],u32,[] ; r w a ptx8.0 sm90
cp.reduce.async.bulk global shared::cta bulk_group HINT? and|or|xor|add|inc|dec|min|max noftz? \
  T:f16|bf16|b32|u32|s32|b64|u64|s64|f32|f64 ; [],[],u32,L2::cache_hint>b64 ; r w a ptx8.0 sm90
cp.async.bulk.prefetch L2 global HINT? ; [],u32,L2::cache_hint>b64 ; v ptx8.0 sm90
cp.async.bulk.commit_group ; ; b ptx8.0 sm90
cp.async.bulk.wait_group read? ; # ; b ptx8.0 sm90
cp.async.bulk.tensor D:RANK shared::cluster global M:tile|im2col|im2col::w|im2col::w::128? TX multicast::cluster? \
  CTAG? HINT? ; !tensor_load ; r w a ptx8.0 sm90
cp.async.bulk.tensor D:RANK shared::cluster global M:tile::gather4 TX multicast::cluster? CTAG? HINT? ; !tensor_load \
  ; r w a ptx8.6 only100,103,110
cp.async.bulk.tensor D:RANK shared::cta global M:tile|im2col|im2col::w|im2col::w::128? TX HINT? ; !tensor_load \
  ; r w a ptx8.6 sm90
cp.async.bulk.tensor D:RANK shared::cta global M:tile::gather4 TX HINT? ; !tensor_load ; r w a ptx8.6 sm100
cp.async.bulk.tensor D:RANK global shared::cta M:tile|tile::scatter4|im2col_no_offs? bulk_group HINT? ; !tensor_store \
  ; r w a ptx8.0 sm90
cp.reduce.async.bulk.tensor D:RANK global shared::cta REDOP M:tile|im2col_no_offs? bulk_group HINT? ; !tensor_store \
  ; r w a ptx8.0 sm90
cp.async.bulk.prefetch.tensor D:RANK L2 global M:tile|tile::gather4|im2col|im2col::w|im2col::w::128? HINT? ; \
  !tensor_prefetch ; v ptx8.0 sm90
multimem.ld_reduce *SEM|SCOPE|weak global? add|min|max|and|or|xor n:VEC? \
  T:u32|s32|b32|u64|s64|b64|f32|f64|f16|f16x2|bf16|bf16x2 ; =n*T,[] ; r ptx8.1 sm90
multimem.ld_reduce *SEM|SCOPE|weak global? add|min|max acc::f32 n:VEC? T:f16|f16x2|bf16|bf16x2 ; =n*T,[] ; r ptx8.2 sm90
multimem.ld_reduce *SEM|SCOPE|weak global? add|min|max acc::f16? n:VEC? T:e4m3|e5m2|e4m3x4|e5m2x4 ; =n*T,[] \
  ; r ptx8.6 only100,103,110
multimem.st *SEM|SCOPE|weak global? n:VEC? T:u32|s32|b32|u64|s64|b64|f32|f64|f16|f16x2|bf16|bf16x2 ; [],n*T \
  ; w ptx8.1 sm90
multimem.red *SEM|SCOPE global? add|min|max|and|or|xor n:VEC? \
  T:u32|s32|b32|u64|s64|b64|f32|f64|f16|f16x2|bf16|bf16x2 ; [],n*T ; w ptx8.1 sm90

# --- atomics (9.7.13.4, .5)
atom *ATWAY add HINT? T:u32|s32|u64|f32|f64 ; =T,[],T,L2::cache_hint>b64 ; r w
atom *ATWAY min|max HINT? T:u32|s32|u64|s64 ; =T,[],T,L2::cache_hint>b64 ; r w
atom *ATWAY inc|dec HINT? T:u32 ; =T,[],T,L2::cache_hint>b64 ; r w
atom *ATWAY and|or|xor HINT? T:b32|b64 ; =T,[],T,L2::cache_hint>b64 ; r w
atom *ATWAY exch HINT? T:b32|b64 ; =T,[],T,L2::cache_hint>b64 ; r w
atom *ATWAY exch HINT? T:b128 ; =T,[],T,L2::cache_hint>b64 ; r w ptx8.3 sm90
atom *ATWAY cas HINT? T:b16|b32|b64 ; =T,[],T,T,L2::cache_hint>b64 ; r w
atom *ATWAY cas HINT? T:b128 ; =T,[],T,T,L2::cache_hint>b64 ; r w ptx8.3 sm90
atom *ATWAY add noftz HINT? T:f16|f16x2 ; =T,[],T,L2::cache_hint>b64 ; r w
atom *ATWAY add noftz HINT? T:bf16|bf16x2 ; =T,[],T,L2::cache_hint>b64 ; r w ptx7.8 sm90
atom *ATWAY add HINT? n:v2|v4 T:f32 ; =n*T,[],n*T,L2::cache_hint>b64 ; r w ptx8.1 sm90
atom *ATWAY add|min|max noftz HINT? n:v2|v4|v8 T:f16|bf16 ; =n*T,[],n*T,L2::cache_hint>b64 ; r w ptx8.1 sm90
atom *ATWAY add|min|max noftz HINT? n:v2|v4 T:f16x2|bf16x2 ; =n*T,[],n*T,L2::cache_hint>b64 ; r w ptx8.1 sm90
red *ATWAY add HINT? T:u32|s32|u64|f32|f64 ; [],T,L2::cache_hint>b64 ; w
red *ATWAY min|max HINT? T:u32|s32|u64|s64 ; [],T,L2::cache_hint>b64 ; w
red *ATWAY inc|dec HINT? T:u32 ; [],T,L2::cache_hint>b64 ; w
red *ATWAY and|or|xor HINT? T:b32|b64 ; [],T,L2::cache_hint>b64 ; w
red *ATWAY add noftz HINT? T:f16|f16x2 ; [],T,L2::cache_hint>b64 ; w
red *ATWAY add noftz HINT? T:bf16|bf16x2 ; [],T,L2::cache_hint>b64 ; w ptx7.8 sm90
red *ATWAY add HINT? n:v2|v4 T:f32 ; [],n*T,L2::cache_hint>b64 ; w ptx8.1 sm90
red *ATWAY add|min|max noftz HINT? n:v2|v4|v8 T:f16|bf16 ; [],n*T,L2::cache_hint>b64 ; w ptx8.1 sm90
red *ATWAY add|min|max noftz HINT? n:v2|v4 T:f16x2|bf16x2 ; [],n*T,L2::cache_hint>b64 ; w ptx8.1 sm90

# --- control (9.7.12, .19)
bra uni? ; label ; c
brx.idx uni? ; u32!,table ; c
call uni? ; =b32,call,b64,b64 ; r w v
ret,exit uni? ; ; c
trap,brkpt ; ; v
nanosleep u32 ; u32 ; v
pmevent mask? ; # ; v

# --- barriers, fences, warp collectives (9.7.13)
bar,barrier sync aligned? ; u32,u32? ; r w b
bar,barrier arrive aligned? ; u32,u32 ; r w b
bar,barrier red popc aligned? u32 ; =u32,u32,u32?,p# ; r w b
bar,barrier red and|or aligned? pred ; =p,u32,u32?,p# ; r w b
bar,barrier cta sync aligned? ; u32,u32? ; r w b ptx7.8
bar,barrier cta arrive aligned? ; u32,u32 ; r w b ptx7.8
bar,barrier cta red popc aligned? u32 ; =u32,u32,u32?,p# ; r w b ptx7.8
bar,barrier cta red and|or aligned? pred ; =p,u32,u32?,p# ; r w b ptx7.8
bar.warp.sync ; u32 ; r w b
barrier.cluster arrive release|relaxed? aligned? ; ; r w b ptx7.8 sm90
barrier.cluster wait acquire? aligned? ; ; r w b ptx7.8 sm90
membar cta|gl|sys ; ; r w b
membar.proxy alias ; ; r w b ptx7.5
membar.proxy async global|shared::cta|shared::cluster? ; ; r w b ptx8.0 sm90
fence sc|acq_rel? cta|cluster|gpu|sys ; ; r w b
fence acquire|release SCOPE ; ; r w b ptx8.0
fence acquire sync_restrict::shared::cluster cluster ; ; r w b ptx8.6 sm90
fence release sync_restrict::shared::cta cluster ; ; r w b ptx8.6 sm90
fence.mbarrier_init release cluster ; ; r w b ptx8.0 sm90
fence.proxy alias ; ; r w b ptx7.5
fence.proxy async global|shared::cta|shared::cluster|shared? ; ; r w b ptx8.0 sm90
fence.proxy tensormap::generic release SCOPE ; ; r w b ptx8.3 sm90
fence.proxy tensormap::generic acquire SCOPE ; [],# ; r w b ptx8.3 sm90
fence.proxy async::generic acquire sync_restrict::shared::cluster cluster ; ; r w b ptx8.6 sm90
fence.proxy async::generic release sync_restrict::shared::cta cluster ; ; r w b ptx8.6 sm90
vote.sync all|any|uni pred ; =p,p#,u32 ; v
vote.sync ballot b32 ; =u32,p#,u32 ; v
match.any sync T:b32|b64 ; =u32,T,u32 ; v
match.all sync T:b32|b64 ; =u32|p,T,u32 ; v
activemask b32 ; =b32 ; v
redux.sync add|min|max T:u32|s32 ; =T,T,u32 ; v
redux.sync and|or|xor b32 ; =u32,u32,u32 ; v
redux.sync min|max abs? NaN? T:f32 ; =T,T,u32 ; v ptx8.6 only100,103
elect.sync ; =u32&p,u32 ; v ptx8.0 sm90
shfl.sync up|down|bfly|idx b32 ; =b32|p,b32,u32,u32,u32 ; v
griddepcontrol launch_dependents|wait ; ; r w b ptx7.8 sm90
setmaxnreg inc|dec sync aligned u32 ; # ; v b ptx8.0 only90,100,103,110,120

# --- mbarrier (9.7.13.15)
mbarrier.init SHL? b64 ; [],u32 ; w b
mbarrier.inval SHL? b64 ; [] ; w b
mbarrier.arrive,mbarrier.arrive_drop *release|SCOPE SHL? b64 ; =b64,[] ; r w b
mbarrier.arrive,mbarrier.arrive_drop *release|SCOPE SHL? b64 ; =b64,[],u32 ; r w b ptx7.8 sm90
mbarrier.arrive,mbarrier.arrive_drop relaxed SCOPE SHL? b64 ; =b64,[],u32? ; r w b ptx8.6 sm90
mbarrier.arrive,mbarrier.arrive_drop release? SCOPE? shared::cluster b64 ; =_,[],u32? ; r w b ptx8.0 sm90
mbarrier.arrive,mbarrier.arrive_drop relaxed SCOPE shared::cluster b64 ; =_,[],u32? ; r w b ptx8.6 sm90
mbarrier.arrive,mbarrier.arrive_drop noComplete *release|SCOPE SHL? b64 ; =b64,[],u32 ; r w b
mbarrier.arrive.expect_tx,mbarrier.arrive_drop.expect_tx release? SCOPE? SHL? b64 ; =b64,[],u32 ; r w b ptx8.0 sm90
mbarrier.arrive.expect_tx,mbarrier.arrive_drop.expect_tx relaxed SCOPE SHL? b64 ; =b64,[],u32 ; r w b ptx8.6 sm90
mbarrier.arrive.expect_tx,mbarrier.arrive_drop.expect_tx release? SCOPE? shared::cluster b64 ; =_,[],u32 \
  ; r w b ptx8.0 sm90
mbarrier.arrive.expect_tx,mbarrier.arrive_drop.expect_tx relaxed SCOPE shared::cluster b64 ; =_,[],u32 \
  ; r w b ptx8.6 sm90
mbarrier.expect_tx,mbarrier.complete_tx *relaxed|SCOPE SH? b64 ; [],u32 ; r w b ptx8.0 sm90
mbarrier.test_wait acquire? SCOPE? SHL? b64 ; =p,[],b64 ; r w b
mbarrier.test_wait relaxed SCOPE SHL? b64 ; =p,[],b64 ; r w b ptx8.6 sm90
mbarrier.test_wait.parity acquire? SCOPE? SHL? b64 ; =p,[],u32 ; r w b ptx7.1
mbarrier.test_wait.parity relaxed SCOPE SHL? b64 ; =p,[],u32 ; r w b ptx8.6 sm90
mbarrier.try_wait acquire? SCOPE? SHL? b64 ; =p,[],b64,u32? ; r w b ptx7.8 sm90
mbarrier.try_wait relaxed SCOPE SHL? b64 ; =p,[],b64,u32? ; r w b ptx8.6 sm90
mbarrier.try_wait.parity acquire? SCOPE? SHL? b64 ; =p,[],u32,u32? ; r w b ptx7.8 sm90
mbarrier.try_wait.parity relaxed SCOPE SHL? b64 ; =p,[],u32,u32? ; r w b ptx8.6 sm90
mbarrier.pending_count b64 ; =u32,b64

# --- matrices (9.7.14, 9.7.15)
ldmatrix sync aligned m8n8 x:x1|x2|x4 trans? shared|shared::cta? b16 ; =x*b32,[] ; r v
ldmatrix sync aligned S:m16n16 x:x1|x2 trans shared|shared::cta? b8 ; !ldmatrix_wide ; r v ptx8.6 only100,103,110,120
ldmatrix sync aligned S:m16n16 x:x1|x2 trans shared|shared::cta? b8x16 b4x16_p64|b6x16_p32 ; !ldmatrix_wide \
  ; r v ptx8.6 only100,103,110,120
ldmatrix sync aligned m8n16 x:x1|x2|x4 shared|shared::cta? b8x16 b4x16_p64|b6x16_p32 ; =x*b32,[] \
  ; r v ptx8.6 only100,103,110,120
stmatrix sync aligned m8n8 x:x1|x2|x4 trans? shared|shared::cta? b16 ; [],x*b32 ; w v ptx7.8 sm90
stmatrix sync aligned m16n8 x:x1|x2|x4 trans shared|shared::cta? b8 ; [],x*b32 ; w v ptx8.6 only100,103,110,120
movmatrix sync aligned m8n8 trans b16 ; =b32,b32! ; v ptx7.8
mma sync aligned S:SHAPE row col satfinite? D:f16|f32|s32 A:MA B:MA C:f16|f32|s32 ; !mma ; v
mma sync aligned S:m8n8k4 row|col row|col D:f16|f32 A:f16 B:f16 C:f16|f32 ; !mma ; v
mma sync aligned S:m8n8k4 row col D:f64 A:f64 B:f64 C:f64 ; !mma ; v
mma sync aligned S:m16n8k4|m16n8k8|m16n8k16 row col D:f64 A:f64 B:f64 C:f64 ; !mma ; v ptx7.8 sm90
mma sync aligned S:SHAPE row col D:s32 A:b1 B:b1 C:s32 and|xor popc ; !mma ; v
mma sync aligned S:m16n8k32 row col D:f32 A:e4m3|e5m2 B:e4m3|e5m2 C:f32 ; !mma ; v ptx8.4 sm89
mma sync aligned S:m16n8k32|m16n8k16 row col D:f16|f32 A:e4m3|e5m2 B:e4m3|e5m2 C:f16|f32 ; !mma ; v ptx8.7 sm89
mma sync aligned S:SHAPE row col kind::f8f6f4 D:f32|f16 A:M8 B:M8 C:f32|f16 ; !mma ; v ptx8.7 only120,121
mma sync aligned S:SHAPE row col kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4 block_scale \
  scale_vec::1X|scale_vec::2X|scale_vec::4X? D:f32 A:M8 B:M8 C:f32 ue8m0|ue4m3 ; !mma_scaled ; v ptx8.7 only120,121
mma.sp,mma.sp::ordered_metadata sync aligned S:SHAPE row col satfinite? D:MD A:MA|e4m3|e5m2 B:MA|e4m3|e5m2 C:MD ; \
  !mma_sparse ; v
wgmma.fence sync aligned ; ; v b ptx8.0 only90
wgmma.commit_group sync aligned ; ; v b ptx8.0 only90
wgmma.wait_group sync aligned ; # ; v b ptx8.0 only90
wgmma.mma_async sync aligned S:SHAPE D:f16|f32 A:f16|bf16|tf32|e4m3|e5m2 B:f16|bf16|tf32|e4m3|e5m2 ; !wgmma \
  ; r v a ptx8.0 only90
wgmma.mma_async sync aligned S:SHAPE D:s32 A:s8 B:s8 satfinite? ; !wgmma ; r v a ptx8.0 only90
wgmma.mma_async sync aligned S:SHAPE D:s32 A:u8 B:u8 satfinite? ; !wgmma ; r v a ptx8.0 only90
wgmma.mma_async sync aligned S:SHAPE D:s32 A:s8|u8 B:s8|u8 satfinite? ; !wgmma ; r v a ptx8.4 only90
wgmma.mma_async sync aligned S:SHAPE D:s32 A:b1 B:b1 and popc ; !wgmma ; r v a ptx8.0 only90
wgmma.mma_async.sp sync aligned S:SHAPE D:f16|f32 A:f16|bf16|tf32|e4m3|e5m2 B:f16|bf16|tf32|e4m3|e5m2 ; !wgmma_sparse \
  ; r v a ptx8.2 only90
wgmma.mma_async.sp sync aligned S:SHAPE D:s32 A:s8|u8 B:s8|u8 satfinite? ; !wgmma_sparse ; r v a ptx8.4 only90

# --- tensor memory (9.7.16)
tcgen05.alloc CTAG sync aligned shared::cta? b32 ; [],u32 ; r w b ptx8.6 only100,103,110
tcgen05.dealloc CTAG sync aligned b32 ; u32,u32 ; w b ptx8.6 only100,103,110
tcgen05.relinquish_alloc_permit CTAG sync aligned ; ; b ptx8.6 only100,103,110
tcgen05.ld sync aligned S:32x32b|16x64b|16x128b|16x256b|16x32bx2 x:XN pack::16b? b32 ; !tmem_load \
  ; r v a ptx8.6 only100,103,110
tcgen05.ld.red sync aligned S:32x32b|16x32bx2 x:XN min|max abs? NaN? T:f32|u32|s32 ; !tmem_load_red \
  ; r v a ptx8.8 only103,110
tcgen05.st sync aligned S:32x32b|16x64b|16x128b|16x256b|16x32bx2 x:XN unpack::16b? b32 ; !tmem_store \
  ; w v a ptx8.6 only100,103,110
tcgen05.wait::ld,tcgen05.wait::st sync aligned ; ; b ptx8.6 only100,103,110
tcgen05.fence::before_thread_sync,tcgen05.fence::after_thread_sync ; ; b ptx8.6 only100,103,110
tcgen05.commit CTAG mbarrier::arrive::one shared::cluster? multicast::cluster? b64 ; [],multicast::cluster>u16 \
  ; w b a ptx8.6 only100,103,110
tcgen05.cp CTAG 128x256b|4x256b|128x128b b8x16? b4x16_p64|b6x16_p32? ; [],b64! ; r w a ptx8.6 only100,103,110
tcgen05.cp CTAG 64x128b warpx2::02_13|warpx2::01_23 b8x16? b4x16_p64|b6x16_p32? ; [],b64! ; r w a ptx8.6 only100,103,110
tcgen05.cp CTAG 32x128b warpx4 b8x16? b4x16_p64|b6x16_p32? ; [],b64! ; r w a ptx8.6 only100,103,110
tcgen05.shift CTAG down ; [] ; r w a ptx8.6 only100,103,110
tcgen05.mma CTAG kind::f16|kind::tf32|kind::f8f6f4 COLLECT? ; \
  [],b64!,b64!,b32,cta_group::1>4*b32?,cta_group::2>8*b32?,p#,#? ; r w a ptx8.6 only100,103,110
tcgen05.mma CTAG kind::f16|kind::tf32|kind::f8f6f4 ashift? COLLECT? ; \
  [],[],b64!,b32,cta_group::1>4*b32?,cta_group::2>8*b32?,p#,#? ; r w a ptx8.6 only100,103,110
tcgen05.mma CTAG kind::i8 COLLECT? ; [],b64!,b64!,b32,cta_group::1>4*b32?,cta_group::2>8*b32?,p#,#? \
  ; r w a ptx8.6 only100,110
tcgen05.mma CTAG kind::i8 ashift? COLLECT? ; [],[],b64!,b32,cta_group::1>4*b32?,cta_group::2>8*b32?,p#,#? \
  ; r w a ptx8.6 only100,110
tcgen05.mma CTAG kind::mxf8f6f4 block_scale scale_vec::1X|block32? COLLECT? ; \
  [],b64!,b64!,b32,[],[],p# / [],[],b64!,b32,[],[],p# ; r w a ptx8.6 only100,103,110
tcgen05.mma CTAG kind::mxf4 block_scale scale_vec::2X|block32? COLLECT? ; \
  [],b64!,b64!,b32,[],[],p# / [],[],b64!,b32,[],[],p# ; r w a ptx8.6 only100,103,110
tcgen05.mma CTAG kind::mxf4nvf4 block_scale scale_vec::2X|scale_vec::4X|block16|block32 COLLECT? ; \
  [],b64!,b64!,b32,[],[],p# / [],[],b64!,b32,[],[],p# \
  ; r w a ptx8.7 only100,103,110
tcgen05.mma.sp CTAG kind::f16|kind::tf32|kind::f8f6f4 ashift? COLLECT? ; \
  [],b64!,b64!,[],b32,cta_group::1>4*b32?,cta_group::2>8*b32?,p#,#? / \
  [],[],b64!,[],b32,cta_group::1>4*b32?,cta_group::2>8*b32?,p#,#? ; r w a ptx8.6 only100,103,110
tcgen05.mma.sp CTAG kind::i8 ashift? COLLECT? ; [],b64!,b64!,[],b32,cta_group::1>4*b32?,cta_group::2>8*b32?,p#,#? / \
  [],[],b64!,[],b32,cta_group::1>4*b32?,cta_group::2>8*b32?,p#,#? ; r w a ptx8.6 only100,110
tcgen05.mma.ws cta_group::1 kind::f16|kind::tf32|kind::f8f6f4|kind::i8 COLLECTB? ; [],b64!,b64!,b32,p#,b64? / \
  [],[],b64!,b32,p#,b64? ; r w a ptx8.6 only100,103,110
tcgen05.mma.ws.sp cta_group::1 kind::f16|kind::tf32|kind::f8f6f4|kind::i8 COLLECTB? ; [],b64!,b64!,[],b32,p#,b64? / \
  [],[],b64!,[],b32,p#,b64? ; r w a ptx8.6 only100,103,110

# --- cluster launch control (9.7.13.17)
clusterlaunchcontrol.try_cancel async shared::cta? TX multicast::cluster::all? b128 ; [],[] ; r w a ptx8.6 sm100
clusterlaunchcontrol.query_cancel is_canceled pred b128 ; =p,b128 ; ptx8.6 sm100
clusterlaunchcontrol.query_cancel get_first_ctaid v4 b32 b128 ; =4*b32,b128 ; ptx8.6 sm100
clusterlaunchcontrol.query_cancel get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z b32 b128 ; =b32,b128 ; \
  ptx8.6 sm100
"""

SETS["SHAPE"] = r"m\d+n\d+k\d+"
SETS["MD"] = "f16|f32|s32"
SETS["MA"] = "f16|bf16|tf32|s8|u8|s4|u4"
SETS["XN"] = "x1|x2|x4|x8|x16|x32|x64|x128"
SETS["COLLECT"] = "|".join(f"collector::a::{op}" for op in ("fill", "use", "lastuse", "discard"))
SETS["COLLECTB"] = "|".join(f"collector::b{n}::{op}" for n in range(4) for op in ("fill", "use", "lastuse", "discard"))
SETS["M8"] = "e4m3|e5m2|e3m2|e2m3|e2m1"
