"""The nouns of the MIMW layer: buffers, barriers, tensor descriptors, and objects that live at compile time only.

A handle is a `tensor` in the frontend's eyes (it wraps an IR value, it can be carried around loops), but takes no part in arithmetic.
`wrap` picks the class for a value by its type. Knows no op but the views that indexing makes.
"""

from __future__ import annotations

from typing import Any, NoReturn

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.barrier import BarrierViewOp
from mimw.ir.ops.memory import LocalViewOp
from mimw.ir.types import I1, I32, BarrierType, DType, Element, InflightType, MemDescType, PointerType, TensorDescType
from mimw.language import semantic
from mimw.language.core import METHODS, const_int, explain, tensor, unwrap
from mimw.language.errors import fail


class handle(tensor):
    """Base of what is no tile: no arithmetic, no methods of tiles."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    @property
    def T(self) -> tensor:
        """Handles have no transpose; `local_trans` views a buffer."""
        raise AttributeError("T")


class buffered_tensor(handle):
    """Memory outside of registers: one buffer, or a ring of `num` of them that ``buf[i]`` picks from."""

    __slots__ = ()

    @property
    def memory(self) -> MemDescType:
        """The memdesc type."""
        t = self.value.type
        assert isinstance(t, MemDescType)
        return t

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes; of a ring the number of buffers comes first."""
        return self.memory.shape

    @property
    def dtype(self) -> DType:
        """The type of an element."""
        return self.memory.dtype

    def __getitem__(self, index: Any) -> buffered_tensor:
        t = self.memory
        if len(t.shape) < 2 or len(t.shape) < len(t.alloc_shape):
            fail("bad-index", f"{t} is one buffer, not a ring of them", "ml.local_slice takes a part of a buffer")
        b = current_builder("local_view")
        i = index_value(index, t.shape[0], "a ring of buffers")
        return buffered_tensor(b.insert(LocalViewOp(self.value, i, loc=b.loc)).result)


class mbarrier(handle):
    """One mbarrier, or an array of them that ``bars[i]`` picks from."""

    __slots__ = ()

    @property
    def barrier(self) -> BarrierType:
        """The barrier type."""
        t = self.value.type
        assert isinstance(t, BarrierType)
        return t

    def __getitem__(self, index: Any) -> mbarrier:
        t = self.barrier
        if not t.count:
            fail("bad-index", "this is one barrier, not an array of them")
        b = current_builder("local_view")
        i = index_value(index, t.count, "an array of barriers")
        return mbarrier(b.insert(BarrierViewOp(self.value, i, loc=b.loc)).result)


class inflight_tensor(handle):
    """A tile that `async_dot` is still writing: only `async_dot` and `async_dot_wait` take it."""

    __slots__ = ()

    @property
    def inflight(self) -> InflightType:
        """The type."""
        t = self.value.type
        assert isinstance(t, InflightType)
        return t

    @property
    def shape(self) -> tuple[int, ...]:
        """The tile's shape."""
        return self.inflight.tensor.shape

    @property
    def dtype(self) -> Element:
        """The type of an element."""
        return self.inflight.tensor.element

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            semantic.element(self.value)  # says what to wait for
        raise AttributeError(name)


class traced:
    """Base of objects of the language that exist at compile time only: their methods are traced as the language's functions are."""

    __slots__ = ()


class merged(traced):
    """An object whose `FIELDS`, names of its attributes, run-time branches merge one by one."""

    __slots__ = ()
    FIELDS: tuple[str, ...] = ()


class moving(traced):
    """A record of the language whose methods change its fields."""

    __slots__ = ()

    def moved_by(self, methods: set[str]) -> set[str]:
        """The fields that these methods change: a guess, for speed only."""
        raise NotImplementedError


class async_token(traced):
    """Stands for a group of asynchronous copies. Groups complete in order, so a token carries nothing."""

    __slots__ = ()


TOKEN = async_token()
"""The one token: a loop that carries it carries a constant."""

WRAPPERS: dict[type, type[tensor]] = {
    MemDescType: buffered_tensor,
    BarrierType: mbarrier,
    InflightType: inflight_tensor,
}
"""IR type to the class of its trace-time object; `tensor` for what is not in here."""


def wrap(value: Value) -> tensor:
    """The trace-time object of an IR value."""
    return WRAPPERS.get(type(value.type), tensor)(value)


# Arguments.


def index_value(index: Any, count: int, what: str) -> Value:
    """An index as i32; a constant one must be in range."""
    index = unwrap(index)
    if isinstance(index, tensor):
        return scalar_i32(index, f"the index of {what}")
    i = const_int(index, f"the index of {what}")
    if not 0 <= i < count:
        fail("bad-index", f"index {i} of {what} with {count}")
    return current_builder().constant(i, I32)


def scalar_i32(x: Any, what: str) -> Value:
    """An integer scalar as i32, from a run-time value or a constant."""
    x = unwrap(x)
    if not isinstance(x, tensor):
        if isinstance(x, bool) or not isinstance(x, int):
            fail("type-mismatch", f"{what} is an integer, not {explain(x)}")
        return semantic.constant(x, I32)
    t = x.value.type
    if not isinstance(t, DType) or t.is_floating():
        fail("type-mismatch", f"{what} is an integer scalar, not {explain(x)}")
    return semantic.cast(x.value, I32)


def predicate(pred: Any, what: str) -> Value | None:
    """A predicate as i1; None when it is absent or the constant True."""
    pred = unwrap(pred)
    if pred is None or pred is True:
        return None
    if isinstance(pred, tensor):
        return semantic.truth(pred.value, f"{what}: pred")
    if not isinstance(pred, (bool, int)):
        fail("type-mismatch", f"{what}: pred is a condition, not {explain(pred)}")
    return semantic.constant(bool(pred), I1)


def as_buffer(x: Any, what: str, hint: str | None = None) -> Value:
    """The memdesc of one buffer in shared memory."""
    if not isinstance(x, buffered_tensor):
        fail("not-a-buffer", f"{what} takes a buffer of ml.local_alloc, not {explain(x)}", hint)
    return x.value


def as_barrier(x: Any, what: str) -> Value:
    """The value of one barrier."""
    if not isinstance(x, mbarrier):
        fail("not-a-barrier", f"{what} takes a barrier of ml.alloc_barriers, not {explain(x)}")
    t = x.barrier
    if t.count:
        fail("not-a-barrier", f"{what} takes one barrier, not an array of {t.count}", "pick one, as in bars[0]")
    return x.value


def as_pointer(x: Any, what: str) -> tuple[Value, PointerType]:
    """A scalar pointer."""
    if not isinstance(x, tensor) or not isinstance(x.value.type, PointerType):
        fail("not-a-pointer", f"{what} takes a pointer, not {explain(x)}")
    return x.value, x.value.type


def memory_of(v: Value) -> MemDescType:
    """The type of a buffer's value."""
    t = v.type
    assert isinstance(t, MemDescType)
    return t


def descriptor_type(v: Value) -> TensorDescType:
    """The type of a descriptor's value."""
    t = v.type
    assert isinstance(t, TensorDescType)
    return t


def not_on_hopper(what: str, instead: str) -> NoReturn:
    """Refuse what the tensor memory of later machines is needed for."""
    fail("not-yet", f"{what}: not there yet", instead)
