"""Names of the language that have no meaning here yet: using one is a clear error at the user's line."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.language.errors import fail

_TRITON = "dot_scaled map_elementwise float8e4b15 parallel_range"
_TLX = (
    "tmem_copy update_tensor_descriptor async_dot_scaled tcgen05_commit clc_create_context clc_producer "
    "clc_consumer warp_pipeline_stage release_layout require_layout dump_layout assert_same_layout shared_linear_layout_encoding "
    "tensor_memory_layout_encoding warp_any warp_redux num_warps vote_ballot_sync stoch_round"
)

FEATURES: dict[str, str] = dict.fromkeys((_TRITON + " " + _TLX).split(), "it is")
"""Known names to what their error says is missing."""


class NotYet:
    """Stands for a name of the language that is not there yet; any use is refused."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse(self.name)


def refuse(name: str) -> Any:
    """Raise the error for a name that is not there yet."""
    fail("not-yet", f"ml.{name}: {FEATURES[name]} not there yet")


def find(name: str) -> NotYet:
    """The stand-in for a known name; inside a kernel the error at once. AttributeError for unknown names."""
    if name not in FEATURES:
        raise AttributeError(name)
    try:
        current_builder()
    except Exception:
        return NotYet(name)
    return refuse(name)
