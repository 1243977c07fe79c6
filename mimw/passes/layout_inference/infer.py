"""The pass: a layout for every tile. Builds the problem from the IR, has it solved, applies the answer.

Values that are cheap and made from nothing but scalars (ranges, splats, address arithmetic) are *free*: they have no layout of their own
and are computed again in each layout that someone wants. All other ops with tiles are variables; so are carried values of loops
and results of branches, each with one layout. `rules.py` knows the ops, `solver.py` the arithmetic of choosing.
"""

from __future__ import annotations

from collections import deque

from mimw.diagnostics import InternalError
from mimw.ir.core import Block, Function, Module, OpBase, Value
from mimw.ir.layout import Layout
from mimw.ir.types import InflightType, TensorType
from mimw.passes.facts import compute
from mimw.passes.layout_inference import costs
from mimw.passes.layout_inference.apply import apply
from mimw.passes.layout_inference.constraints import Edge, Problem, Variable
from mimw.passes.layout_inference.rules import Context, Rule, bits_of, rule_of, tile_of
from mimw.passes.layout_inference.solver import solve
from mimw.passes.tasks import TaskMap
from mimw.target import Target

NAME = "layout-inference"
_MAX_CANDIDATES = 6
_FEW_REGISTERS = 32
_FREE_OTHERS = {"tensor.splat", "tensor.arange", "tensor.expand_dims", "tensor.broadcast", "tensor.trans"}
_NOT_FREE = {"arith.div_rn", "inline.asm"}


def run(module: Module, target: Target) -> None:
    """Give every tile of the kernel a layout and insert the conversions."""
    function = module.function
    graph = Graph(function, target)
    graph.build()
    solve(graph.problem)
    apply(module, graph)


class Node:
    """What has a variable: an op with tiles, or one carried value (then `op` is None)."""

    __slots__ = ("ctx", "depth", "op", "rule", "tile", "variable")

    def __init__(
        self, variable: Variable, op: OpBase | None, rule: Rule, tile: TensorType, depth: int, ctx: Context
    ) -> None:
        self.variable = variable
        self.ctx = ctx
        self.op = op
        self.rule = rule
        self.tile = tile
        self.depth = depth


class Use:
    """A value with a node of its own that another node takes: operand `index` of its op (a carried node: any position)."""

    __slots__ = ("index", "result", "source", "target", "tile", "weight")

    def __init__(self, source: Node, result: int, target: Node, index: int, tile: TensorType, weight: float) -> None:
        self.source = source
        self.result = result
        self.target = target
        self.index = index
        self.tile = tile
        self.weight = weight


