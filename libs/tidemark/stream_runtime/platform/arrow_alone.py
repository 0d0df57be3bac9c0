"""PyArrow without pandas, for processes that have no use for it.

PySpark needs pandas, so it is installed, and PyArrow imports whatever pandas it finds with the first array
that it makes: a third of a second and 30 MiB of a service's start. PyArrow looks for it once. Whoever asks
for pandas itself (`to_pandas`, `import pandas`) still gets it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "pandas"


class _NotNow:
    """A finder that has no pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _NAME:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def use_arrow_alone() -> None:
    """Call it before anything makes an array; changes nothing where pandas is imported already."""
    if _NAME in sys.modules:
        return
    not_now = _NotNow()
    sys.meta_path.insert(0, not_now)
    try:
        import pyarrow as pa

        # Both halves of PyArrow look now: the one in C++ when it converts.
        pa.array([None])
    finally:
        sys.meta_path.remove(not_now)
