"""Random numbers from a seed and an offset: Philox4x32, bit for bit as Triton's `tl.rand` and its kin.

Counter-based: equal seeds and offsets give equal numbers, on every engine and layout. (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011; ten rounds unless told otherwise.)
"""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import Builder, current_builder
from mimw.ir.core import Value
from mimw.ir.types import F32, I32, U32, U64, like
from mimw.language import semantic
from mimw.language.core import METHODS, TensorLike, as_value, const_int, tensor
from mimw.language.errors import fail

_KEY = (0x9E3779B9, 0xBB67AE85)
_ROUND = (0xD2511F53, 0xCD9E8D57)
_SCALE = 4.6566127342e-10
"""A little below 2^-31, so that the largest integer stays below 1."""


def _philox(b: Builder, seed: Value, c: list[Value], rounds: int) -> list[Value]:
    """Four uint32 tiles of the shape of the counter's four words."""
    wide = semantic.cast(seed, U64)
    key = [
        semantic.broadcast_to(semantic.cast(part, U32), semantic.operand_shape(c[0]))
        for part in (wide, b.elementwise("arith.shr", wide, b.constant(32, U64)))
    ]
    for _ in range(rounds):
        first = b.constant(_ROUND[0], c[0].type)
        second = b.constant(_ROUND[1], c[0].type)
        mixed = [
            b.elementwise("arith.xor", b.elementwise("arith.xor", b.elementwise("arith.mulhi", m, x), y), k)
            for m, x, y, k in ((second, c[2], c[1], key[0]), (first, c[0], c[3], key[1]))
        ]
        c = [mixed[0], b.elementwise("arith.mul", second, c[2]), mixed[1], b.elementwise("arith.mul", first, c[0])]
        key = [b.elementwise("arith.add", k, b.constant(step, k.type)) for k, step in zip(key, _KEY, strict=True)]
    return c


def _integer(x: Any, what: str) -> Value:
    v = as_value(x, what)
    if semantic.dtype_of(v, what).is_floating():
        fail("type-mismatch", f"{what} is to be an integer, not {v.type}")
    return v


def _seed(seed: Any, n_rounds: Any, what: str) -> tuple[Value, int]:
    s = _integer(seed, f"{what}: seed")
    if semantic.operand_shape(s):
        fail("rank", f"{what}: the seed is a scalar, not {s.type}")
    rounds = const_int(n_rounds, f"{what}: n_rounds")
    if rounds < 1:
        fail("bad-argument", f"{what}: {rounds} rounds")
    return s, rounds


def _words(seed: Any, offset: Any, n_rounds: Any, what: str) -> list[Value]:
    b = current_builder(what)
    s, rounds = _seed(seed, n_rounds, what)
    x = _integer(offset, f"{what}: offset")
    d = semantic.dtype_of(x, f"{what}: offset")
    low = semantic.cast(x, U32)
    high = b.constant(0, like(x.type, U32))
    if d.bits > 32:
        shifted = b.elementwise("arith.shr", x, b.constant(32, x.type))
        high = semantic.cast(shifted, U32)
    zero = b.constant(0, low.type)
    return _philox(b, s, [low, high, zero, zero], rounds)


def philox(seed: TensorLike, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: int = 10) -> tuple[tensor, ...]:
    """The generator itself: four tiles of random uint32 for the counter (c0, c1, c2, c3), integers of 32 bits, and a scalar `seed` of up to 64."""
    b = current_builder("philox")
    s, rounds = _seed(seed, n_rounds, "philox")
    words = [_integer(c, "philox: a word of the counter") for c in (c0, c1, c2, c3)]
    for w in words:
        if semantic.dtype_of(w, "philox").bits > 32:
            fail("type-mismatch", f"philox: the words of the counter have 32 bits, not {w.type}")
    shape: tuple[int, ...] = ()
    for w in words:
        shape = semantic.broadcast_shapes(shape, semantic.operand_shape(w), "philox")
    counter = [semantic.broadcast_to(semantic.cast(w, U32), shape) for w in words]
    return tuple(tensor(v) for v in _philox(b, s, counter, rounds))


