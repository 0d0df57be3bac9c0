"""How much input one transaction of a slot may take."""

from __future__ import annotations

from typing import NamedTuple


class Budget(NamedTuple):
    """How much one poll may return over all lanes. A single batch larger than ``bytes`` is still returned."""

    records: int
    bytes: int
