"""Two small interpreters of machine code, before and after `finish`, and a generator of random SSA programs.

Both interpreters take what an instruction computes from one table of made-up functions: the tests are about where values lie, not about
arithmetic. The one for flat code has physical registers, EXEC, SCC, queues of loads that have not arrived, and refuses to look at what
was never written or is still on its way.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.amdgcn.registers import EXEC, FIRST, M0, SCC, VCC, shape, units
from mimw.codegen.machine import (
    Block,
    Comment,
    Edge,
    FlatFunction,
    Function,
    Imm,
    Inst,
    Label,
    LabelRef,
    Reg,
    Symbol,
    Terminator,
)

LANES = 3
"""Lanes that compute; lane masks have this many bits that matter."""
FULL = (1 << LANES) - 1
WORD = 0xFFFFFFFF

Words = list[int]


def mix(*numbers: int) -> int:
    """A 32-bit number made of others."""
    found = 0x811C9DC5
    for number in numbers:
        found = ((found ^ (number & WORD)) * 0x01000193 + (number >> 32) + 0x9E37) & WORD
    return found


def compute(opcode: str, sources: list[Words], count: int) -> Words:
    """The words of an instruction's result in one lane, from those of its sources."""
    if opcode in (
        "v_mov_b32",
        "v_mov_b64",
        "s_mov_b32",
        "s_mov_b64",
        "v_accvgpr_read_b32",
        "v_accvgpr_write_b32",
        "v_accvgpr_mov_b32",
    ):
        return (sources[0] + [0] * count)[:count]
    if opcode == "s_add_u32":
        return [(sources[0][0] + sources[1][0]) & WORD]
    name = sum(map(ord, opcode))
    if opcode.startswith("v_mfma_"):
        a, b, c = sources
        return [mix(name, sum(a), sum(b) * 3, c[i % len(c)], i) for i in range(count)]
    return [mix(name, i, *(w * (k + 1) for k, s in enumerate(sources) for w in s)) for i in range(count)]


def compared(opcode: str, a: Words, b: Words) -> bool:
    """What a comparison says (the loops of the generator count with lt)."""
    if "_lt_" in opcode:
        return a < b
    return mix(*a, *b) % 3 != 0


class Trace:
    """What a program did to memory: stores in order, and the values that loads find."""

    def __init__(self) -> None:
        self.stores: list[tuple[str, int, Words, Words]] = []

    @staticmethod
    def loaded(address: list[Words], count: int) -> Words:
        """The words found at an address."""
        return [mix(7, i, *(w for words in address for w in words)) for i in range(count)]


# --- before


