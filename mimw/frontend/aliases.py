"""Records under two names that control flow tears apart.

Where a branch or loop binds a name to one of two records, the name gets a merged copy: the identity is known at run time only.
While nothing assigns fields afterwards, no one can tell. When a record that other names reach was merged, assigning a field
of it or of the copy would have to be seen through the other one; that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mimw.diagnostics import Loc
from mimw.frontend import scope
from mimw.frontend.scope import Frame, Key
from mimw.language.core import is_tuple


class Torn:
    """Records whose fields must not be assigned any more, with the place that tore them."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[int, tuple[Any, Loc]] = {}  # the record itself keeps its id in use

    def mark(self, value: Any, loc: Loc) -> None:
        """Forbid assignments to the fields of all records in a value."""
        for r in records_in(value):
            self.places[id(r)] = (r, loc)

    def place(self, record: Any) -> Loc | None:
        """Where a record was torn; None when it was not."""
        found = self.places.get(id(record))
        return found[1] if found else None


def records_in(value: Any) -> Iterator[Any]:
    """All records in a value, nested ones too."""
    if is_tuple(value):
        for v in value:
            yield from records_in(v)
    elif scope.is_dataclass(value):
        yield value
        for f in scope.field_names(value):
            yield from records_in(getattr(value, f))


def reached_elsewhere(frame: Frame | None, key: Key, value: Any) -> bool:
    """Whether a record in `value` is also reached from another name than `key` of the current frame."""
    mine = {id(r) for r in records_in(value)}
    if not mine:
        return False
    skip: Key | None = key
    while frame is not None:
        for name, v in frame.names.items():
            if name != skip and any(id(r) in mine for r in records_in(v)):
                return True
        skip, frame = None, frame.caller
    return False