def uint_to_uniform_float(x: tensor) -> tensor:
    """Random 32-bit integers as f32 that are uniform in [0, 1)."""
    v = _integer(x, "uint_to_uniform_float")
    if semantic.dtype_of(v, "uint_to_uniform_float").bits != 32:
        fail("type-mismatch", f"uint_to_uniform_float takes integers of 32 bits, not {v.type}")
    return tensor(_uniform(v))


def pair_uniform_to_normal(u1: tensor, u2: tensor) -> tuple[tensor, tensor]:
    """Two standard normals from two f32 that are uniform in [0, 1) (Box and Muller)."""
    a, b = as_value(u1, "pair_uniform_to_normal"), as_value(u2, "pair_uniform_to_normal")
    if semantic.dtype_of(a, "pair_uniform_to_normal") is not F32 or a.type is not b.type:
        fail("type-mismatch", f"pair_uniform_to_normal takes two f32 of one shape, not {a.type} and {b.type}")
    return _normals(a, b)


def randint4x(seed: TensorLike, offset: tensor, n_rounds: int = 10) -> tuple[tensor, tensor, tensor, tensor]:
    """Four tiles of random uint32, of the shape of `offset` (integers), from a scalar `seed`."""
    a, b, c, d = (tensor(v) for v in _words(seed, offset, n_rounds, "randint4x"))
    return a, b, c, d


def randint(seed: TensorLike, offset: tensor, n_rounds: int = 10) -> tensor:
    """A tile of random uint32 of the shape of `offset`; `randint4x` gives four for the price of one."""
    return tensor(_words(seed, offset, n_rounds, "randint")[0])


def _uniform(word: Value) -> Value:
    """A uint32 as a float in [0, 1): its low 31 bits, those of the complement where it is 2^31 or more."""
    b = current_builder("rand")
    x = semantic.cast(word, I32, bitcast=True)
    folded = b.elementwise("arith.xor", x, b.elementwise("arith.shr", x, b.constant(31, x.type)))
    return b.elementwise("arith.mul", semantic.cast(folded, F32), b.constant(_SCALE, like(x.type, F32)))


def rand(seed: TensorLike, offset: tensor, n_rounds: int = 10) -> tensor:
    """A tile of f32 that are uniform in [0, 1), of the shape of `offset`."""
    return tensor(_uniform(_words(seed, offset, n_rounds, "rand")[0]))


def rand4x(seed: TensorLike, offset: tensor, n_rounds: int = 10) -> tuple[tensor, tensor, tensor, tensor]:
    """Four tiles as `rand` gives one."""
    a, b, c, d = (tensor(_uniform(v)) for v in _words(seed, offset, n_rounds, "rand4x"))
    return a, b, c, d


def _normals(u: Value, v: Value) -> tuple[tensor, tensor]:
    """Two standard normals from two uniforms (Box and Muller)."""
    b = current_builder("randn")
    u = b.elementwise("arith.maxnum", b.constant(1.0e-7, u.type), u)
    angle: Any = tensor(b.elementwise("arith.mul", v, b.constant(6.283185307179586, v.type)))
    radius = METHODS["sqrt"](METHODS["log"](tensor(u)) * -2.0)
    return radius * angle.cos(), radius * angle.sin()


def randn(seed: TensorLike, offset: tensor, n_rounds: int = 10) -> tensor:
    """A tile of standard normal f32, of the shape of `offset`."""
    words = [_uniform(v) for v in _words(seed, offset, n_rounds, "randn")]
    return _normals(words[0], words[1])[0]


def randn4x(seed: TensorLike, offset: tensor, n_rounds: int = 10) -> tuple[tensor, tensor, tensor, tensor]:
    """Four tiles as `randn` gives one."""
    words = [_uniform(v) for v in _words(seed, offset, n_rounds, "randn4x")]
    return (*_normals(words[0], words[1]), *_normals(words[2], words[3]))