class Graph:
    """The problem of one function and which value belongs to which node."""

    __slots__ = (
        "by_op",
        "contexts",
        "ctx",
        "depths",
        "free",
        "frames",
        "function",
        "nodes",
        "problem",
        "tasks",
        "uses",
        "values",
    )

    def __init__(self, function: Function, target: Target) -> None:
        self.function = function
        self.tasks = TaskMap(function)
        facts = compute(function)
        self.contexts = [Context(target, warps, facts) for warps in self.tasks.warps]  # one a task
        self.ctx = self.contexts[0]  # that of the block being walked
        self.problem = Problem()
        self.free: set[Value] = set()
        self.values: dict[Value, tuple[Node, int]] = {}  # value -> (node, result index)
        self.depths: dict[Value, int] = {}  # loops around a carried value's block arguments
        self.by_op: dict[OpBase, Node] = {}
        self.nodes: list[Node] = []
        self.uses: list[Use] = []
        self.frames: list[_Frame] = []

    def build(self) -> None:
        """Nodes, uses, candidates, costs, edges."""
        self._block(self.function.block, 0)
        self._propagate()
        for node in self.nodes:
            self._price(node)
        for use in self.uses:
            self.problem.connect(self._edge(use))

    def layout_of(self, value: Value) -> Layout:
        """The chosen layout of a value that is not free."""
        node, index = self.values[value]
        chosen = node.variable.layout
        return chosen if node.op is None else node.rule.result(node.op, index, chosen)

    def default_layout(self, value: Value) -> Layout:
        """A layout for a free value whose user takes any."""
        t = tile_of(value.type)
        if t is None:
            raise InternalError(f"{value} has no layout")
        home = value.owner.parent if isinstance(value.owner, OpBase) else value.owner
        return self.contexts[self.tasks.of(home)].spread(t.shape)

    # ------------------------------------------------------------------------------------------------ walking the function

    def _block(self, block: Block, depth: int) -> None:
        for op in block.ops:
            name = op.name
            if name in _CONTROL:
                self._control(op, depth)
            elif name == "task.partition":
                for i, region in enumerate(op.regions):
                    self.ctx = self.contexts[i]
                    self.push("condition", [])
                    self._block(region.block, depth)
                    self.pop()
                self.ctx = self.contexts[0]
            elif op.spec.terminator:
                self._terminator(op, depth)
            elif name == "mma.async_dot_wait":
                for v, out in zip(op.operands, op.results, strict=True):
                    self.values[out] = self.values[v]
            elif self._is_free(op):
                self.free.update(op.results)
            elif _has_tiles(op):
                self._add(op, depth)

    def _is_free(self, op: OpBase) -> bool:
        spec = op.spec
        if not op.results or spec.effects or not isinstance(op.results[0].type, TensorType):
            return False
        cheap = spec.layout == "elementwise" and not op.name.startswith("math.") and op.name not in _NOT_FREE
        if not cheap and op.name not in _FREE_OTHERS:
            return False
        return all(v in self.free for v in op.operands if isinstance(v.type, TensorType))

    def _add(self, op: OpBase, depth: int) -> None:
        tile = next(t for t in (tile_of(v.type) for v in (*op.results, *op.operands)) if t is not None)
        node = Node(self.problem.variable(op.name), op, rule_of(op), tile, depth, self.ctx)
        self.nodes.append(node)
        self.by_op[op] = node
        for i, v in enumerate(op.operands):
            self._use(v, node, i, depth)
        for i, r in enumerate(op.results):
            if tile_of(r.type) is not None:
                self.values[r] = (node, i)

    def _use(self, value: Value, target: Node, index: int, depth: int) -> None:
        tile = tile_of(value.type)
        found = self.values.get(value)
        if tile is None or found is None:
            return
        source, result = found
        if source is target and source.op is None:
            return
        weight = costs.LOOP ** min(depth, self.depths.get(value, source.depth))
        if isinstance(value.type, InflightType):
            weight *= costs.FORBIDDEN
        self.uses.append(Use(source, result, target, index, tile, weight))

    def _carried(self, op: OpBase, depth: int) -> list[Node | None]:
        """One node for every result of a control op that is a tile."""
        found: list[Node | None] = []
        for r in op.results:
            tile = tile_of(r.type)
            if tile is None:
                found.append(None)
                continue
            node = Node(self.problem.variable(f"{op.name} {r.name}"), None, _CARRIED, tile, depth, self.ctx)
            self.nodes.append(node)
            self.values[r] = (node, 0)
            found.append(node)
        return found

    def _control(self, op: OpBase, depth: int) -> None:
        loop = op.name in ("control.for", "control.while")
        carried = self._carried(op, depth)
        if loop:
            first = len(op.operands) - len(op.results)
            for node, init in zip(carried, op.operands[first:], strict=True):
                if node is not None:
                    self._use(init, node, 0, depth)
            for region in op.regions:
                args = region.block.args
                for node, arg in zip(carried, args[len(args) - len(carried) :], strict=True):
                    if node is not None:
                        self.values[arg] = (node, 0)
                        self.depths[arg] = depth + 1
        kind = "loop" if loop else "if" if op.name == "control.if" else "inlined"
        inside = depth + 1 if loop else depth
        for i, region in enumerate(op.regions):
            condition = op.name == "control.while" and i == 0
            self.push("condition" if condition else kind, carried)
            self._block(region.block, inside)
            self.pop()

    def _terminator(self, op: OpBase, depth: int) -> None:
        for v, node in zip(op.operands, self.targets(op), strict=False):
            if node is not None:
                self._use(v, node, 0, depth)

    def push(self, kind: str, carried: list[Node | None]) -> None:
        """Enter a region of a control op."""
        self.frames.append(_Frame(kind, carried))

    def pop(self) -> None:
        """Leave it."""
        self.frames.pop()

    def targets(self, op: OpBase) -> list[Node | None]:
        """The nodes that a terminator's operands go to, by the frames around the point that is being walked."""
        for frame in reversed(self.frames):
            if frame.takes(op.name):
                return [] if frame.kind == "condition" else frame.carried
        return []

    # ------------------------------------------------------------------------------------------------------- candidates

    def _propagate(self) -> None:
        """Candidates spread from the ops that want something along the uses, nearest first."""
        outgoing: dict[Node, list[Use]] = {}
        incoming: dict[Node, list[Use]] = {}
        for use in self.uses:
            outgoing.setdefault(use.source, []).append(use)
            incoming.setdefault(use.target, []).append(use)
        queue: deque[tuple[Node, Layout]] = deque()
        fixed: set[Node] = set()
        for node in self.nodes:
            if node.op is not None and node.rule.fixed(node.op):
                fixed.add(node)
                for layout in node.rule.seeds(node.op, node.ctx):
                    self._offer(node, layout, queue)
        for node in self.nodes:
            if node.op is not None and node not in fixed:
                for layout in node.rule.seeds(node.op, node.ctx):
                    self._offer(node, layout, queue)
        while True:
            while queue:
                node, layout = queue.popleft()
                self._spread(node, layout, outgoing, incoming, fixed, queue)
            lonely = next((n for n in reversed(self.nodes) if not n.variable.candidates), None)
            if lonely is None:
                return
            self._offer(lonely, self._fallback(lonely), queue)

    def _fallback(self, node: Node) -> Layout:
        """A node that nobody speaks to gets a plain layout of its own shape."""
        return node.ctx.spread(_primary_tile(node).shape)

    def _spread(
        self,
        node: Node,
        layout: Layout,
        outgoing: dict[Node, list[Use]],
        incoming: dict[Node, list[Use]],
        fixed: set[Node],
        queue: deque[tuple[Node, Layout]],
    ) -> None:
        for use in outgoing.get(node, ()):
            other = use.target
            if other in fixed:
                continue
            made = layout if node.op is None else node.rule.result(node.op, use.result, layout)
            found = made if other.op is None else other.rule.from_operand(other.op, use.index, made)
            if found is not None:
                self._offer(other, found, queue)
        for use in incoming.get(node, ()):
            other = use.source
            if other in fixed:
                continue
            wanted = layout if node.op is None else node.rule.operand(node.op, use.index, layout)
            if wanted is None:
                continue
            found = wanted if other.op is None else other.rule.from_result(other.op, use.result, wanted)
            if found is not None:
                self._offer(other, found, queue)

    def _offer(self, node: Node, layout: Layout, queue: deque[tuple[Node, Layout]]) -> None:
        candidates = node.variable.candidates
        if layout in candidates or len(candidates) >= _MAX_CANDIDATES or not _covers(node, layout):
            return
        if candidates and layout.num_regs > max(_FEW_REGISTERS, 4 * min(c.num_regs for c in candidates)):
            return  # copies everywhere
        candidates.append(layout)
        queue.append((node, layout))

    def _price(self, node: Node) -> None:
        v, op = node.variable, node.op
        weight = costs.LOOP**node.depth
        if op is None:
            v.costs = [0.01 * layout.num_regs for layout in v.candidates]
        elif len(v.candidates) == 1:
            v.costs = [0.0]
        else:
            v.costs = [node.rule.cost(op, layout, node.ctx) * weight for layout in v.candidates]

    def _edge(self, use: Use) -> Edge:
        source, target = use.source, use.target
        produced = [
            layout if source.op is None else source.rule.result(source.op, use.result, layout)
            for layout in source.variable.candidates
        ]
        required = [
            layout if target.op is None else target.rule.operand(target.op, use.index, layout)
            for layout in target.variable.candidates
        ]
        bits = bits_of(use.tile)
        return Edge(
            source.variable,
            target.variable,
            produced,
            required,
            lambda have, want: costs.conversion(have, want, bits),
            use.weight,
        )


