"""The kernel zoo: distinct kernels by family, each with run cases that every engine executes."""

from __future__ import annotations

import pytest

from tests.zoo import casts, control, elementwise, matmul, memory, mixed, reductions, rows, shapes
from tests.zoo.registry import ENTRIES

FAMILIES = (casts, control, elementwise, matmul, memory, mixed, reductions, rows, shapes)

KERNELS = {entry.run(0).kernel for entry in ENTRIES}
"""The distinct kernels."""

ALL = [pytest.param(entry, i, id=name) for entry in ENTRIES for i, name in entry.ids()]
"""Every run case, as parameters (entry, index of the variant)."""

PTX_SM80 = [param for param in ALL if param.values[0].sm80]
"""Those that run for sm_80 as well."""
