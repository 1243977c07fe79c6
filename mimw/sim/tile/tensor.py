"""Tiles: shapes, reductions, scans.

A combine function runs on whole arrays in place of scalars: halves of the tile against each other for `reduce` (a
tree), a tile against itself moved by 1, 2, 4, ... for `scan`. One that branches runs element by element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.ir.core import Block, OpBase
from mimw.sim.tile.machine import Exit, Machine
from mimw.sim.tile.numerics import Array
from mimw.sim.tile.registry import computes, executes


@computes("tensor.splat")
def _splat(op: OpBase, x: Array) -> Array:
    shape: tuple[int, ...] = op.attrs["shape"]
    return np.full(shape, x, x.dtype)


@computes("tensor.arange")
def _arange(op: OpBase) -> Array:
    return np.arange(op.attrs["start"], op.attrs["end"], dtype=np.int32)


@computes("tensor.expand_dims")
def _expand_dims(op: OpBase, x: Array) -> Array:
    return np.expand_dims(x, op.attrs["axis"])


@computes("tensor.broadcast")
def _broadcast(op: OpBase, x: Array) -> Array:
    return np.broadcast_to(x, op.attrs["shape"])


@computes("tensor.reshape")
def _reshape(op: OpBase, x: Array) -> Array:
    shape: tuple[int, ...] = op.attrs["shape"]
    return x.reshape(shape)


@computes("tensor.trans")
def _trans(op: OpBase, x: Array) -> Array:
    return x.transpose(op.attrs["order"])


@computes("tensor.join")
def _join(op: OpBase, a: Array, b: Array) -> Array:
    return np.stack([a, b], axis=-1)


@computes("tensor.split")
def _split(op: OpBase, x: Array) -> tuple[Array, Array]:
    return x[..., 0], x[..., 1]


@computes("tensor.extract_slice")
def _extract_slice(op: OpBase, x: Array) -> Array:
    offsets: tuple[int, ...] = op.attrs["offsets"]
    shape: tuple[int, ...] = op.attrs["shape"]
    return x[tuple(slice(at, at + size) for at, size in zip(offsets, shape, strict=True))]


@computes("tensor.cat")
def _cat(op: OpBase, a: Array, b: Array) -> Array:
    return np.concatenate([a, b], axis=op.attrs["axis"])


@computes("tensor.convert_layout")
def _convert_layout(op: OpBase, x: Array) -> Array:
    return x


@executes("tensor.reduce")
def _reduce(m: Machine, op: OpBase) -> None:
    axis = op.attrs["axis"]
    xs = [np.moveaxis(m.env[v], axis, 0) for v in op.operands]
    while len(xs[0]) > 1:
        half = len(xs[0]) // 2
        front = combine(m, op.regions[0].block, [x[:half] for x in xs], [x[half : 2 * half] for x in xs])
        xs = [np.concatenate([f, x[2 * half :]]) for f, x in zip(front, xs, strict=True)]
    for r, x in zip(op.results, xs, strict=True):
        m.set(r, x[0])


@executes("tensor.scan")
def _scan(m: Machine, op: OpBase) -> None:
    axis, reverse = op.attrs["axis"], op.attrs["reverse"]
    xs = [np.moveaxis(m.env[v], axis, 0) for v in op.operands]
    if reverse:
        xs = [x[::-1] for x in xs]
    step = 1
    while step < len(xs[0]):
        moved = combine(m, op.regions[0].block, [x[:-step] for x in xs], [x[step:] for x in xs])
        xs = [np.concatenate([x[:step], y]) for x, y in zip(xs, moved, strict=True)]
        step *= 2
    for r, x in zip(op.results, xs, strict=True):
        m.set(r, np.moveaxis(x[::-1] if reverse else x, 0, axis))


def combine(m: Machine, block: Block, a: list[Array], b: list[Array]) -> list[Array]:
    """The combine function on two lists of equally shaped arrays."""
    if any(op.regions for op in block.ops):
        return _combine_each(m, block, a, b)
    outer = m.lifted
    m.lifted = True
    try:
        values = _yielded(m, _run(m, block, [*a, *b]))
    finally:
        m.lifted = outer
    return [np.broadcast_to(v, a[0].shape) for v in values]


def _combine_each(m: Machine, block: Block, a: list[Array], b: list[Array]) -> list[Array]:
    outs = [np.empty_like(x) for x in a]
    for i in np.ndindex(a[0].shape):
        values = _yielded(m, _run(m, block, [np.asarray(x[i]) for x in [*a, *b]]))
        for out, v in zip(outs, values, strict=True):
            out[i] = v
    return outs


def _run(m: Machine, block: Block, values: list[Any]) -> Exit:

    for arg, x in zip(block.args, values, strict=True):
        m.set(arg, x)
    return m.run_block(block)


def _yielded(m: Machine, exit: Exit) -> list[Array]:
    return [m.env[v] for v in exit.values]
