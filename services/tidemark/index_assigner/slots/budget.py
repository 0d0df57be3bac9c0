"""How much input one transaction of a slot may take."""

from __future__ import annotations

from typing import NamedTuple


class Budget(NamedTuple):
    """How much one poll may hand out, over all lanes. A single batch may exceed ``bytes``."""

    records: int
    bytes: int
