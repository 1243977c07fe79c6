"""The types of tile IR: scalars, pointers, tensors, memdescs, barriers, tokens, descriptors.

Types are interned: equal types are the same object, so `is` compares them and a type can be a dictionary key. A type has a text
form (``str(t)``) that the IR parser reads back. A tensor's layout is part of its type; it is None until layout inference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Union

if TYPE_CHECKING:
    from mimw.ir.layout import Layout, SharedLayout


class DType:
    """A scalar type. `kind` is "bool", "int", "uint" or "float"; `bits` its width in memory (bool: 8 in memory, 1 as a value).

    Floats carry `mantissa` (explicit bits) and `exponent` bits: from them come ulps and exactness of casts. `fnuz` marks the 8-bit floats of
    CDNA3: no infinity, no -0, whose code is the only NaN, and a bias one larger.
    """

    __slots__ = ("bits", "exponent", "fnuz", "kind", "mantissa", "name", "numpy_name")

    def __init__(
        self, name: str, kind: str, bits: int, numpy_name: str, mantissa: int = 0, exponent: int = 0, fnuz: bool = False
    ) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        self.numpy_name = numpy_name
        self.mantissa = mantissa
        self.exponent = exponent
        self.fnuz = fnuz

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return self.bits // 8

    @property
    def bias(self) -> int:
        """What a float's exponent field holds for numbers in [1, 2)."""
        return (1 << (self.exponent - 1)) - (0 if self.fnuz else 1)

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of one value; 1 for bool. (Triton's name.)"""
        return 1 if self.kind == "bool" else self.bits

    def is_ptr(self) -> bool:
        """Whether this is a pointer type: no. (Triton's name.)"""
        return False

    def is_floating(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.kind == "float"

    def is_int(self) -> bool:
        """Whether values are integers, bool included."""
        return self.kind != "float"

    def is_signed(self) -> bool:
        """Whether integer division, shift right and comparison treat values as signed."""
        return self.kind == "int"

    def is_bool(self) -> bool:
        """Whether this is i1."""
        return self.kind == "bool"

    def is_fp8(self) -> bool:
        """Whether this is an 8-bit float."""
        return self.kind == "float" and self.bits == 8

    # Triton's names for the same questions.

    @property
    def scalar(self) -> DType:
        """Itself: the type of an element."""
        return self

    def is_block(self) -> bool:
        """Whether this is the type of a tile: no."""
        return False

    def is_fp16(self) -> bool:
        """Whether this is f16."""
        return self is F16

    def is_bf16(self) -> bool:
        """Whether this is bf16."""
        return self is BF16

    def is_fp32(self) -> bool:
        """Whether this is f32."""
        return self is F32

    def is_fp64(self) -> bool:
        """Whether this is f64."""
        return self is F64

    def is_int1(self) -> bool:
        """Whether this is i1."""
        return self is I1

    def is_int8(self) -> bool:
        """Whether this is i8."""
        return self is I8

    def is_int16(self) -> bool:
        """Whether this is i16."""
        return self is I16

    def is_int32(self) -> bool:
        """Whether this is i32."""
        return self is I32

    def is_int64(self) -> bool:
        """Whether this is i64."""
        return self is I64

    def is_uint32(self) -> bool:
        """Whether this is u32."""
        return self is U32


I1 = DType("i1", "bool", 8, "bool")
I8 = DType("i8", "int", 8, "int8")
I16 = DType("i16", "int", 16, "int16")
I32 = DType("i32", "int", 32, "int32")
I64 = DType("i64", "int", 64, "int64")
U8 = DType("u8", "uint", 8, "uint8")
U16 = DType("u16", "uint", 16, "uint16")
U32 = DType("u32", "uint", 32, "uint32")
U64 = DType("u64", "uint", 64, "uint64")
F8E4M3 = DType("f8e4m3", "float", 8, "float8_e4m3fn", 3, 4)
F8E5M2 = DType("f8e5m2", "float", 8, "float8_e5m2", 2, 5)
F8E4M3FNUZ = DType("f8e4m3fnuz", "float", 8, "float8_e4m3fnuz", 3, 4, fnuz=True)
F8E5M2FNUZ = DType("f8e5m2fnuz", "float", 8, "float8_e5m2fnuz", 2, 5, fnuz=True)
F16 = DType("f16", "float", 16, "float16", 10, 5)
BF16 = DType("bf16", "float", 16, "bfloat16", 7, 8)
F32 = DType("f32", "float", 32, "float32", 23, 8)
F64 = DType("f64", "float", 64, "float64", 52, 11)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (I1, I8, I16, I32, I64, U8, U16, U32, U64, F8E4M3, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F16, BF16, F32, F64)
}


class PointerType:
    """A pointer to elements of `pointee` in `space` ("global" or "shared")."""

    __slots__ = ("pointee", "space")
    _pool: ClassVar[dict[tuple[DType, str], PointerType]] = {}

    pointee: DType
    space: str

    def __new__(cls, pointee: DType, space: str = "global") -> PointerType:
        found = cls._pool.get((pointee, space))
        if found is None:
            found = object.__new__(cls)
            found.pointee = pointee
            found.space = space
            found = cls._pool.setdefault((pointee, space), found)
        return found

    @property
    def element_ty(self) -> DType:
        """What it points to. (Triton's name.)"""
        return self.pointee

    @property
    def scalar(self) -> PointerType:
        """Itself: the type of an element. (Triton's name.)"""
        return self

    def is_ptr(self) -> bool:
        """Whether this is a pointer type: yes. (Triton's name.)"""
        return True

    def is_block(self) -> bool:
        """Whether this is the type of a tile: no. (Triton's name.)"""
        return False

    def __str__(self) -> str:
        return f"ptr<{self.pointee}>" if self.space == "global" else f"ptr<{self.pointee}, {self.space}>"

    __repr__ = __str__


Element = Union[DType, PointerType]


class TensorType:
    """A tile held in registers: `shape` elements of `element` (a scalar or a pointer type), spread by `layout` (None: not yet)."""

    __slots__ = ("element", "layout", "shape")
    _pool: ClassVar[dict[tuple[tuple[int, ...], Element, object], TensorType]] = {}

    shape: tuple[int, ...]
    element: Element
    layout: Layout | None

    def __new__(cls, shape: tuple[int, ...], element: Element, layout: Layout | None = None) -> TensorType:
        key = (shape, element, layout)
        found = cls._pool.get(key)
        if found is None:
            found = object.__new__(cls)
            found.shape = shape
            found.element = element
            found.layout = layout
            found = cls._pool.setdefault(key, found)
        return found

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def scalar(self) -> Element:
        """The type of an element. (Triton's name, as `element_ty`.)"""
        return self.element

    @property
    def element_ty(self) -> Element:
        """The type of an element."""
        return self.element

    def is_block(self) -> bool:
        """Whether this is the type of a tile: yes. (Triton's name.)"""
        return True

    @property
    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for s in self.shape:
            n *= s
        return n

    def with_layout(self, layout: Layout | None) -> TensorType:
        """The same tile in another layout."""
        return TensorType(self.shape, self.element, layout)

    def with_element(self, element: Element) -> TensorType:
        """The same shape and layout with other elements."""
        return TensorType(self.shape, element, self.layout)

    def __str__(self) -> str:
        dims = "".join(f"{s}x" for s in self.shape)
        tail = f", {self.layout}" if self.layout is not None else ""
        return f"tensor<{dims}{self.element}{tail}>"

    __repr__ = __str__


class MemDescType:
    """A view of memory outside registers: `shape` elements of `dtype` in `space` ("shared", "shared_cluster", "tensor_memory").

    A view keeps `alloc_shape`, the allocation's shape: a swizzled sub-slice has no layout of its own.
    """

    __slots__ = ("alloc_shape", "dtype", "layout", "shape", "space")
    _pool: ClassVar[dict[tuple[object, ...], MemDescType]] = {}

    shape: tuple[int, ...]
    dtype: DType
    space: str
    layout: SharedLayout | None
    alloc_shape: tuple[int, ...]

    def __new__(
        cls,
        shape: tuple[int, ...],
        dtype: DType,
        space: str = "shared",
        layout: SharedLayout | None = None,
        alloc_shape: tuple[int, ...] | None = None,
    ) -> MemDescType:
        alloc_shape = shape if alloc_shape is None else alloc_shape
        key = (shape, dtype, space, layout, alloc_shape)
        found = cls._pool.get(key)
        if found is None:
            found = object.__new__(cls)
            found.shape = shape
            found.dtype = dtype
            found.space = space
            found.layout = layout
            found.alloc_shape = alloc_shape
            found = cls._pool.setdefault(key, found)
        return found

    def __str__(self) -> str:
        dims = "".join(f"{s}x" for s in self.shape)
        parts = [f"{dims}{self.dtype}", self.space]
        if self.layout is not None:
            parts.append(str(self.layout))
        if self.alloc_shape != self.shape:
            parts.append("alloc " + "x".join(map(str, self.alloc_shape)))
        return f"memdesc<{', '.join(parts)}>"

    __repr__ = __str__


class BarrierType:
    """`count` mbarriers that each expect `arrive_count` arrivals a phase; `remote` when they are another CTA's of the cluster.

    `count` 0 is a single barrier picked out of an array.
    """

    __slots__ = ("arrive_count", "count", "remote")
    _pool: ClassVar[dict[tuple[int, int, bool], BarrierType]] = {}

    count: int
    arrive_count: int
    remote: bool

    def __new__(cls, count: int = 0, arrive_count: int = 1, remote: bool = False) -> BarrierType:
        key = (count, arrive_count, remote)
        found = cls._pool.get(key)
        if found is None:
            found = object.__new__(cls)
            found.count = count
            found.arrive_count = arrive_count
            found.remote = remote
            found = cls._pool.setdefault(key, found)
        return found

    def __str__(self) -> str:
        return f"barrier<{self.count}, arrive {self.arrive_count}{', remote' if self.remote else ''}>"

    __repr__ = __str__


class TensorDescType:
    """A TMA descriptor of a global tensor: copies move blocks of `block_shape` elements of `dtype`.

    `layout` is the shared-memory layout that its copies read and write (None until inference): it says box and swizzle.
    """

    __slots__ = ("block_shape", "dtype", "layout")
    _pool: ClassVar[dict[tuple[object, ...], TensorDescType]] = {}

    block_shape: tuple[int, ...]
    dtype: DType
    layout: SharedLayout | None

    def __new__(cls, block_shape: tuple[int, ...], dtype: DType, layout: SharedLayout | None = None) -> TensorDescType:
        key = (block_shape, dtype, layout)
        found = cls._pool.get(key)
        if found is None:
            found = object.__new__(cls)
            found.block_shape = block_shape
            found.dtype = dtype
            found.layout = layout
            found = cls._pool.setdefault(key, found)
        return found

    def __str__(self) -> str:
        tail = f", {self.layout}" if self.layout is not None else ""
        return f"tensor_desc<{''.join(f'{s}x' for s in self.block_shape)}{self.dtype}{tail}>"

    __repr__ = __str__


class TokenType:
    """An asynchronous token: the handle of a group of copies (`kind` "cp_async", "bulk")."""

    __slots__ = ("kind",)
    _pool: ClassVar[dict[str, TokenType]] = {}

    kind: str

    def __new__(cls, kind: str) -> TokenType:
        found = cls._pool.get(kind)
        if found is None:
            found = object.__new__(cls)
            found.kind = kind
            found = cls._pool.setdefault(kind, found)
        return found

    def __str__(self) -> str:
        return f"token<{self.kind}>"

    __repr__ = __str__


class InflightType:
    """A tile that an asynchronous tensor-core operation is still writing: usable only by `mma.async_dot` and `mma.async_dot_wait`."""

    __slots__ = ("tensor",)
    _pool: ClassVar[dict[TensorType, InflightType]] = {}

    tensor: TensorType

    def __new__(cls, tensor: TensorType) -> InflightType:
        found = cls._pool.get(tensor)
        if found is None:
            found = object.__new__(cls)
            found.tensor = tensor
            found = cls._pool.setdefault(tensor, found)
        return found

    def __str__(self) -> str:
        return f"inflight<{self.tensor}>"

    __repr__ = __str__


Type = Union[DType, PointerType, TensorType, MemDescType, BarrierType, TensorDescType, TokenType, InflightType]


def element_of(t: Type) -> Element:
    """The element of a tensor type, or the scalar or pointer type itself; TypeError for other types."""
    if isinstance(t, TensorType):
        return t.element
    if isinstance(t, (DType, PointerType)):
        return t
    raise TypeError(f"{t} has no elements")


def shape_of(t: Type) -> tuple[int, ...]:
    """The shape of a tensor type; () for scalars and pointers."""
    return t.shape if isinstance(t, TensorType) else ()


def like(t: Type, element: Element) -> Type:
    """`element` in the shape (and layout) of `t`: a tensor when `t` is one, else the element itself."""
    return t.with_element(element) if isinstance(t, TensorType) else element