class Before:
    """Runs an SSA function: every value is a list of lanes, each a list of words. Scalars are equal in all lanes."""

    def __init__(self, fn: Function, entry: dict[str, list[Words]]) -> None:
        self.fn = fn
        self.entry = entry
        self.values: dict[Reg, list[Words]] = {}
        self.trace = Trace()

    def run(self) -> Trace:
        """From the first block to the end."""
        block, args = self.fn.blocks[0], []
        for _ in range(5000):
            for param, value in zip(block.params, args, strict=True):
                self.values[param] = value
            for inst in block.insts:
                if isinstance(inst, Inst):
                    self.inst(inst)
            term = block.term
            assert term is not None
            if not term.edges:
                return self.trace
            edge = term.edges[0]
            if term.cond is not None and not self.values[term.cond][0][0] & 1:
                edge = term.edges[1]
            args = [
                self.read(arg, shape(param.cls)[1]) for param, arg in zip(edge.block.params, edge.args, strict=True)
            ]
            block = edge.block
        raise AssertionError("the program does not end")

    def read(self, operand: object, count: int = 1) -> list[Words]:
        if isinstance(operand, Reg):
            return [list(words) for words in self.values[operand]]
        assert isinstance(operand, Imm)
        words = [operand.value >> (32 * i) & WORD for i in range(count)]
        return [list(words) for _ in range(LANES)]

    def inst(self, inst: Inst) -> None:
        opcode, operands = inst.opcode, inst.operands
        result = operands[0] if inst.num_results else None
        count = shape(result.cls)[1] if isinstance(result, Reg) else 0
        active = self.values[inst.guard] if inst.guard is not None else [[FULL, 0]] * LANES
        if opcode == "p_entry":
            value = self.entry[operands[1].name]
        elif opcode == "p_undef":
            value = [[0xBAD] * count for _ in range(LANES)]
        elif opcode == "p_pack":
            parts = [self.read(o) for o in operands[1:]]
            value = [[w for part in parts for w in part[lane]] for lane in range(LANES)]
        elif opcode == "p_part":
            value = [words[operands[2].value :][:count] for words in self.read(operands[1])]
        elif opcode == "p_copy":
            value = self.read(operands[1], count)
            if shape(result.cls)[0] == "s":
                value = [value[0]] * LANES
        elif opcode.startswith(("p_cmp_", "v_cmp_")):
            a, b = (self.read(o) for o in operands[1:3])
            if opcode.startswith("p_"):
                value = [[FULL if compared(opcode, a[0], b[0]) else 0, 0]] * LANES
            else:
                value = [[sum(compared(opcode, a[k], b[k]) << k for k in range(LANES)), 0]] * LANES
        elif opcode.startswith(("p_select_", "v_cndmask")):
            a, b = (self.read(o, count) for o in operands[1:3])
            mask = self.read(operands[3])
            bits = [mask[0][0] >> (k if opcode.startswith("v_") else 0) & 1 for k in range(LANES)]
            one, two = (a, b) if opcode.startswith("p_") else (b, a)
            value = [one[k] if bits[k] else two[k] for k in range(LANES)]
        elif opcode in ("p_add_u64", "p_sub_u64"):
            a, b = (self.read(o, 2)[0] for o in operands[1:3])
            sign = 1 if opcode == "p_add_u64" else -1
            total = (a[0] | a[1] << 32) + sign * (b[0] | b[1] << 32)
            value = [[total & WORD, total >> 32 & WORD]] * LANES
        elif opcode in ("s_and_b64", "s_or_b64"):
            a, b = (self.read(o, 2)[0] for o in operands[1:3])
            value = [[x & y if opcode == "s_and_b64" else x | y for x, y in zip(a, b, strict=True)]] * LANES
        elif "_store_" in opcode:
            self.store(inst, active)
            return
        elif opcode.startswith("p_wait") or opcode == "s_barrier":
            return
        elif "_load_" in opcode or opcode.startswith("ds_read"):
            sources = [self.read(o) for o in operands[1:] if isinstance(o, Reg)]
            value = [Trace.loaded([s[k] for s in sources], count) for k in range(LANES)]
        else:
            sources = [self.read(o) for o in operands[1:] if isinstance(o, (Reg, Imm))]
            if resolve(opcode).partial:
                sources.append(self.read(inst.tied_in[0], count))
            value = [compute(opcode, [s[k] for s in sources], count) for k in range(LANES)]
        if inst.guard is not None:
            old = self.read(inst.tied_in[0], count) if inst.tied_in else [[0xBAD] * count] * LANES
            value = [value[k] if active[0][0] >> k & 1 else old[k] for k in range(LANES)]
        self.values[result] = value

    def store(self, inst: Inst, active: list[Words]) -> None:
        address, data = self.read(inst.operands[0]), self.read(inst.operands[1])
        for k in range(LANES):
            if active[0][0] >> k & 1:
                self.trace.stores.append((inst.opcode, k, address[k], data[k]))


# --- after


class Broken(AssertionError):
    """The flat program does something that hardware does not forgive."""


