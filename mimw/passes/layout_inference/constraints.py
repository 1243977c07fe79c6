"""Layout constraints as data: variables with candidate layouts, edges between them. Knows no ops.

A variable is one choice of a layout (an op's, or a carried value's). An edge is a value that flows from one variable to another:
`produced[i]` is the layout it has when the producer takes its candidate i, `required[j]` the one that is wanted when the consumer
takes candidate j (None: any will do). Where they differ a conversion is paid for.
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.ir.layout import Layout

Price = Callable[[Layout, Layout], float]


class Variable:
    """One choice. `candidates` and `costs` (of taking each, edges apart) go in step; `choice` is set by the solver."""

    __slots__ = ("candidates", "choice", "costs", "edges", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.candidates: list[Layout] = []
        self.costs: list[float] = []
        self.edges: list[Edge] = []
        self.choice = 0

    @property
    def layout(self) -> Layout:
        """The chosen layout."""
        return self.candidates[self.choice]


class Edge:
    """A value that flows from `source` to `target`; `price` is that of one conversion, `weight` how often it would run."""

    __slots__ = ("price", "produced", "required", "source", "target", "weight")

    def __init__(
        self,
        source: Variable,
        target: Variable,
        produced: list[Layout],
        required: list[Layout | None],
        price: Price,
        weight: float,
    ) -> None:
        self.source = source
        self.target = target
        self.produced = produced
        self.required = required
        self.price = price
        self.weight = weight

    def cost(self, i: int, j: int) -> float:
        """What the edge costs when the source takes candidate i and the target candidate j."""
        have, want = self.produced[i], self.required[j]
        return 0.0 if want is None or want is have else self.weight * self.price(have, want)


class Problem:
    """All variables (in program order) and edges of one function."""

    __slots__ = ("edges", "variables")

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.edges: list[Edge] = []

    def variable(self, name: str) -> Variable:
        """A new variable."""
        v = Variable(name)
        self.variables.append(v)
        return v

    def connect(self, edge: Edge) -> None:
        """Add an edge."""
        self.edges.append(edge)
        edge.source.edges.append(edge)
        edge.target.edges.append(edge)

    def total(self) -> float:
        """The cost of the choices made."""
        return sum(v.costs[v.choice] for v in self.variables) + sum(
            e.cost(e.source.choice, e.target.choice) for e in self.edges
        )
