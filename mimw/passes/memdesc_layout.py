"""How every buffer lies in shared memory, from what uses it; and with that, box and swizzle of every tensor descriptor.

Buffers that flow into each other (`memdesc_flow`) lie alike. What uses one has wishes:

- an operand of `mma.async_dot` lies in a swizzle, K-major, or for 16-bit types MN-major; rows are filled up to the instruction's multiples;
- a block that TMA copies lies row by row, in the widest swizzle (128, 64, 32 bytes) whose span divides its rows, else without;
- bulk copies and reinterpretations see plain rows;
- loads and stores by threads take what is there; alone they get rows that do not fall on the same banks.

Wishes that exclude each other are an error that names both lines. A layout that is there already (pinned, or given by `stage_dot`) stays.
Writes the layouts into the types of all memdescs and descriptors. Stands before layout inference, which prices accesses by them.
"""

from __future__ import annotations

from math import gcd
from typing import NoReturn

from mimw.diagnostics import CompilationError, Note
from mimw.ir.core import Function, Module, OpBase, Value
from mimw.ir.ops.async_copy import BulkLoadOp, BulkStoreOp, MadeDescriptorOp, MakeDescriptorOp, TmaLoadOp, TmaStoreOp
from mimw.ir.ops.cluster import AsyncRemoteCopyOp
from mimw.ir.ops.control import IfOp, InlinedOp
from mimw.ir.ops.memory import (
    LocalAllocOp,
    LocalCountOp,
    LocalGatherOp,
    LocalReinterpretOp,
    LocalScatterOp,
    LocalSliceOp,
    StorageOp,
)
from mimw.ir.ops.mma import AsyncDotOp
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.tma import box_plan
from mimw.ir.types import MemDescType, TensorDescType
from mimw.passes.folding import constant_of
from mimw.passes.memdesc_flow import Dims, Flow, Home, same_bits
from mimw.passes.memdesc_pins import Wish, check_pin, pin_conflict
from mimw.target import Target

NAME = "memdesc-layout"
_SPANS = (128, 64, 32)


def run(module: Module, target: Target) -> None:
    """Give every buffer and descriptor its layout."""
    fn = module.function
    buffers = Flow(fn, MemDescType)
    for home in buffers.homes:
        _Choice(buffers, home).run()
    _descriptors(fn)
    _branch_types(fn)


