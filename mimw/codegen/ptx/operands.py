"""What stands at the operand positions of a PTX instruction: type sizes, `Slot`, and operand lists.

Owns the operand notation of `isa_table` (its docstring explains it) and the lists that no notation can say: matrix
instructions, whose register counts follow from a shape, and tensor copies, whose coordinates follow from a rank.
Knows no opcode.
"""

from __future__ import annotations

from collections.abc import Callable

BITS: dict[str, int] = {
    **dict.fromkeys(("b8", "u8", "s8", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "e2m1x2"), 8),
    **dict.fromkeys(
        ("b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2", "e2m1x4"), 16
    ),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "tf32", "u16x2", "s16x2"), 32),
    **dict.fromkeys(("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4"), 32),
    **dict.fromkeys(("b64", "u64", "s64", "f64", "f32x2"), 64),
    "b128": 128,
    "pred": 1,
    **dict.fromkeys(("s4", "u4"), 4),
    **dict.fromkeys(("s2", "u2"), 2),
    "b1": 1,
}
# Special registers, without the percent sign and what follows a dot (section 10 of the ISA).
_SPECIAL_LIST = (
    "tid ntid laneid warpid nwarpid ctaid nctaid smid nsmid gridid clusterid nclusterid cluster_ctaid cluster_nctaid "
    "cluster_ctarank cluster_nctarank is_explicit_cluster lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt "
    "clock clock_hi clock64 globaltimer globaltimer_lo globaltimer_hi total_smem_size aggr_smem_size dynamic_smem_size "
    "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_0 "
    "reserved_smem_offset_1 current_graph_exec"
)
SPECIAL_REGISTERS = frozenset(
    [*_SPECIAL_LIST.split(), *(f"envreg{i}" for i in range(32)), *(f"pm{i}" for i in range(8))]
)
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_REGISTER_OF = {1: "pred", 8: "b8", 16: "b16", 32: "b32", 64: "b64", 128: "b128"}
FLOATS = frozenset(("f16", "f32", "f64", "f16x2", "bf16", "bf16x2"))


def type_bits(name: str) -> int:
    """Size in bits of a PTX type or register class (``f16x2`` is 32); `KeyError` when there is no such type."""
    return BITS[name]


def register_class(type_name: str) -> str:
    """The class of registers that mimw holds a value of this type in: f32 and f64 their own, others ``bN``."""
    return type_name if type_name in ("f32", "f64") else _REGISTER_OF[BITS[type_name]]


class Slot:
    """What stands at one operand position.

    `kind`: reg, vec, pred, addr, tmap, imm, sink, label, table, any, call. `cls`: the PTX type. `count`: registers of
    a tuple, or coordinates of a tensor map. `result`: written. `also_read`: an accumulator. `optional`: may be left
    out. `imm`: an immediate may stand here. `wide`: the register may be wider than the type. `pair`: "" none, "may"
    or "must" have a second predicate.
    """

    __slots__ = ("also_read", "cls", "count", "imm", "kind", "optional", "pair", "result", "wide")

    def __init__(
        self,
        kind: str,
        cls: str = "",
        count: int = 1,
        *,
        result: bool = False,
        also_read: bool = False,
        optional: bool = False,
        imm: bool = False,
        wide: bool = False,
        pair: str = "",
    ) -> None:
        self.kind = kind
        self.cls = cls
        self.count = count
        self.result = result
        self.also_read = also_read
        self.optional = optional
        self.imm = imm
        self.wide = wide
        self.pair = pair

    def __repr__(self) -> str:
        mark = "+" if self.also_read else "=" if self.result else ""
        body = f"{self.count}*{self.cls}" if self.kind == "vec" else f"{self.kind} {self.cls}".strip()
        return f"{mark}{body}{'?' if self.optional else ''}"


Signature = tuple[Slot, ...]


def parse_signature(text: str, captures: dict[str, str], modifiers: tuple[str, ...]) -> Signature:
    slots: list[Slot] = []
    for part in text.split(","):
        word = part.strip()
        condition, arrow, rest = word.partition(">")
        if arrow:
            if condition not in modifiers:
                continue
            word = rest
        if word:
            slots.append(_slot(word, captures))
    return tuple(slots)