class _Frame:
    """A region that is being walked and where its terminators go."""

    __slots__ = ("carried", "kind")

    def __init__(self, kind: str, carried: list[Node | None]) -> None:
        self.kind = kind
        self.carried = carried

    def takes(self, name: str) -> bool:
        if name == "control.yield":
            return True
        return self.kind == "inlined" if name == "control.return" else self.kind == "loop"


_CARRIED = Rule()
_CONTROL = {"control.for", "control.while", "control.if", "control.inlined"}


def _has_tiles(op: OpBase) -> bool:
    return any(tile_of(v.type) is not None for v in (*op.results, *op.operands))


def _primary_tile(node: Node) -> TensorType:
    """The tile that a node's primary layout describes."""
    op = node.op
    if op is not None and op.name in _PRIMARY_IS_SOURCE:
        return next(t for t in (tile_of(v.type) for v in op.operands) if t is not None)
    return node.tile


_PRIMARY_IS_SOURCE = {
    "tensor.trans",
    "tensor.reshape",
    "tensor.join",
    "tensor.split",
    "tensor.extract_slice",
    "tensor.cat",
    "tensor.reduce",
    "tensor.scan",
    "memory.store",
    "memory.prefetch",
    "memory.local_store",
    "memory.local_alloc",
    "cluster.remote_store",
    "cluster.async_remote_store",
    "async_copy.load",
    "debug.device_print",
    "debug.device_assert",
}


def _covers(node: Node, layout: Layout) -> bool:
    """Whether a layout has a place for every element of the node's tile."""
    shape = _primary_tile(node).shape
    return len(shape) == layout.rank and all(s <= p for s, p in zip(shape, layout.shape_padded, strict=True))
