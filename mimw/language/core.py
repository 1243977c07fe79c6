"""The nouns of the language: dtypes, `constexpr`, `tensor`.

A `tensor` wraps an IR value (a tile, a scalar or a pointer) and carries the operators. Its methods are the functions
of the language whose first parameter is a tensor: each family registers them with `@method`, and ``x.sum(axis=0)`` is
``ml.sum(x, axis=0)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, Union, cast

from mimw.ir.core import Value
from mimw.ir.types import (
    BF16,
    F8E4M3,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    Element,
    PointerType,
    TensorType,
    Type,
    element_of,
    shape_of,
)
from mimw.language import semantic
from mimw.language.errors import fail
from mimw.language.semantic import Number, Operand

dtype = DType
int1 = I1
int8 = I8
int16 = I16
int32 = I32
int64 = I64
uint8 = U8
uint16 = U16
uint32 = U32
uint64 = U64
float16 = F16
bfloat16 = BF16
float32 = F32
float64 = F64
float8e4nv = F8E4M3
float8e5 = F8E5M2
float8e4b8 = F8E4M3FNUZ
float8e5b16 = F8E5M2FNUZ
float8_e4m3fn = F8E4M3
float8_e5m2 = F8E5M2
float8_e4m3fnuz = F8E4M3FNUZ
float8_e5m2fnuz = F8E5M2FNUZ


def pointer_type(element_ty: DType, address_space: int = 1) -> PointerType:
    """The type of a pointer to `element_ty` in global memory (address space 1)."""
    if address_space != 1:
        fail("bad-argument", f"address space {address_space}: only global memory (1) has pointers")
    return PointerType(element_ty)


if TYPE_CHECKING:
    # Checkers take a constexpr parameter for whatever value it stands for.
    _Anything = Any
else:
    _Anything = object


def host_number(value: Any) -> Any:
    """NumPy's scalars (on their own or in tuples) as the Python numbers that constants are; anything else as it is."""
    kind = cast("type[Any]", type(value))
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return tuple(map(host_number, value))
    scalar = any(base.__module__ == "numpy" and base.__name__ == "generic" for base in kind.__mro__)
    return value.item() if scalar else value


_PLAIN = (int, float, bool, str, type(None))


