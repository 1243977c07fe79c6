"""The primitive operations on lanes that a target implements, each with the contract that shared lowerings rely on.

Owns the list and what a builder knows of where it is: block, place in the source, task. `lane_builder` adds what is the same on all targets. Knows no
instruction. What a lane is: `lane.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mimw.codegen.lane import LANE, Lane, Tile
from mimw.codegen.machine import Block, Imm, Reg
from mimw.diagnostics import UNKNOWN, Loc
from mimw.ir.types import DType, Element
from mimw.target import Target


class LanePrimitives(ABC):
    """Instructions go to the end of `block`, each at `loc`.

    Inside a task, `first_warp` and `task_warps` are its warps: thread and warp indices count from there, and `barrier` joins its threads
    only, at the hardware's barrier `sync_id`. `task_warps` 0 means that there are no tasks. `branches_diverge`: whether the lanes of a
    warp may branch differently; where not, loops on a lane's value go on while `any_lane` does. `takes_bases`: whether `point` is better
    than a sum. `steps_in_registers`: whether `shuffle_step` costs less than `shuffle_xor` of 16 and 32 lanes.
    """

    branches_diverge = True
    takes_bases = False
    steps_in_registers = False

    def __init__(self, target: Target) -> None:
        self.target = target
        self.block = Block("entry")
        self.loc: Loc = UNKNOWN
        self.hint = ""
        self.first_warp = 0
        self.task_warps = 0
        self.sync_id = 0

    # -------------------------------------------------------------------------------------------------- arithmetic

    @abstractmethod
    def supports(self, prim: str, dtype: DType) -> bool:
        """Whether `op(prim, dtype)` exists on the target (else the lowering goes through f32)."""

    @abstractmethod
    def emit_op(self, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
        """The instruction of `op`, value-numbered."""

    @abstractmethod
    def packs(self, prim: str, dtype: DType) -> bool:
        """Whether `packed_op` exists."""

    @abstractmethod
    def packed_op(self, prim: str, dtype: DType, args: Sequence[tuple[Lane, Lane]]) -> tuple[Lane, Lane]:
        """A primitive on two neighbouring 16-bit elements at once."""

    @abstractmethod
    def emit_compare(self, how: str, a: Lane, b: Lane) -> Lane:
        """The instruction of `compare`."""

    @abstractmethod
    def emit_select(self, cond: Lane, a: Lane, b: Lane) -> Lane:
        """The instruction of `select`."""

    # ------------------------------------------------------------------------------------------------- conversions

    @abstractmethod
    def convert(self, how: str, lane: Lane, to: DType) -> Lane:
        """A conversion instruction the target has: see `converts`."""

    @abstractmethod
    def converts(self, how: str, source: Element, to: Element) -> bool:
        """Whether `convert(how)` exists: "rn", "rz" (rounding), "exact", "int" (between integers), "rzi" (float to integer)."""

    @abstractmethod
    def convert_pair(self, how: str, lo: Lane, hi: Lane, to: DType) -> tuple[Lane, Lane] | None:
        """Two conversions in one instruction with a packed result, or None where there is no such instruction."""

    @abstractmethod
    def makes_fp8(self, dtype: DType) -> bool:
        """Whether `bytes_from_f32` exists for this 8-bit float."""

    @abstractmethod
    def reads_fp8(self, dtype: DType) -> bool:
        """Whether `halves_from_bytes` exists for this 8-bit float."""

    @abstractmethod
    def bytes_from_f32(self, lanes: Tile, to: DType) -> list[Lane]:
        """Two or four f32 as packed 8-bit floats, rounded to nearest even, saturated."""

    @abstractmethod
    def halves_from_bytes(self, lo: Lane, hi: Lane) -> tuple[Lane, Lane]:
        """Two 8-bit floats as packed f16, exactly."""

    @abstractmethod
    def upper_bytes(self, lo: Lane, hi: Lane) -> Lane:
        """Two 8-bit elements, not both constant, as the upper bytes of the halves of a u32; zeros below them."""

    @abstractmethod
    def bf16_to_f32(self, lane: Lane) -> Lane:
        """A bf16 that is no constant as f32, exactly."""

    @abstractmethod
    def round_to_tf32(self, lanes: Tile) -> list[Lane]:
        """f32 rounded to 10 mantissa bits, ties away from zero."""

    @abstractmethod
    def bitcast(self, lane: Lane, to: Element) -> Lane:
        """The same bits as another type of the same width."""

    @abstractmethod
    def widen(self, lane: Lane, to: Element) -> Lane:
        """An integer extended to 64 bits by its own signedness, as `to`. Keeps no offset apart."""

    @abstractmethod
    def widen_scaled(self, lane: Lane, to: Element, scale: int) -> Lane:
        """A 32-bit integer extended to 64 bits and multiplied by a constant."""

    # ------------------------------------------------------------------------------------------ indices, arguments

    @abstractmethod
    def thread_id(self) -> Lane:
        """Index of the thread in the task (without tasks: in the CTA), i32."""

    @abstractmethod
    def uniform_warp_id(self) -> Lane:
        """Index of the warp in the task (without tasks: in the CTA), i32, known to be one in the warp."""

    @abstractmethod
    def program_id(self, axis: int) -> Lane:
        """Index of the CTA in the grid, i32."""

    @abstractmethod
    def num_programs(self, axis: int) -> Lane:
        """Size of the grid, i32."""

    @abstractmethod
    def argument(self, index: int) -> Lane:
        """A kernel argument."""

    # ----------------------------------------------------------------------------------------- other lanes, memory

    @abstractmethod
    def shuffle_xor(self, lane: Lane, mask: int) -> Lane:
        """The value that the lane with index ``own ^ mask`` holds."""

    @abstractmethod
    def shuffle_from(self, lane: Lane, source: Lane) -> Lane:
        """The value that lane `source` (i32) of the warp holds."""

    @abstractmethod
    def load(
        self, space: str, dtype: Element, address: Lane, count: int, guard: Lane | None, other: Tile | None, how: str
    ) -> list[Lane]:
        """`count` neighbouring elements from global or shared memory in one access, where `guard` is true; `other` elsewhere.

        `count` times the element's size is 1, 2, 4, 8 or 16 bytes and the address is aligned to it. `how` holds cache modifiers.
        """

    @abstractmethod
    def store(self, space: str, address: Lane, values: Tile, guard: Lane | None, how: str) -> None:
        """Write neighbouring elements in one access where `guard` is true."""

    @abstractmethod
    def shared_base(self) -> Lane:
        """Address of the CTA's shared memory, u32, aligned to 1024 bytes."""

    @abstractmethod
    def barrier(self) -> None:
        """All threads of the task (without tasks: of the CTA) meet; shared memory is ordered."""

    @abstractmethod
    def warp_barrier(self) -> None:
        """The lanes of a warp meet; shared memory is ordered between them."""

    # ------------------------------------------------------------------------------------------- what kernels tell

    @abstractmethod
    def comment(self, text: str) -> None:
        """A line for the reader of the emitted text."""

    @abstractmethod
    def print_text(self, text: str, values: Tile, guard: Lane | None) -> None:
        """Print where `guard` is true, through the device's printf or into a buffer that the host prints: `text` is a C format, `values` are its
        arguments, 32 or 64 bits wide."""

    @abstractmethod
    def trap(self, guard: Lane | None, text: str) -> None:
        """Stop the grid with an error where `guard` is true; `text` says why, for readers of the emitted text.

        A target whose grids cannot be stopped so counts the failure, and its lowering ends the waves.
        """

    # --------------------------------------------------------------------------------------------------- registers

    @abstractmethod
    def register(self, lane: Lane) -> Reg:
        """The lane in a register of its own type (constants and offsets are materialised)."""

    @abstractmethod
    def word(self, lanes: Tile) -> Reg | Imm:
        """Neighbouring narrow elements (32 bits of them) as one packed operand."""

    @abstractmethod
    def word_lane(self, lanes: Tile) -> Lane:
        """Narrow elements, at most 32 bits of them, as a u32 lane with the first lowest."""

    @abstractmethod
    def unword(self, word: Lane, dtype: Element, count: int) -> list[Lane]:
        """The elements of a u32 lane that `word_lane` made."""

    @abstractmethod
    def parameter(self, dtype: Element, uniform: int = LANE) -> Reg:
        """A fresh register for a block parameter whose value has that uniformity."""

    @abstractmethod
    def jump_argument(self, lane: Lane, parameter: Reg) -> Reg | Imm:
        """A lane as the argument of a jump that gives it to `parameter`."""

    @abstractmethod
    def any_lane(self, cond: Lane) -> Lane:
        """Whether an i1 is true in any lane, one in the warp; targets whose branches diverge give it back."""