class After:
    """Runs a flat function on physical registers. `late` loads arrive only when a wait demands it."""

    def __init__(self, flat: FlatFunction, entry: dict[str, list[Words]]) -> None:
        self.flat = flat
        self.file: dict[int, list[int | None]] = {}
        self.pending: dict[str, list[tuple[list[int], list[Words], int]]] = {"vm": [], "lgkm": []}
        self.scalar_loads = 0
        self.scratch: dict[tuple[int, int], int] = {}
        self.trace = Trace()
        for name, value in entry.items():
            for i, unit in enumerate(units(name)):
                self.file[unit] = [words[i] for words in value]
        self.put(EXEC, [FULL] * LANES)

    def run(self) -> Trace:
        """From the first item to s_endpgm."""
        body = self.flat.body
        places = {item.name: i for i, item in enumerate(body) if isinstance(item, Label)}
        at = 0
        for _ in range(200000):
            item = body[at]
            at += 1
            if not isinstance(item, Inst):
                continue
            if item.guard is not None:
                raise Broken("a guard is left")
            if item.opcode == "s_endpgm":
                return self.trace
            if item.opcode.startswith(("s_branch", "s_cbranch")):
                taken = item.opcode == "s_branch" or self.one(SCC) == int(item.opcode[-1])
                if item.opcode != "s_branch" and not item.opcode.startswith("s_cbranch_scc"):
                    raise Broken(item.opcode)
                if taken:
                    label = item.operands[0]
                    assert isinstance(label, LabelRef)
                    at = places[label.name]
                continue
            self.inst(item)
        raise Broken("the program does not end")

    # registers

    def put(self, unit: int, lanes: list[int]) -> None:
        self.file[unit] = list(lanes)

    def one(self, unit: int) -> int:
        value = self.get(unit)[0]
        assert value is not None
        return value

    def get(self, unit: int) -> list[int | None]:
        self.arrived([unit])
        if unit not in self.file:
            raise Broken(f"unit {unit} was never written")
        return self.file[unit]

    def arrived(self, wanted: list[int] | range) -> None:
        for queue in self.pending.values():
            for targets, _, _ in queue:
                if not set(targets).isdisjoint(wanted):
                    raise Broken(f"units {wanted} are still on their way")

    def read(self, operand: object, count: int = 1) -> list[Words]:
        if isinstance(operand, Reg):
            rows = [self.get(unit) for unit in units(operand.name)]
            return [[row[k] for row in rows] for k in range(LANES)]
        assert isinstance(operand, Imm)
        words = [operand.value >> (32 * i) & WORD for i in range(count)]
        return [list(words) for _ in range(LANES)]

    def write(self, reg: Reg, value: list[Words], everywhere: bool = False) -> None:
        where = units(reg.name)
        self.arrived(where)
        mask = self.one(EXEC)
        for i, unit in enumerate(where):
            old = self.file.get(unit, [None] * 64)
            scalar = unit < FIRST["v"]
            new = [value[k][i] if scalar or everywhere or mask >> k & 1 else old[k] for k in range(LANES)]
            self.file[unit] = new + list(old[LANES:])

    # instructions

    def inst(self, inst: Inst) -> None:
        opcode, operands = inst.opcode, inst.operands
        row = resolve(opcode)
        if opcode == "s_waitcnt":
            self.wait([o.name for o in operands if isinstance(o, Symbol)])
        elif opcode in ("s_nop", "s_barrier"):
            pass
        elif opcode.startswith("s_cmp_"):
            if opcode == "s_cmp_lg_u64":
                self.put(SCC, [int(any(self.read(operands[0])[0]))] * LANES)
            else:
                a, b = (self.read(o)[0] for o in operands[:2])
                self.put(SCC, [int(compared("p_" + opcode[2:], a, b))] * LANES)
        elif opcode.startswith("s_cselect"):
            count = len(units(operands[0].name))
            chosen = operands[1] if self.one(SCC) else operands[2]
            self.write(operands[0], [[FULL, 0]] * LANES if chosen_all(chosen) else self.read(chosen, count))
        elif opcode in ("s_add_u32", "s_addc_u32", "s_sub_u32", "s_subb_u32"):
            self.carried(inst)
        elif opcode == "v_swap_b32":
            a, b = self.read(operands[0]), self.read(operands[1])
            self.write(operands[0], b)
            self.write(operands[1], a)
        elif opcode == "v_writelane_b32":
            unit = units(operands[0].name).start
            lanes = list(self.file.get(unit, [None] * LANES)) + [None] * 64
            lanes[operands[2].value + LANES] = self.read(operands[1])[0][0]
            self.file[unit] = lanes[: 64 + LANES]
        elif opcode == "v_readlane_b32":
            value = self.get(units(operands[1].name).start)[operands[2].value + LANES]
            assert value is not None
            self.write(operands[0], [[value]] * LANES)
        elif opcode == "v_readfirstlane_b32":
            self.write(operands[0], [self.read(operands[1])[0]] * LANES)
        elif opcode.startswith("scratch_"):
            self.scratch_access(inst)
        elif row.counter:
            self.memory(inst)
        elif opcode.startswith("v_cmp_"):
            a, b = (self.read(o) for o in operands[1:3])
            bits = sum(compared(opcode, a[k], b[k]) << k for k in range(LANES))
            self.write(operands[0], [[bits, 0]] * LANES)
        elif opcode.startswith("v_cndmask"):
            a, b, mask = (self.read(o) for o in operands[1:4])
            self.write(operands[0], [b[k] if mask[0][0] >> k & 1 else a[k] for k in range(LANES)])
        else:
            self.plain(inst)

    def plain(self, inst: Inst) -> None:
        opcode, operands = inst.opcode, inst.operands
        count = len(units(operands[0].name))
        if opcode == "s_mov_b64" and operands[0].name == "exec" and isinstance(operands[1], Imm):
            self.put(EXEC, [FULL] * LANES)
            return
        if opcode in ("s_and_b64", "s_or_b64"):
            a, b = (self.read(o, 2)[0] for o in operands[1:3])
            both = [x & y if opcode == "s_and_b64" else x | y for x, y in zip(a, b, strict=True)]
            self.write(operands[0], [both] * LANES)
            self.put(SCC, [1] * LANES)
            return
        sources = [self.read(o) for o in operands[1:] if isinstance(o, (Reg, Imm))]
        if resolve(opcode).partial:
            sources.append(self.read(operands[0]))
        self.write(operands[0], [compute(opcode, [s[k] for s in sources], count) for k in range(LANES)])
        if "scc" in resolve(opcode).implicit_writes:
            self.put(SCC, [mix(count) & 1] * LANES)

    def carried(self, inst: Inst) -> None:
        """Sums with carry in SCC."""
        a, b = (self.read(o)[0][0] for o in inst.operands[1:3])
        carry = self.one(SCC) if inst.opcode in ("s_addc_u32", "s_subb_u32") else 0
        total = a + b + carry if "add" in inst.opcode else a - b - carry
        self.write(inst.operands[0], [[total & WORD]] * LANES)
        self.put(SCC, [int(not 0 <= total <= WORD)] * LANES)

    # memory

    def memory(self, inst: Inst) -> None:
        row = resolve(inst.opcode)
        queue = self.pending[row.counter]
        mask = self.one(EXEC)
        if not inst.num_results:
            address, data = self.read(inst.operands[0]), self.read(inst.operands[1])
            for k in range(LANES):
                if mask >> k & 1:
                    self.trace.stores.append((inst.opcode, k, address[k], data[k]))
            queue.append(([], [], 0))
            return
        sources = [self.read(o) for o in inst.operands[1:] if isinstance(o, Reg)]
        where = units(inst.operands[0].name)
        self.arrived(where)
        values = [Trace.loaded([s[k] for s in sources], len(where)) for k in range(LANES)]
        if row.unit == "smem":
            self.scalar_loads += 1
        queue.append((list(where), values, mask))

    def scratch_access(self, inst: Inst) -> None:
        store = not inst.num_results
        data = inst.operands[1] if store else inst.operands[0]
        base = inst.operands[2]
        offset = sum(int(o.name[7:]) for o in inst.operands if isinstance(o, Symbol) and o.name.startswith("offset:"))
        if isinstance(base, Reg):
            offset += self.read(base)[0][0]
        where = units(data.name)
        if store:
            value = self.read(data)
            for k in range(LANES):
                for i in range(len(where)):
                    self.scratch[k, offset + 4 * i] = value[k][i]
            self.pending["vm"].append(([], [], 0))
            return
        self.arrived(where)
        found = [[self.scratch[k, offset + 4 * i] for i in range(len(where))] for k in range(LANES)]
        self.pending["vm"].append((list(where), found, FULL))

    def wait(self, wanted: list[str]) -> None:
        for text in wanted:
            name, _, number = text.rstrip(")").partition("(")
            counter, most = {"vmcnt": "vm", "lgkmcnt": "lgkm"}[name], int(number)
            queue = self.pending[counter]
            if counter == "lgkm" and self.scalar_loads and most:
                raise Broken("scalar loads arrive in any order: only a wait for all of them helps")
            while len(queue) > most:
                where, values, mask = queue.pop(0)
                for i, unit in enumerate(where):
                    old = self.file.get(unit, [None] * 64)
                    keep = unit >= FIRST["v"]
                    new = [old[k] if keep and not mask >> k & 1 else values[k][i] for k in range(LANES)]
                    self.file[unit] = new + list(old[LANES:])
            if counter == "lgkm" and not queue:
                self.scalar_loads = 0


