"""Proves after layout inference that layouts fit: every tile has one, it covers the tile, and each op finds what its rule demands.

Works from the IR alone: it recomputes what each op's rule says for the primary layout that the op's types show, so that inference and its
checker share nothing but the rules.
"""

from __future__ import annotations

from mimw.diagnostics import InternalError
from mimw.ir.core import Block, Module, OpBase, Value
from mimw.ir.layout import Layout
from mimw.ir.types import TensorType
from mimw.passes.layout_inference.rules import rule_of, tile_of
from mimw.passes.tasks import TaskMap, partition_of
from mimw.target import Target

NAME = "layout-check"

# Ops whose primary layout is that of their first tile operand; for all others it is that of the first tile result.
_PRIMARY_IN_OPERAND = frozenset(
    (
        "tensor.trans",
        "tensor.reshape",
        "tensor.join",
        "tensor.split",
        "tensor.extract_slice",
        "tensor.cat",
        "tensor.reduce",
        "tensor.scan",
    )
)
_PASS_THROUGH = frozenset(("tensor.convert_layout", "mma.async_dot_wait", "debug.device_print", "debug.device_assert"))


def run(module: Module, target: Target) -> None:
    """Raise InternalError at the first op whose layouts do not fit."""
    function = module.function
    _block(function.block, [], function.num_warps, target.warp_size)
    partition = partition_of(function)
    if partition is not None:
        tasks = TaskMap(function)
        for region, warps in zip(partition.regions, tasks.warps, strict=True):
            _block(region.block, [("condition", [])], warps, target.warp_size)


def _block(block: Block, frames: list[tuple[str, list[Value]]], warps: int, lanes: int) -> None:
    for op in block.ops:
        for r in op.results:
            _covered(r, op, warps, lanes)
        if op.name.startswith("control."):
            _control(op, frames, warps, lanes)
        elif op.name not in _PASS_THROUGH:
            _ruled(op)


def _covered(value: Value, op: OpBase, warps: int, lanes: int) -> None:
    t = tile_of(value.type)
    if t is None:
        return
    layout = t.layout
    if layout is None:
        raise InternalError(f"{op.name}: {t} has no layout", op.loc)
    if layout.rank != t.rank or any(s > p for s, p in zip(t.shape, layout.shape_padded, strict=True)):
        raise InternalError(f"{op.name}: {layout} does not cover {t.with_layout(None)}", op.loc)
    if layout.num_warps != warps or layout.num_lanes != lanes:
        raise InternalError(f"{op.name}: {layout} is not for {warps} warps of {lanes} lanes", op.loc)


def _ruled(op: OpBase) -> None:
    rule = rule_of(op)
    primary = _primary(op)
    if primary is None:
        return
    for i, v in enumerate(op.operands):
        t = tile_of(v.type)
        wanted = rule.operand(op, i, primary) if t is not None else None
        if t is not None and wanted is not None and t.layout is not wanted:
            raise InternalError(f"{op.name}: operand {i} is in {t.layout}, wanted in {wanted}", op.loc)
    for i, r in enumerate(op.results):
        t = tile_of(r.type)
        if t is not None and t.layout is not rule.result(op, i, primary):
            raise InternalError(f"{op.name}: result {i} is in {t.layout}, not {rule.result(op, i, primary)}", op.loc)


def _primary(op: OpBase) -> Layout | None:
    values = [*op.operands, *op.results] if op.name in _PRIMARY_IN_OPERAND else [*op.results, *op.operands]
    for v in values:
        t = tile_of(v.type)
        if t is not None:
            return t.layout
    return None


def _control(op: OpBase, frames: list[tuple[str, list[Value]]], warps: int, lanes: int) -> None:
    if op.spec.terminator and op.name != "control.unreachable":
        for kind, values in reversed(frames):
            if op.name == "control.yield" or (kind == "inlined" if op.name == "control.return" else kind == "loop"):
                if kind != "condition":
                    _same(op, op.operands, values)
                return
        return
    loop = op.name in ("control.for", "control.while")
    if loop and op.results:
        _same(op, op.operands[-len(op.results) :], op.results)
    kind = "loop" if loop else "if" if op.name == "control.if" else "inlined"
    for i, region in enumerate(op.regions):
        if loop and op.results:
            _same(op, region.block.args[-len(op.results) :], op.results)
        condition = op.name == "control.while" and i == 0
        frames.append(("condition" if condition else kind, op.results))
        _block(region.block, frames, warps, lanes)
        frames.pop()


def _same(op: OpBase, values: list[Value], others: list[Value]) -> None:
    for v, w in zip(values, others, strict=True):
        if isinstance(v.type, TensorType) and v.type is not w.type:
            raise InternalError(f"{op.name}: {v.type} flows into {w.type}", op.loc)
