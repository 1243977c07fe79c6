"""Ready kernels written in the language, each with its entry for torch tensors and NumPy arrays. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mimw.kernels.gemm_config import GemmConfig
    from mimw.kernels.matrix_product import matmul

__all__ = ["GemmConfig", "matmul"]

_HOME = {"GemmConfig": "mimw.kernels.gemm_config", "matmul": "mimw.kernels.matrix_product"}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'mimw.kernels' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value
