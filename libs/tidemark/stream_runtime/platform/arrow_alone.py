"""Keeps PyArrow from importing pandas in processes that do not use it.

pandas is installed because PySpark needs it, and PyArrow imports it when it makes its first array. That costs
a service a third of a second and 30 MiB at its start. PyArrow looks for pandas only once, so it is enough to
hide pandas at that moment. Code that asks for pandas itself (`to_pandas`, `import pandas`) still gets it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "pandas"


class _NotNow:
    """An import finder that says that there is no pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _NAME:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def use_arrow_alone() -> None:
    """Makes PyArrow's first array while pandas is hidden. Call it before other code makes one. It does
    nothing if pandas is imported already.
    """
    if _NAME in sys.modules:
        return
    not_now = _NotNow()
    sys.meta_path.insert(0, not_now)
    try:
        import pyarrow as pa

        # Both parts of PyArrow look for pandas now: the C++ part when it converts Python values.
        pa.array([None])
    finally:
        sys.meta_path.remove(not_now)
