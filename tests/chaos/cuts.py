"""How the connection between two parts is cut, by the names that schedules use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.faults.link import Link, Way

CUTS: Final[Mapping[str, Callable[[Link], None]]] = {
    "both_ways": lambda link: link.black_hole(),
    # From the part that connects to the one that listens, and back.
    "requests": lambda link: link.black_hole(Way.TO_SERVER),
    "answers": lambda link: link.black_hole(Way.TO_CLIENT),
    "refused": lambda link: link.refuse(),
}