class _Choice:
    """The layout of one home."""

    def __init__(self, flow: Flow, home: Home) -> None:
        t = home.root.type
        assert isinstance(t, MemDescType)
        self.flow = flow
        self.home = home
        self.t = t
        self.size = t.dtype.itemsize
        self.dots: list[Wish] = []
        self.copies: list[Wish] = []
        self.plain: list[Wish] = []
        self.even = False  # threads index it at run time: plain rows are better
        self.padded: dict[int, int] = {}  # dimension -> multiple of the instruction
        self.slot: Dims = ()
        self.first: OpBase | None = None

    def run(self) -> None:
        """Look at the uses, decide, write it down."""
        pin = self._pin()
        made = all(_layout(v) is not None for v in self.home.members) and pin is None
        if made or isinstance(self.home.root.defining_op, StorageOp):
            return
        for op, v, dims in self.flow.uses(self.home):
            if not isinstance(op, LocalAllocOp):  # which lies upon it
                self._use(op, v, dims)
        for v in self.home.members:
            self._views(v)
        if not self.slot:
            return  # nobody touches it
        found = next((x for x in map(_layout, self.home.members) if x is not None), None)
        if pin is not None and found is not None:
            check_pin(pin, found, self.slot, self.size, self.dots, self.plain)
        layout = found or self._layout()
        if layout is None:
            return
        self._check(layout, pin)
        for v, dims in self.home.members.items():
            _set_layout(v, _permuted(layout, self.slot, dims))

    # -------------------------------------------------------------------------------------------------------------- uses

    def _use(self, op: OpBase, v: Value, dims: Dims) -> None:
        shape = _memory(v).shape
        if isinstance(op, LocalReinterpretOp):
            self.plain.append(Wish(op))
            self._touch(op, dims)
            return
        self._touch(op, dims)
        if isinstance(op, AsyncDotOp):
            for k, other, operand, multiple in ((1, 0, op.a, 64), (0, 1, op.b, 8)):
                if operand is v:
                    self.dots.append(Wish(op, 0 if self.t.dtype.bits == 16 else dims[k]))
                    self.dots[-1].multiples[dims[other]] = multiple
                    self.padded[dims[other]] = max(multiple, self.padded.get(dims[other], 1))
        elif isinstance(op, (TmaLoadOp, TmaStoreOp)):
            self.copies.append(Wish(op, dims[-1], shape[-1] * self.size, dims[::-1]))
        elif isinstance(op, (BulkLoadOp, BulkStoreOp)):
            self.plain.append(Wish(op))
        elif isinstance(op, (LocalGatherOp, LocalScatterOp, LocalCountOp, AsyncRemoteCopyOp)):
            self.even = True

    def _touch(self, op: OpBase, dims: Dims) -> None:
        """All that touch a buffer see the same dimensions; what lies before is the ring."""
        slot = tuple(sorted(dims))
        if not self.slot:
            self.slot, self.first = slot, op
        elif self.slot != slot and not isinstance(op, LocalReinterpretOp):
            assert self.first is not None
            if isinstance(self.first, LocalReinterpretOp):
                self.slot, self.first = slot, op
                return
            raise CompilationError(
                "not-yet",
                f"a buffer is used with {len(slot)} dimensions here and with {len(self.slot)} elsewhere: not there yet",
                op.loc,
                notes=[Note("the other use", self.first.loc)],
                hint="use whole slots of a ring, or take a part with ml.local_slice",
            )

    def _views(self, v: Value) -> None:
        op = v.defining_op
        if isinstance(op, LocalReinterpretOp) and not same_bits(op):
            self.plain.append(Wish(op))
            if not self.slot:
                self.slot, self.first = self.flow.dims(v), op
        elif isinstance(op, LocalSliceOp) and any(constant_of(o) is None for o in op.offsets):
            self.even = True

    # ---------------------------------------------------------------------------------------------------------- decision

    def _layout(self) -> SharedLayout | None:
        if self.slot != tuple(range(-len(self.slot), 0)):
            assert self.first is not None
            raise CompilationError(
                "not-yet", "the ring's dimension of a buffer is moved by local_trans: not there yet", self.first.loc
            )
        shape = self.t.shape[-len(self.slot) :]
        hard = self.copies + self.dots
        fast = self._fast(hard)
        if self.plain:
            if self.dots:
                self._conflict(
                    self.dots[0], "an operand of a product lies in a swizzle", self.plain[0], "this sees plain rows"
                )
            return SharedLayout.row_major(shape, self._order(shape, fast) if fast else None)
        if self.dots:
            return self._operand(shape, fast or -1)
        if self.copies:
            return self._block(shape)
        return self._by_threads(shape)

    def _fast(self, wishes: list[Wish]) -> int:
        """The contiguous dimension that all want; 0 when nobody cares."""
        chosen: Wish | None = None
        for wish in wishes:
            if not wish.fast:
                continue
            if chosen is None:
                chosen = wish
            elif chosen.fast != wish.fast:
                self._conflict(
                    chosen,
                    f"wants the buffer contiguous along dimension {self._name(chosen.fast)}",
                    wish,
                    f"this along dimension {self._name(wish.fast)}",
                    "operands that are not 16 bits wide are contiguous along K; turn one of the tiles in memory",
                )
        return chosen.fast if chosen is not None else 0

    def _name(self, dim: int) -> int:
        return dim + len(self.slot)

    def _order(self, shape: Dims, fast: int) -> Dims:
        """Dimensions by how near their neighbours lie, as the copies want it (TMA) or with `fast` first; counted from 0."""
        order = next((w.order for w in self.copies), None) or (fast, *(d for d in self.slot[::-1] if d != fast))
        return tuple(d + len(shape) for d in order)

    def _operand(self, shape: Dims, fast: int) -> SharedLayout:
        """Swizzled for wgmma; where TMA fills it, spans are whole in every copied row."""
        op = self.dots[0].op
        if len(shape) != 2:
            raise CompilationError("bad-shape", f"an operand of a product has two dimensions, not {len(shape)}", op.loc)
        extent = [_up(n, self.padded.get(d, 1)) for n, d in zip(shape, self.slot, strict=True)]
        row = self._row() if self.copies else extent[fast] * self.size
        span = next((s for s in _SPANS if row % s == 0), 0)
        if not span and self.copies:
            self._conflict(
                self.copies[0], f"copies rows of {row} bytes", self.dots[0], "the product takes rows of whole 32-byte spans",
                "make the inner size of the block a multiple of 32 bytes",
            )  # fmt: skip
        span = span or 32
        extent[fast] = _up(extent[fast], span // self.size)
        return SharedLayout.swizzled(extent, self._order(shape, fast), self.size, span)

    def _row(self) -> int:
        row = 0
        for wish in self.copies:
            row = gcd(row, wish.row)
        return row

    def _block(self, shape: Dims) -> SharedLayout:
        return block_layout(shape, self.size, self._order(shape, self.copies[0].fast), self._row())

    def _by_threads(self, shape: Dims) -> SharedLayout | None:
        if len(self.t.shape) == 1 and shape == (1,):
            return None  # one number: no slots to align
        if len(shape) == 1 or self.even:
            return SharedLayout.row_major(shape)
        if len(shape) == 2:
            row = shape[-1] * self.size
            for span in _SPANS:
                if row % span == 0:
                    return SharedLayout.swizzled(shape, None, self.size, span)
        return SharedLayout.padded(shape, None, max(1, 16 // self.size))

    def _pin(self) -> LocalAllocOp | None:
        """The buffer of this home whose layout the user chose."""
        makers = (v.defining_op for v in self.home.members)
        return next((op for op in makers if isinstance(op, LocalAllocOp) and op.pinned), None)

    def _check(self, layout: SharedLayout, pin: LocalAllocOp | None = None) -> None:
        """What TMA copies must consist of boxes."""
        for op, v, dims in self.flow.uses(self.home):
            if isinstance(op, (TmaLoadOp, TmaStoreOp)):
                try:
                    box_plan(_permuted(layout, self.slot, dims), _memory(v).shape, self.size)
                except ValueError as error:
                    if pin is not None:
                        raise pin_conflict(pin, op, f"it copies boxes: {error}") from error
                    raise CompilationError("tma-block", str(error), op.loc, notes=self._others(op)) from error

    def _others(self, op: OpBase) -> list[Note]:
        return [Note("the buffer is used here, too", w.op.loc) for w in (*self.dots, *self.plain) if w.op is not op][:2]

    def _conflict(self, a: Wish, what_a: str, b: Wish, what_b: str, hint: str | None = None) -> NoReturn:
        raise CompilationError(
            "layout-conflict",
            f"no layout of the buffer serves all its uses: {a.op.name} {what_a}",
            a.op.loc,
            notes=[Note(what_b, b.op.loc), *self._made()],
            hint=hint or "use a second buffer",
        )

    def _made(self) -> list[Note]:
        op = self.home.root.defining_op
        return [Note("the buffer", op.loc)] if op is not None else []


def block_layout(shape: Dims, size: int, order: Dims | None = None, row: int = 0) -> SharedLayout:
    """Where a block that TMA copies lies: swizzled when its rows (of `row` bytes, 0: the innermost extent) are whole spans, else plain."""
    order = tuple(reversed(range(len(shape)))) if order is None else order
    row = row or shape[order[0]] * size
    if len(shape) > 1:
        for span in _SPANS:
            if row % span == 0:
                try:
                    return SharedLayout.swizzled(shape, order, size, span)
                except ValueError:
                    break  # rows that do not nest
    return SharedLayout.row_major(shape, order)


# --------------------------------------------------------------------------------------------------------- descriptors


def _descriptors(fn: Function) -> None:
    """One layout a descriptor: its copies must all cut it into the same boxes."""
    flow = Flow(fn, TensorDescType)
    for homes in _rooms(flow.homes):
        t = homes[0].root.type
        assert isinstance(t, TensorDescType)
        layout: SharedLayout | None = None
        first: OpBase | None = None
        for op, _, _ in (use for home in homes for use in flow.uses(home)):
            if not isinstance(op, (TmaLoadOp, TmaStoreOp)):
                continue
            lies = _layout(op.dst if isinstance(op, TmaLoadOp) else op.src)
            if first is None:
                layout, first = lies, op
            elif _boxes(lies, t) != _boxes(layout, t):
                raise CompilationError(
                    "layout-conflict",
                    "two buffers that are copied through one descriptor lie differently, and a descriptor has one box and swizzle",
                    op.loc,
                    notes=[Note("the other copy", first.loc)],
                    hint="pass a second descriptor of the same tensor",
                )
        layout = layout or block_layout(t.block_shape, t.dtype.itemsize)
        for v in (v for home in homes for v in home.members):
            _set_layout(v, layout)
    for argument, v in zip(fn.arguments, fn.block.args, strict=True):
        argument.type = v.type


def _rooms(homes: list[Home]) -> list[list[Home]]:
    """The homes whose descriptors are written and read in one room, together: they are the same."""
    groups: dict[object, list[Home]] = {}
    for home in homes:
        op = home.root.defining_op
        room = op.room if isinstance(op, (MakeDescriptorOp, MadeDescriptorOp)) else -1
        group = groups.setdefault(room if room >= 0 else home, [])
        if group and group[0].root.type != home.root.type:
            assert op is not None
            other = group[0].root.defining_op
            raise CompilationError(
                "shape-mismatch",
                f"a descriptor of {home.root.type} here is one of {group[0].root.type} elsewhere in its room",
                op.loc,
                notes=[Note("the other one", other.loc)] if other is not None else [],
            )
        group.append(home)
    return list(groups.values())


def _boxes(layout: SharedLayout | None, t: TensorDescType) -> tuple[Dims, int]:
    plan = box_plan(layout, t.block_shape, t.dtype.itemsize)
    return plan.box, plan.swizzle


# --------------------------------------------------------------------------------------------------------------- types


def _memory(v: Value) -> MemDescType:
    t = v.type
    assert isinstance(t, MemDescType)
    return t


def _layout(v: Value) -> SharedLayout | None:
    t = v.type
    return t.layout if isinstance(t, (MemDescType, TensorDescType)) else None


def _permuted(layout: SharedLayout, slot: Dims, dims: Dims) -> SharedLayout:
    """The layout as a view sees it whose dimensions are `dims` of the home; dimensions of the ring have no part in it."""
    order = [slot.index(d) for d in dims if d in slot]
    if order == list(range(len(slot))):
        return layout
    return SharedLayout.get(
        [layout.dims[i] for i in order],
        [layout.bases[i] for i in order],
        [layout.strides[i] for i in order],
        layout.size,
    )


def _set_layout(v: Value, layout: SharedLayout) -> None:
    t = v.type
    if isinstance(t, MemDescType):
        v.type = MemDescType(t.shape, t.dtype, t.space, layout, t.alloc_shape)
    elif isinstance(t, TensorDescType):
        v.type = TensorDescType(t.block_shape, t.dtype, layout)
    op = v.defining_op
    if (
        op is not None
        and "type" in op.attrs
        and (isinstance(v.type, MemDescType) or isinstance(op, (MakeDescriptorOp, MadeDescriptorOp)))
    ):
        op.attrs["type"] = v.type


def _branch_types(fn: Function) -> None:
    for op in fn.walk():
        if isinstance(op, (IfOp, InlinedOp)) and op.results:
            op.attrs["types"] = tuple(r.type for r in op.results)


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
