# pyright: basic
"""Memory that CTAs sharing a tile meet in: f32 parts, new for each launch, and counters, which are zero between launches.

Counters are kept: a memset before each launch would cost more than it counts. Launches on different streams must not share them, so each device has a
number of sets, and a stream keeps the set it got first.
"""

from __future__ import annotations

from typing import Any

from mimw.runtime.streams import raw_stream

_SETS = 64  # streams of a device that may run such products at one time
_SET = 1024  # counters of a set
_COUNTERS: dict[int, tuple[Any, dict[int, int]]] = {}


class Workspace:
    """What one launch needs: `parts` f32 elements and `counters` zeroed i32, at most 1024."""

    __slots__ = ("counters", "parts")

    def __init__(self, parts: int, counters: int) -> None:
        if counters > _SET:
            raise ValueError(f"{counters} tiles are too many to be shared; split K of products with few tiles")
        self.parts, self.counters = parts, counters

    def take(self, device: int, stream: Any) -> tuple[Any, Any]:
        """Parts and counters on a device (-1: the host), for a launch on `stream` (None: the current one)."""
        if device < 0:
            import numpy as np

            return np.empty(self.parts, np.float32), np.zeros(self.counters, np.int32)
        import torch  # pyright: ignore[reportMissingImports]

        where = torch.device("cuda", device)
        parts = torch.empty(self.parts, dtype=torch.float32, device=where)
        if stream is not None:  # torch may give memory of its current stream to others too early
            parts.record_stream(torch.cuda.ExternalStream(raw_stream(stream), device=where))
        handle = torch.cuda.current_stream(where).cuda_stream if stream is None else raw_stream(stream)
        return parts, _counters(torch, where, handle)


def _counters(torch: Any, where: Any, stream: int) -> Any:
    """The stream's set of counters."""
    kept = _COUNTERS.get(where.index)
    if kept is None:
        memory = torch.zeros((_SETS, _SET), dtype=torch.int32, device=where)
        if torch.cuda.is_current_stream_capturing():
            return memory[0]  # memory of the graph, zeroed by it
        torch.cuda.current_stream(where).synchronize()  # zero for all streams
        kept = _COUNTERS[where.index] = memory, {}
    memory, sets = kept
    return memory[sets.setdefault(stream, len(sets) % _SETS)]