def _slot(word: str, captures: dict[str, str]) -> Slot:
    """One operand of a row's notation (see the table's docstring)."""
    optional = word.endswith("?")
    word = word.removesuffix("?")
    also_read = word.startswith("+")
    result = also_read or word.startswith("=")
    word = word.lstrip("=+")
    if word.startswith("["):
        count = int(word[1:-1] or 0)
        return Slot("tmap" if count else "addr", count=count, optional=optional)
    if word == "#":
        return Slot("imm", optional=optional, imm=True)
    if word in ("label", "table", "call", "addr"):
        return Slot("pointer" if word == "addr" else word, result=result, imm=not result)
    if word == "moved":
        return Slot("moved", captures["T"], result=result, imm=not result)
    if word == "_":
        return Slot("sink", result=True)
    pair = "may" if word.endswith("|p") else "must" if word.endswith("&p") else ""
    word = word[:-2] if pair else word
    if word in ("p", "p#"):
        return Slot("pred", "pred", result=result, optional=optional, imm=word == "p#", pair=pair)
    count, is_vec = 1, False
    if "*" in word:
        many, _, word = word.partition("*")
        many = captures.get(many, many)
        is_vec = many not in ("n", "")
        count = int(many.lstrip("vx")) if is_vec else 1
    wide = word.startswith("~")
    word = word.removeprefix("~")
    register_only = word.endswith("!")
    word = word.removesuffix("!")
    if word.startswith("2"):
        cls = _WIDER[captures.get(word[1:], word[1:])]
    else:
        cls = captures.get(word, word)
    if is_vec:
        return Slot("vec", cls, count, result=result, also_read=also_read, optional=optional, imm=not result, wide=wide)
    kind = "pred" if cls == "pred" else "reg"
    imm = not result and not register_only
    return Slot(kind, cls, result=result, also_read=also_read, optional=optional, imm=imm, wide=wide, pair=pair)


_SPARSE = (Slot("reg", "b32"), Slot("imm", imm=True))  # metadata and selector


# --- operand lists that depend on more than a type


def _shape(captures: dict[str, str]) -> tuple[int, int, int]:
    m, _, rest = captures["S"][1:].partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


