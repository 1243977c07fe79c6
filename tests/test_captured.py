"""What a kernel captures (globals, closures, modules, other kernels) is part of its code: changed between launches, it counts at the next."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.compiler import Options
from mimw.frontend.dependencies import dependencies
from mimw.target import get_target

WIDTH = 3
NAMED = ml.constexpr(3)
TABLE = [3, 5]
settings = types.ModuleType("settings")
settings.WIDTH = 3  # type: ignore[attr-defined]


class Settings:
    """Constants of a class."""

    WIDTH = 3


@mimw.kernel
def helper(x):
    return x + WIDTH


@mimw.kernel
def other_helper(x):
    return x + 7


@mimw.kernel
def of_global(out):
    ml.store(out, WIDTH)


@mimw.kernel
def of_constexpr(out):
    ml.store(out, NAMED)


def first_of_table():
    return TABLE[0]


@mimw.kernel
def of_list(out):
    ml.store(out, first_of_table())


@mimw.kernel
def of_module(out):
    ml.store(out, settings.WIDTH)


@mimw.kernel
def of_class(out):
    ml.store(out, Settings.WIDTH)


@mimw.kernel
def of_helper(out):
    ml.store(out, helper(0))


def launched(kernel: Any) -> int:
    out = np.zeros(1, np.int32)
    kernel[(1,)](out)
    return int(out[0])


@pytest.mark.parametrize(
    ("kernel", "place", "key", "value"),
    [
        (of_global, globals(), "WIDTH", 7),
        (of_constexpr, globals(), "NAMED", ml.constexpr(7)),
        (of_list, TABLE, 0, 7),
        (of_module, vars(settings), "WIDTH", 7),
        (of_helper, globals(), "WIDTH", 7),
        (of_helper, globals(), "helper", other_helper),
    ],
)
def test_a_captured_value_changed_between_launches_counts_at_the_next(kernel: Any, place: Any, key: Any, value: Any):
    before = place[key]
    assert launched(kernel) == 3
    try:
        place[key] = value
        assert launched(kernel) == 7
    finally:
        place[key] = before
    assert launched(kernel) == 3


def test_a_changed_attribute_of_a_class_counts(monkeypatch: pytest.MonkeyPatch):
    assert launched(of_class) == 3
    key = dependencies(of_class.fn).key()
    monkeypatch.setattr(Settings, "WIDTH", 7)
    assert launched(of_class) == 7
    assert dependencies(of_class.fn).key() != key


def test_a_changed_variable_of_an_enclosing_function_counts():
    width = 3

    @mimw.kernel
    def of_closure(out):
        ml.store(out, width)

    assert launched(of_closure) == 3
    width = 7
    assert launched(of_closure) == 7


def test_unchanged_captures_compile_once():
    assert launched(of_global) == 3
    module = dict(of_global._traced)
    assert launched(of_global) == 3
    assert dict(of_global._traced) == module


def test_objects_are_told_apart_by_what_they_hold_not_where_they_lie():
    class Plain:
        def __init__(self, width: int) -> None:
            self.width = width

    def key(held: Any) -> Any:
        def of_object(out):
            ml.store(out, held.width)

        return dependencies(of_object).key()

    assert key(Plain(3)) == key(Plain(3))
    assert key(Plain(3)) != key(Plain(4))
    assert key(np.zeros(5000)) != key(np.eye(5000, 1, -2500).ravel())


@mimw.kernel
def of_passed(out, f: ml.constexpr):
    ml.store(out, f(0))


def test_what_a_kernel_passed_as_an_argument_captures_counts(monkeypatch: pytest.MonkeyPatch):
    def launch(f: Any) -> int:
        out = np.zeros(1, np.int32)
        of_passed[(1,)](out, f)
        return int(out[0])

    def disk_key() -> Any:
        values = [np.zeros(1, np.int32), helper]
        store: Any = None
        return of_passed._cache_parts(of_passed.specialise(values), Options(), get_target("sm_90a"), store)

    key = [part for part in disk_key() if part[0] != "special"]
    assert (launch(helper), launch(other_helper)) == (3, 7)
    monkeypatch.setitem(globals(), "WIDTH", 8)
    assert launch(helper) == 8
    assert [part for part in disk_key() if part[0] != "special"] != key