def chosen_all(operand: object) -> bool:
    """Whether an operand is the constant -1: all lanes."""
    return isinstance(operand, Imm) and operand.value == -1


# --- random programs


class Generator:
    """Random SSA functions: arithmetic in all files, tuples, ties, guards, nested loops and branches."""

    def __init__(self, seed: int, size: int = 14, depth: int = 2) -> None:
        self.random = random.Random(seed)
        self.size = size
        self.depth = depth
        self.fn = Function("k", [])
        self.block = Block("entry")
        self.fn.blocks.append(self.block)

    def make(self) -> Function:
        """A function; its entry registers are those of `entry_values`."""
        pool: dict[str, list[Reg]] = {}
        for cls, name in (("s64", "s[0:1]"), ("s32", "s2"), ("s32", "s3"), ("v32", "v0")):
            self.add(pool, "p_entry", cls, [Symbol(name)])
        for _ in range(2):
            self.add(pool, "v_add_u32", "v32", [self.pick(pool, "v32"), Imm(self.random.randrange(64))])
            self.add(pool, "v_cmp_gt_u32", "mask", [self.pick(pool, "v32"), self.pick(pool, "v32")])
        for cls, count in (("v64", 2), ("v128", 4), ("v512", 16)):
            self.add(pool, "p_pack", cls, [self.pick(pool, "v32") for _ in range(count)])
        self.region(pool, self.depth)
        self.show(pool)
        self.block.term = Terminator([])
        return self.fn

    def pick(self, pool: dict[str, list[Reg]], cls: str) -> Reg:
        return self.random.choice(pool[cls])

    def add(self, pool: dict[str, list[Reg]], opcode: str, cls: str, operands: list[object], **more: object) -> Reg:
        reg = Reg(cls)
        self.block.insts.append(Inst(opcode, [reg, *operands], 1, **more))  # type: ignore[arg-type]
        pool.setdefault(cls, []).append(reg)
        return reg

    def show(self, pool: dict[str, list[Reg]]) -> None:
        """Store a few values, so that they matter."""
        for cls, opcode in (("v32", "dword"), ("v64", "dwordx2"), ("v128", "dwordx4")):
            for _ in range(self.random.randrange(1, 4)):
                data, address = self.pick(pool, cls), self.pick(pool, "v32")
                guard = self.pick(pool, "mask") if self.random.random() < 0.4 else None
                operands = [address, data, self.pick(pool, "s64")]
                self.block.insts.append(Inst(f"global_store_{opcode}", operands, 0, guard=guard))
        whole, part = self.pick(pool, "v512"), Reg("v128")
        self.block.insts.append(Inst("p_part", [part, whole, Imm(4 * self.random.randrange(4))], 1))
        pool["v128"].append(part)

    def region(self, pool: dict[str, list[Reg]], depth: int) -> None:
        """Straight code, with loops and branches inside while `depth` lasts."""
        for _ in range(self.random.randrange(1, 4)):
            for _ in range(self.random.randrange(2, self.size)):
                self.straight(pool)
            if depth and self.random.random() < 0.8:
                if self.random.random() < 0.6:
                    self.loop(pool, depth - 1)
                else:
                    self.fork(pool, depth - 1)
            if self.random.random() < 0.3:
                self.show(pool)

    def straight(self, pool: dict[str, list[Reg]]) -> None:
        kinds: list[Callable[[dict[str, list[Reg]]], None]] = [
            self.scalar, self.scalar, self.vector, self.vector, self.vector, self.tuples, self.tuples, self.product,
            self.load, self.masks, self.partial,
        ]  # fmt: skip
        self.random.choice(kinds)(pool)

    def scalar(self, pool: dict[str, list[Reg]]) -> None:
        choice = self.random.randrange(6)
        a, b = self.pick(pool, "s32"), self.pick(pool, "s32")
        if choice == 0:
            self.add(pool, "s_mul_i32", "s32", [a, b])
        elif choice == 1:
            self.add(
                pool,
                self.random.choice(["p_add_u64", "p_sub_u64"]),
                "s64",
                [self.pick(pool, "s64"), self.pick(pool, "s64")],
            )
        elif choice == 2:
            self.add(pool, "s_xor_b32", "s32", [a, Imm(5)])
        elif choice == 3:
            self.add(pool, "s_mov_b32", "s32", [Imm(self.random.randrange(1000))])
        elif choice == 4:
            self.add(pool, "p_pack", "s64", [a, b])
        else:
            self.add(pool, "s_load_dwordx2", "s64", [self.pick(pool, "s64"), Imm(8)])

    def vector(self, pool: dict[str, list[Reg]]) -> None:
        choice = self.random.randrange(6)
        a, b = self.pick(pool, "v32"), self.pick(pool, "v32")
        if choice < 2:
            self.add(pool, "v_xor_b32", "v32", [a, b])
        elif choice == 2:
            self.add(pool, "v_mov_b32", "v32", [Imm(self.random.randrange(100000))])
        elif choice == 3:
            self.add(pool, "v_lshl_add_u64", "v64", [self.pick(pool, "v64"), Imm(1), self.pick(pool, "v64")])
        elif choice == 4:
            self.add(pool, "v_cndmask_b32", "v32", [a, b, self.pick(pool, "mask")])
        else:
            self.add(pool, "v_mov_b32", "v32", [self.random.choice([a, self.pick(pool, "s32")])])

    def tuples(self, pool: dict[str, list[Reg]]) -> None:
        choice = self.random.randrange(7)
        if choice == 0:
            self.add(pool, "p_pack", "v64", [self.pick(pool, "v32"), self.pick(pool, "v32")])
        elif choice == 1:
            self.add(pool, "p_pack", "v128", [self.pick(pool, "v64"), self.pick(pool, "v32"), Imm(77777)])
        elif choice == 2:
            self.add(pool, "p_part", "v32", [self.pick(pool, "v128"), Imm(self.random.randrange(4))])
        elif choice == 3:
            self.add(pool, "p_part", "v64", [self.pick(pool, "v128"), Imm(self.random.randrange(3))])
        elif choice == 4:
            self.add(pool, "p_part", "v128", [self.pick(pool, "v512"), Imm(self.random.randrange(13))])
        elif choice == 5:
            self.add(pool, "p_part", "s32", [self.pick(pool, "s64"), Imm(1)])
        else:
            self.add(pool, "p_pack", "v128", [self.pick(pool, "v64"), self.pick(pool, "v64")])

    def product(self, pool: dict[str, list[Reg]]) -> None:
        a, b = self.pick(pool, "v64"), self.pick(pool, "v64")
        if self.random.random() < 0.5:
            addend = self.pick(pool, "v512") if self.random.random() < 0.8 else Imm(0)
            self.add(pool, "v_mfma_f32_32x32x8_f16", "v512", [a, b, addend])
        else:
            self.add(pool, "v_mfma_f32_16x16x16_f16", "v128", [a, b, self.pick(pool, "v128")])

    def load(self, pool: dict[str, list[Reg]]) -> None:
        cls, opcode = self.random.choice([("v32", "dword"), ("v64", "dwordx2"), ("v128", "dwordx4")])
        operands = [self.pick(pool, "v32"), self.pick(pool, "s64")]
        guard, tied = None, None
        if self.random.random() < 0.5:
            guard = self.pick(pool, "mask")
            tied = [self.random.choice([Imm(0), self.pick(pool, cls)])]
        if self.random.random() < 0.3:
            self.add(pool, "ds_read_b32", "v32", operands[:1])
        self.add(pool, f"global_load_{opcode}", cls, operands, guard=guard, tied_in=tied)

    def masks(self, pool: dict[str, list[Reg]]) -> None:
        choice = self.random.randrange(4)
        if choice == 0:
            self.add(pool, "v_cmp_gt_u32", "mask", [self.pick(pool, "v32"), self.pick(pool, "v32")])
        elif choice == 1:
            self.add(pool, "s_and_b64", "mask", [self.pick(pool, "mask"), self.pick(pool, "mask")])
        elif choice == 2:
            local: dict[str, list[Reg]] = {}
            mask = self.add(local, "p_cmp_eq_i32", "mask", [self.pick(pool, "s32"), Imm(3)])
            self.add(pool, "p_select_b32", "s32", [self.pick(pool, "s32"), Imm(9), mask])
            self.add(pool, "p_select_b64", "s64", [self.pick(pool, "s64"), self.pick(pool, "s64"), mask])
        else:
            self.add(pool, "s_or_b64", "mask", [self.pick(pool, "mask"), self.pick(pool, "mask")])

    def partial(self, pool: dict[str, list[Reg]]) -> None:
        operands = [self.pick(pool, "v32"), self.pick(pool, "v32")]
        self.add(pool, "v_cvt_pk_fp8_f32", "v32", operands, tied_in=[self.pick(pool, "v32")])

    def loop(self, pool: dict[str, list[Reg]], depth: int) -> None:
        """A loop of a few rounds that carries values, some of them around in a circle."""
        carried = [
            self.pick(pool, cls)
            for cls in self.random.choices(
                ["v32", "v64", "v128", "v512", "s32", "s64", "mask"], k=self.random.randrange(7)
            )
        ]
        starts = [*carried, *carried[: self.random.randrange(3)]]
        head, after = Block("loop"), Block("after")
        head.params = [Reg("s32"), *(Reg(reg.cls) for reg in starts)]
        self.block.term = Terminator([Edge(head, [Imm(0), *starts])])
        self.fn.blocks.append(head)
        self.block = head
        inner = {cls: list(regs) for cls, regs in pool.items()}
        for param in head.params[1:]:
            inner[param.cls] = [*inner[param.cls], param, param, param]
        self.region(inner, depth)
        counter: dict[str, list[Reg]] = {}
        following = self.add(counter, "s_add_u32", "s32", [head.params[0], Imm(1)])
        args: list[Reg | Imm] = []
        for param in head.params[1:]:
            same = [p for p in head.params[1:] if p.cls == param.cls]
            args.append(self.random.choice([self.random.choice(same), self.pick(inner, param.cls)]))
        again = self.add(counter, "p_cmp_lt_u32", "mask", [following, Imm(self.random.randrange(1, 4))])
        if self.random.random() < 0.3:
            self.add(inner, "v_cndmask_b32", "v32", [self.pick(inner, "v32"), self.pick(inner, "v32"), again])
        kept = [self.pick(inner, cls) for cls in ("v32", "v128", "s32")]
        after.params = [Reg(reg.cls) for reg in kept]
        self.block.term = Terminator([Edge(head, [following, *args]), Edge(after, list(kept))], again, True)
        self.fn.blocks.append(after)
        self.block = after
        for param in after.params:
            pool[param.cls].append(param)
        for reg in head.params[1:3]:
            pool[reg.cls].append(reg)

    def fork(self, pool: dict[str, list[Reg]], depth: int) -> None:
        condition = self.add({}, "p_cmp_eq_i32", "mask", [self.pick(pool, "s32"), Imm(1)])
        sides, join = [Block("then"), Block("otherwise")], Block("join")
        merged = self.random.choices(["v32", "v64", "v128", "v512", "s32", "mask"], k=self.random.randrange(5))
        join.params = [Reg(cls) for cls in merged]
        self.block.term = Terminator([Edge(sides[0], []), Edge(sides[1], [])], condition, True)
        short = self.random.random() < 0.3
        if short:
            self.block.term.edges[1] = Edge(join, [self.pick(pool, cls) for cls in merged])
        for side in sides[: 1 if short else 2]:
            self.fn.blocks.append(side)
            self.block = side
            inner = {cls: list(regs) for cls, regs in pool.items()}
            self.region(inner, depth)
            args: list[Reg | Imm] = [self.pick(inner, cls) for cls in merged]
            if merged and merged[0] in ("v32", "s32"):
                args[0] = Imm(12345)
            self.block.term = Terminator([Edge(join, args)])
        self.fn.blocks.append(join)
        self.block = join
        for param in join.params:
            pool[param.cls].append(param)


def entry_values() -> dict[str, list[Words]]:
    """What a wave starts with."""
    return {
        "s[0:1]": [[0x1000, 0x2]] * LANES,
        "s2": [[3]] * LANES,
        "s3": [[11]] * LANES,
        "v0": [[k] for k in range(LANES)],
    }


__all__ = ["After", "Before", "Broken", "Comment", "Generator", "M0", "VCC", "entry_values"]