class constexpr(_Anything):
    """A compile-time constant: as an annotation of a parameter, or around a global value (``N = ml.constexpr(4)``)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else host_number(value)

    def __class_getitem__(cls, item: Any) -> type[constexpr]:
        return cls

    def __repr__(self) -> str:
        return f"constexpr({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, constexpr) else other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)


METHODS: dict[str, Callable[..., Any]] = {}
"""Functions of the language that are methods of `tensor`, by name."""

_F = TypeVar("_F", bound=Callable[..., Any])


def method(fn: _F) -> _F:
    """Make a function of the language a method of `tensor` too."""
    METHODS[fn.__name__] = fn
    return fn


def _operand(x: Any, symbol: str) -> Operand:
    if isinstance(x, tensor):
        return x.value
    if isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, constexpr):
        return _operand(x.value, symbol)
    return fail("type-mismatch", f"{symbol} does not take {explain(x)}")


def with_article(name: str) -> str:
    """``"an i32"``, ``"a tensor<4xi32>"``: a type as English has it (f is spelt out: "an f32")."""
    return f"{'an' if name[0] in 'if' else 'a'} {name}"


def explain(x: Any) -> str:
    """What a trace-time object is, in the words of messages."""
    if isinstance(x, tensor):
        return with_article(str(x.value.type))
    if x is None or isinstance(x, (bool, int, float, str)):
        return repr(x)
    if isinstance(x, (DType, PointerType)):
        return f"the type {x}"
    said: str = getattr(x, "SAID", "")
    if said:
        return said
    return "a tuple" if isinstance(x, tuple) else f"a {type(x).__name__}"  # pyright: ignore[reportUnknownArgumentType]


class tensor:
    """A tile in registers, or one scalar or pointer, whose value is known at run time only."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        """The tile's shape; () for scalars."""
        return shape_of(self.value.type)

    @property
    def dtype(self) -> Element:
        """The type of an element: a dtype, or a pointer type."""
        t = self.value.type
        if not isinstance(t, (DType, PointerType, TensorType)):
            fail("type-mismatch", f"a {t} has no dtype")
        return element_of(t)

    @property
    def type(self) -> Type:
        """The full type."""
        return self.value.type

    @property
    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def T(self) -> tensor:
        """The last two dimensions swapped."""
        return METHODS["trans"](self)

    def __getattr__(self, name: str) -> Any:
        fn = METHODS.get(name)
        if fn is None:
            raise AttributeError(name)
        return partial(fn, self)

    def __repr__(self) -> str:
        return f"tensor({self.value!r})"

    def __bool__(self) -> bool:
        fail(
            "constexpr-needed",
            f"{explain(self)} has no truth value at compile time",
            "use it in if, while, and, or, not directly",
        )

    def __index__(self) -> int:
        fail(
            "constexpr-needed",
            f"a constant integer is needed here, not {explain(self)}",
            "make it an ml.constexpr parameter",
        )

    def __int__(self) -> int:
        fail("constexpr-needed", f"int() needs a constant, not {explain(self)}", "write x.to(ml.int32)")

    def __float__(self) -> float:
        fail("constexpr-needed", f"float() needs a constant, not {explain(self)}", "write x.to(ml.float32)")

    def __iter__(self) -> Any:
        fail("bad-iteration", f"{explain(self)} cannot be iterated or unpacked")

    def __hash__(self) -> int:
        return id(self)

    # Operators. `other` is a tensor or a Python number.

    def __add__(self, other: Any) -> tensor:
        return tensor(semantic.binary("add", self.value, _operand(other, "+")))

    def __radd__(self, other: Any) -> tensor:
        return tensor(semantic.binary("add", _operand(other, "+"), self.value))

    def __sub__(self, other: Any) -> tensor:
        return tensor(semantic.binary("sub", self.value, _operand(other, "-")))

    def __rsub__(self, other: Any) -> tensor:
        return tensor(semantic.binary("sub", _operand(other, "-"), self.value))

    def __mul__(self, other: Any) -> tensor:
        return tensor(semantic.binary("mul", self.value, _operand(other, "*")))

    def __rmul__(self, other: Any) -> tensor:
        return tensor(semantic.binary("mul", _operand(other, "*"), self.value))

    def __truediv__(self, other: Any) -> tensor:
        return tensor(semantic.true_divide(self.value, _operand(other, "/")))

    def __rtruediv__(self, other: Any) -> tensor:
        return tensor(semantic.true_divide(_operand(other, "/"), self.value))

    def __floordiv__(self, other: Any) -> tensor:
        return tensor(semantic.integer_divide(self.value, _operand(other, "//")))

    def __rfloordiv__(self, other: Any) -> tensor:
        return tensor(semantic.integer_divide(_operand(other, "//"), self.value))

    def __mod__(self, other: Any) -> tensor:
        return tensor(semantic.remainder(self.value, _operand(other, "%")))

    def __rmod__(self, other: Any) -> tensor:
        return tensor(semantic.remainder(_operand(other, "%"), self.value))

    def __and__(self, other: Any) -> tensor:
        return tensor(semantic.bitwise("and", self.value, _operand(other, "&")))

    def __rand__(self, other: Any) -> tensor:
        return tensor(semantic.bitwise("and", _operand(other, "&"), self.value))

    def __or__(self, other: Any) -> tensor:
        return tensor(semantic.bitwise("or", self.value, _operand(other, "|")))

    def __ror__(self, other: Any) -> tensor:
        return tensor(semantic.bitwise("or", _operand(other, "|"), self.value))

    def __xor__(self, other: Any) -> tensor:
        return tensor(semantic.bitwise("xor", self.value, _operand(other, "^")))

    def __rxor__(self, other: Any) -> tensor:
        return tensor(semantic.bitwise("xor", _operand(other, "^"), self.value))

    def __lshift__(self, other: Any) -> tensor:
        return tensor(semantic.shift("shl", self.value, _operand(other, "<<")))

    def __rlshift__(self, other: Any) -> tensor:
        return tensor(semantic.shift("shl", _operand(other, "<<"), self.value))

    def __rshift__(self, other: Any) -> tensor:
        return tensor(semantic.shift("shr", self.value, _operand(other, ">>")))

    def __rrshift__(self, other: Any) -> tensor:
        return tensor(semantic.shift("shr", _operand(other, ">>"), self.value))

    def __eq__(self, other: Any) -> tensor:  # type: ignore[override]
        return tensor(semantic.compare("eq", self.value, _operand(other, "==")))

    def __ne__(self, other: Any) -> tensor:  # type: ignore[override]
        return tensor(semantic.compare("ne", self.value, _operand(other, "!=")))

    def __lt__(self, other: Any) -> tensor:
        return tensor(semantic.compare("lt", self.value, _operand(other, "<")))

    def __le__(self, other: Any) -> tensor:
        return tensor(semantic.compare("le", self.value, _operand(other, "<=")))

    def __gt__(self, other: Any) -> tensor:
        return tensor(semantic.compare("gt", self.value, _operand(other, ">")))

    def __ge__(self, other: Any) -> tensor:
        return tensor(semantic.compare("ge", self.value, _operand(other, ">=")))

    def __neg__(self) -> tensor:
        return tensor(semantic.negate(self.value))

    def __pos__(self) -> tensor:
        return self

    def __invert__(self) -> tensor:
        return tensor(semantic.invert(self.value))

    def __abs__(self) -> tensor:
        return METHODS["abs"](self)

    def __matmul__(self, other: Any) -> tensor:
        fail("unsupported-syntax", "the operator @", "write ml.dot(a, b)")

    def __pow__(self, other: Any) -> tensor:
        fail("unsupported-syntax", "the operator ** on run-time values", "write x * x, or ml.exp2(y * ml.log2(x))")

    def __getitem__(self, index: Any) -> tensor:
        """Only ``:`` and ``None``: ``x[:, None]`` inserts a dimension of size 1."""
        items: tuple[Any, ...] = index if is_tuple(index) else (index,)
        expand = METHODS["expand_dims"]
        out, used = self, 0
        for axis, item in enumerate(items):
            if item is None:
                out = expand(out, axis)
            elif isinstance(item, slice) and item == slice(None):
                used += 1
            else:
                fail(
                    "bad-index",
                    "only ':' and None index a tile, as in x[:, None]",
                    "to pick elements use ml.where with a mask and a reduction; in memory, index the pointer",
                )
        if used > len(self.shape):
            fail("bad-index", f"{used} dimensions indexed, the tile {self.value.type} has {len(self.shape)}")
        return out

    if TYPE_CHECKING:
        # Methods, for readers and type checkers: each is the function of the language of that name.
        def to(self, dtype: Element, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor: ...
        def cast(self, dtype: Element, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor: ...
        def sum(self, axis: int | None = None, keep_dims: bool = False, dtype: DType | None = None) -> tensor: ...
        def max(self, axis: int | None = None, return_indices: bool = False, keep_dims: bool = False) -> Any: ...
        def min(self, axis: int | None = None, return_indices: bool = False, keep_dims: bool = False) -> Any: ...
        def reshape(self, *shape: Any) -> tensor: ...
        def trans(self, *dims: Any) -> tensor: ...


TensorLike = Union[tensor, Number]


def operand(x: Any, what: str) -> Operand:
    """The IR value or number behind an argument; an error that names `what` for anything else."""
    return _operand(x, what)


def as_value(x: Any, what: str) -> Value:
    """The IR value of an argument, numbers by their own type."""
    return semantic.to_value(_operand(x, what))


def as_tile(x: Any, what: str) -> Value:
    """The IR value of an argument that must be a tile."""
    v = as_value(x, what)
    if not isinstance(v.type, TensorType):
        semantic.element(v)
        fail("rank", f"{what} takes a tile, not the scalar {v.type}")
    return v


def is_tuple(x: object) -> TypeGuard[tuple[Any, ...]]:
    """Whether a trace-time object is a tuple (a named one too)."""
    return isinstance(x, tuple)


def unwrap(x: Any) -> Any:
    """A constexpr's value; anything else as it is."""
    return x.value if isinstance(x, constexpr) else x


def const_int(x: Any, what: str) -> int:
    """A compile-time integer."""
    x = unwrap(x)
    if isinstance(x, bool) or not isinstance(x, int):
        fail(
            "constexpr-needed",
            f"{what} must be a compile-time integer, not {explain(x)}",
            "make it an ml.constexpr parameter",
        )
    return x


def const_bool(x: Any, what: str) -> bool:
    """A compile-time truth value."""
    x = unwrap(x)
    if isinstance(x, tensor) or not isinstance(x, (bool, int, type(None))):
        fail("constexpr-needed", f"{what} must be a compile-time bool, not {explain(x)}")
    return bool(x)


def const_str(x: Any, what: str, choices: tuple[str, ...] = ()) -> str:
    """A compile-time string, one of `choices` when given."""
    x = unwrap(x)
    if not isinstance(x, str):
        fail("constexpr-needed", f"{what} must be a string, not {explain(x)}")
    if choices and x not in choices:
        fail("bad-argument", f"{what} is {x!r}; it may be {', '.join(repr(c) for c in choices)}")
    return x


def const_shape(shape: Any, what: str) -> tuple[int, ...]:
    """A compile-time shape: a tuple of positive integers (one integer counts as one dimension)."""
    shape = unwrap(shape)
    items = shape if is_tuple(shape) else (shape,)
    out = tuple(const_int(s, f"{what}: each size of the shape") for s in items)
    for s in out:
        if s < 1:
            fail("bad-shape", f"{what}: a size of {s} in the shape {list(out)}")
    return semantic.check_size(out, what)


def const_dtype(x: Any, what: str) -> DType:
    """A dtype argument."""
    x = unwrap(x)
    if not isinstance(x, DType):
        fail("bad-argument", f"{what} must be a dtype such as ml.float32, not {explain(x)}")
    return x


def const_axis(axis: Any, rank: int, what: str) -> int:
    """An axis, negative counted from the end."""
    a = const_int(axis, f"{what}: the axis")
    if not -rank <= a < rank:
        fail("bad-axis", f"{what}: axis {a} of a tile with {rank} dimensions")
    return a % rank