def _regs(cls: str, elements: int) -> tuple[str, int]:
    """Register type and count that hold `elements` values of a matrix type in one lane."""
    if cls in ("f64", "f32", "s32"):
        return cls, elements
    return "b32", max(1, elements * BITS[cls] // 32)


def _vec(cls: str, count: int, *, result: bool = False, also_read: bool = False, imm: bool = False) -> Slot:
    return Slot("vec", cls, count, result=result, also_read=also_read, imm=imm)


def _matrix_sizes(
    captures: dict[str, str],
) -> tuple[tuple[str, int], tuple[str, int], tuple[str, int], tuple[str, int]]:
    m, n, k = _shape(captures)
    if (m, n, k) == (8, 8, 4) and captures["A"] == "f16":  # four independent quarter-warp products
        acc = {"f16": ("b32", 4), "f32": ("f32", 8)}
        return acc[captures["D"]], ("b32", 2), ("b32", 2), acc[captures["C"]]
    return (
        _regs(captures["D"], m * n // 32),
        _regs(captures["A"], m * k // 32),
        _regs(captures["B"], k * n // 32),
        _regs(captures["C"], m * n // 32),
    )


# Shapes of mma.sync by operand type, and the K of one wgmma.
_MMA_SHAPES = {
    "f16": "m8n8k4 m16n8k8 m16n8k16",
    "bf16": "m16n8k8 m16n8k16",
    "tf32": "m16n8k4 m16n8k8",
    "f64": "m8n8k4 m16n8k4 m16n8k8 m16n8k16",
    **dict.fromkeys(("s8", "u8"), "m8n8k16 m16n8k16 m16n8k32"),
    **dict.fromkeys(("s4", "u4"), "m8n8k32 m16n8k32 m16n8k64"),
    **dict.fromkeys(("e4m3", "e5m2"), "m16n8k16 m16n8k32"),
    "b1": "m8n8k128 m16n8k128 m16n8k256",
}
_WGMMA_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_ALIKE = (frozenset(("s8", "u8")), frozenset(("s4", "u4")), frozenset(("e4m3", "e5m2")))


def _check_types(captures: dict[str, str]) -> None:
    """`ValueError` when the operand types of a product do not go together."""
    a, b, d = captures["A"], captures["B"], captures["D"]
    if a != b and not any({a, b} <= alike for alike in _ALIKE):
        raise ValueError(f"operands of {a} and {b} cannot be multiplied")
    integer = a in ("s8", "u8", "s4", "u4", "b1")
    half = a in ("f16", "e4m3", "e5m2")
    if integer != (d == "s32") or (d == "f16" and not half):
        raise ValueError(f"a product of {a} cannot be accumulated in {d}")


def _mma(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    if "kind::f8f6f4" in modifiers:
        captures = {**captures, "A": "e4m3", "B": "e4m3"}  # narrower types stand in bytes
    _check_types(captures)
    if captures["S"] not in _MMA_SHAPES[captures["A"]].split():
        raise ValueError(f"mma.sync has no shape {captures['S']} for {captures['A']}")
    d, a, b, c = _matrix_sizes(captures)
    return ((_vec(*d, result=True), _vec(*a), _vec(*b), _vec(*c)),)


def _mma_scaled(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    byte = (
        {**captures, "A": "e4m3", "B": "e4m3"} if "kind::mxf8f6f4" in modifiers else {**captures, "A": "s4", "B": "s4"}
    )
    d, a, b, c = _matrix_sizes(byte)
    scale = (Slot("reg", "b32", wide=True), _vec("u16", 2, imm=True))
    return ((_vec(*d, result=True), _vec(*a), _vec(*b), _vec(*c), *scale, *scale),)


def _mma_sparse(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    del modifiers
    d, a, b, c = _matrix_sizes(captures)
    half = (a[0], a[1] // 2)
    return ((_vec(*d, result=True), _vec(*half), _vec(*b), _vec(*c), *_SPARSE),)


def _wgmma_flags(captures: dict[str, str], from_registers: bool) -> list[Slot]:
    kind = captures["A"]
    if kind in ("s8", "u8", "b1"):
        return []
    transposes = 0 if kind not in ("f16", "bf16") else 1 if from_registers else 2
    return [Slot("imm", imm=True) for _ in range(2 + transposes)]


def _wgmma_lists(captures: dict[str, str], between: tuple[Slot, ...]) -> tuple[Signature, Signature]:
    _check_types(captures)
    m, n, k = _shape(captures)
    kind = captures["A"]
    integer = kind in ("s8", "u8", "b1")
    good_n = 8 <= n <= 256 and n % 8 == 0 and not (integer and n > 24 and n % 16)
    if m != 64 or not good_n or k != _WGMMA_K[kind] * (2 if between else 1):
        raise ValueError(f"wgmma has no shape {captures['S']} for {kind}")
    d = _vec(*_regs(captures["D"], n // 2), result=True, also_read=True)
    desc = Slot("reg", "b64")
    scale_d = Slot("pred", "pred", imm=True)
    shared = (d, desc, desc, *between, scale_d, *_wgmma_flags(captures, False))
    registers = (d, _vec("b32", 4), desc, *between, scale_d, *_wgmma_flags(captures, True))
    return shared, registers


def _wgmma(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    del modifiers
    return _wgmma_lists(captures, ())


def _wgmma_sparse(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    del modifiers
    return _wgmma_lists(captures, _SPARSE)


def _coords(captures: dict[str, str]) -> Slot:
    gathers = captures.get("M", "") in ("tile::gather4", "tile::scatter4")
    return Slot("tmap", count=5 if gathers else int(captures["D"][0]))


def _im2col(captures: dict[str, str]) -> list[Slot]:
    mode = captures.get("M", "")
    if not mode.startswith("im2col"):
        return []
    return [_vec("u16", int(captures["D"][0]) - 2 if mode == "im2col" else 2, imm=True)]


def _hint(modifiers: tuple[str, ...]) -> list[Slot]:
    return [Slot("reg", "b64", imm=True)] if "L2::cache_hint" in modifiers else []


def _tensor_load(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    mask = [Slot("reg", "u16", imm=True)] if "multicast::cluster" in modifiers else []
    address = Slot("addr")
    return ((address, _coords(captures), address, *_im2col(captures), *mask, *_hint(modifiers)),)


def _tensor_store(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    return ((_coords(captures), Slot("addr"), *_hint(modifiers)),)


def _tensor_prefetch(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    return ((_coords(captures), *_im2col(captures), *_hint(modifiers)),)


def _tensormap_replace(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    del modifiers
    field = captures["FIELD"]
    value = Slot("reg", captures["T"], imm=True)
    ordinal = [Slot("imm", imm=True)] if field.endswith(("_dim", "_stride")) else []
    return ((Slot("addr"), *ordinal, value),)


def _ldmatrix_wide(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    del modifiers
    return ((_vec("b32", 2 * int(captures["x"][1:]), result=True), Slot("addr")),)


# Registers of one lane at .x1, by the shape of a tensor-memory access (x128 registers at most).
_TMEM_REGS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}


def _tmem_vector(captures: dict[str, str], cls: str, result: bool) -> tuple[Slot, list[Slot]]:
    """The registers of a tensor-memory access, and the immediate that shape 16x32bx2 takes."""
    count = _TMEM_REGS[captures["S"]] * int(captures["x"][1:])
    if count > 128:
        raise ValueError(f"tensor memory has no access {captures['S']}.{captures['x']}")
    return _vec(cls, count, result=result), [Slot("imm", imm=True)] if captures["S"] == "16x32bx2" else []


def _tmem_load(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    del modifiers
    vector, split = _tmem_vector(captures, "b32", True)
    return ((vector, Slot("addr"), *split),)


def _tmem_load_red(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    del modifiers
    vector, split = _tmem_vector(captures, "b32", True)
    return ((vector, Slot("reg", captures["T"], result=True), Slot("addr"), *split),)


def _tmem_store(captures: dict[str, str], modifiers: tuple[str, ...]) -> tuple[Signature, ...]:
    del modifiers
    vector, split = _tmem_vector(captures, "b32", False)
    return ((Slot("addr"), *split, vector),)


SPECIAL: dict[str, Callable[[dict[str, str], tuple[str, ...]], tuple[Signature, ...]]] = {
    "mma": _mma,
    "mma_scaled": _mma_scaled,
    "mma_sparse": _mma_sparse,
    "wgmma": _wgmma,
    "wgmma_sparse": _wgmma_sparse,
    "tmem_load": _tmem_load,
    "tmem_load_red": _tmem_load_red,
    "tmem_store": _tmem_store,
    "tensor_load": _tensor_load,
    "tensor_store": _tensor_store,
    "tensor_prefetch": _tensor_prefetch,
    "tensormap_replace": _tensormap_replace,
    "ldmatrix_wide": _ldmatrix_wide,
}
