"""Where buffers live, and which of them share memory: `storage_kind`, `storage_alias_spec`, `reuse_group`.

Sharing is the user's promise that two buffers are not in use at once; the simulators report when they are, or when one is read after another
one was written over it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.memory import LocalAllocOp, StorageOp
from mimw.ir.overlap import DISTINCT, SHARED, Group, place
from mimw.ir.types import MemDescType
from mimw.language.core import const_int, explain, unwrap
from mimw.language.errors import fail
from mimw.language.handles import buffered_tensor, memory_of, not_on_hopper, traced


class storage_kind(Enum):
    """Where `local_alloc` puts a buffer."""

    smem = "shared"
    tmem = "tensor_memory"
    smemCluster = "shared_cluster"


class reuse_group_type(Enum):
    """How the members of a `reuse_group` lie: all at the same place, or one behind the other."""

    shared = SHARED
    distinct = DISTINCT


class reuse_group(traced):
    """How buffers of one `storage_alias_spec` share memory: a tree, for its `set_buffer_overlap`.

    The elements (buffers, or groups) lie at the same place (``ml.reuse_group_type.shared``, the default), or one behind the other (``distinct``),
    slot by slot: slot i of each is in unit i. With `group_size` k, k consecutive slots of the elements are one unit.
    """

    __slots__ = ("elements", "group_size", "kind")

    def __init__(self, *args: Any, group_type: reuse_group_type = reuse_group_type.shared, group_size: int = 1) -> None:
        current_builder("reuse_group")
        if not args:
            fail("bad-argument", "reuse_group of nothing")
        for x in args:
            if not isinstance(unwrap(x), (buffered_tensor, reuse_group)):
                fail("not-a-buffer", f"reuse_group takes buffers and groups, not {explain(unwrap(x))}")
        kind = unwrap(group_type)
        if isinstance(kind, str) and kind in (SHARED, DISTINCT):
            kind = reuse_group_type(kind)
        if not isinstance(kind, reuse_group_type):
            hint = "write ml.reuse_group_type.shared or ml.reuse_group_type.distinct"
            fail("bad-argument", f"reuse_group: group_type is {explain(kind)}", hint)
        self.elements: tuple[Any, ...] = tuple(unwrap(x) for x in args)
        self.kind = kind
        self.group_size = const_int(group_size, "reuse_group: group_size")
        if self.group_size < 1:
            fail("bad-argument", f"reuse_group: group_size is {self.group_size}")


class storage_alias_spec(traced):
    """Memory that several buffers share: ``ml.local_alloc(..., reuse=spec)`` makes each of them. `buffer_size_bytes` says how large it is
    (as large as they need when absent); without `set_buffer_overlap` all lie at its start.
    """

    __slots__ = ("bytes", "members", "op")

    def __init__(self, storage: storage_kind = storage_kind.smem, buffer_size_bytes: int | None = None) -> None:
        b = current_builder("storage_alias_spec")
        kind = unwrap(storage)
        if not isinstance(kind, storage_kind):
            fail("bad-argument", f"storage_alias_spec: storage is {explain(kind)}", "write ml.storage_kind.smem")
        if kind is storage_kind.smemCluster:
            fail("bad-argument", "storage_alias_spec: the cluster's shared memory has no buffers of its own to share")
        if kind is storage_kind.tmem:
            not_on_hopper("storage_alias_spec in tensor memory", "buffers stand in shared memory")
        size = unwrap(buffer_size_bytes)
        self.bytes = 0 if size is None else const_int(size, "storage_alias_spec: buffer_size_bytes")
        if size is not None and self.bytes < 1:
            fail("bad-argument", f"storage_alias_spec: {self.bytes} bytes")
        self.op = b.insert(StorageOp(self.bytes, loc=b.loc))
        self.members: list[buffered_tensor] = []

    def set_buffer_overlap(self, overlap_def: reuse_group) -> None:
        """Say how the buffers lie: each of them stands in the tree once. Follows their allocations; once a spec."""
        what = "set_buffer_overlap"
        current_builder(what)
        group = unwrap(overlap_def)
        if not isinstance(group, reuse_group):
            fail("bad-argument", f"{what} takes a reuse_group, not {explain(group)}")
        if self.op.overlap:
            fail("bad-argument", f"{what}: this was said before", "one tree holds all buffers of a spec")
        tree = self._tree(group, {})
        missing = set(range(len(self.members))) - set(tree.leaves())
        if missing:
            fail("bad-argument", f"{what}: {_name(self.members[min(missing)])} stands in no group")
        self._fits(tree)
        self.op.attrs["overlap"] = str(tree)

    def _tree(self, group: reuse_group, seen: dict[int, None]) -> Group:
        children: list[int | Group] = []
        for x in group.elements:
            if isinstance(x, reuse_group):
                children.append(self._tree(x, seen))
                continue
            found = next((i for i, member in enumerate(self.members) if member.value is x.value), None)
            if found is None:
                hint = "allocate it with reuse=spec; give the ring itself, not a slot of it"
                fail("bad-argument", f"set_buffer_overlap: {_name(x)} is no buffer of this spec", hint)
            if found in seen:
                fail("bad-argument", f"set_buffer_overlap: {_name(x)} stands in two places")
            seen[found] = None
            children.append(found)
        return Group(children, group.kind.value, group.group_size)

    def _fits(self, tree: Group) -> None:
        """The explicit size must do, paddings of the compiler's left aside."""
        need, _ = place(tree, [ring_bytes(memory_of(m.value)) for m in self.members])
        if self.bytes and need > self.bytes:
            fail(
                "shared-memory",
                f"the buffers need {need} bytes, the spec has {self.bytes}",
                "buffer_size_bytes is too small",
            )


def ring_bytes(t: MemDescType) -> tuple[int, int]:
    """Slots of a ring, and bytes of each, without padding."""
    size = t.dtype.itemsize
    for n in t.shape[1:]:
        size *= n
    return t.shape[0], size


def _name(x: buffered_tensor) -> str:
    return x.value.name or f"a buffer {x.value.type}"


def storage_for(reuse: Any, t: MemDescType, what: str) -> Value | None:
    """The storage of a new buffer of type `t`."""
    if reuse is None:
        return None
    if isinstance(reuse, storage_alias_spec):
        if reuse.op.overlap:
            fail("bad-argument", f"{what}: set_buffer_overlap has settled this spec", "allocate all its buffers before")
        slots, size = ring_bytes(t)
        if reuse.bytes and slots * size > reuse.bytes:
            fail("shared-memory", f"{what}: {slots * size} bytes do not fit the {reuse.bytes} of the spec")
        return reuse.op.result
    if not isinstance(reuse, buffered_tensor):
        fail("bad-argument", f"{what} is a storage_alias_spec or a buffer of ml.local_alloc, not {explain(reuse)}")
    op = reuse.value.defining_op
    if not isinstance(op, LocalAllocOp):
        fail(
            "bad-argument",
            f"{what}: {_name(reuse)} is a part of a buffer",
            "give the ring itself, as ml.local_alloc made it",
        )
    if op.storage is None:
        return op.result
    if isinstance(op.storage.defining_op, StorageOp):
        fail("bad-argument", f"{what}: {_name(reuse)} belongs to a storage_alias_spec", "reuse= that spec here, too")
    return op.storage
