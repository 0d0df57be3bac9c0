"""The kinds of index that tables of the campaign have, besides column stats, which all have.

plain        one record index for the whole table, no other
kept         and a secondary index, which all epochs keep
remade       and one that is dropped, made and repaired all the time
partitioned  a record index that is divided by data partition, which allows no secondary index
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from tests.chaos.index_commands import KEPT, NONE, REMADE

GLOBAL: Final = "global"
PARTITIONED: Final = "partitioned"
RECORD_INDEX: Final = (GLOBAL, PARTITIONED)


class IndexKind(NamedTuple):
    """`record_index`: `table.index.kind`; `secondary`: one of `index_commands.SECONDARY`."""

    name: str
    record_index: str = GLOBAL
    secondary: str = NONE


PLAIN: Final = IndexKind("plain")
KINDS: Final = (
    PLAIN,
    IndexKind(KEPT, secondary=KEPT),
    IndexKind(REMADE, secondary=REMADE),
    IndexKind(PARTITIONED, PARTITIONED),
)
# Half of them plain: with the other kinds `make test` takes up to 100 s longer.
_DRAWN: Final = (PLAIN, PLAIN, *KINDS)
_BY_NAME: Final = {kind.name: kind for kind in KINDS}
_ROTATION: Final[Sequence[IndexKind]] = [
    _BY_NAME[each] for each in (REMADE, PARTITIONED, KEPT, REMADE, PLAIN.name)
]
"""Five rounds: table types change every round, every third has three brokers, `services serve` comes within
four. Five has no divisor in common with these, so each kind meets all. The kind to which most is done
comes twice.
"""


def kind_of_round(number: int) -> IndexKind:
    """`number`: from 1 on."""
    return _ROTATION[(number - 1) % len(_ROTATION)]


def kind_of(record_index: str | None, secondary: str | None) -> IndexKind | None:
    """The kind that options fix; what is left out of them is that of `PLAIN`. None: they fix none."""
    if record_index is None and secondary is None:
        return None
    wanted = (record_index or GLOBAL, secondary or NONE)
    return next(kind for kind in KINDS if (kind.record_index, kind.secondary) == wanted)


def drawn_kind(name: str | None, seed: int) -> IndexKind:
    """That of the name, or, without one, that which the seed draws."""
    return _BY_NAME[name] if name else Random(f"index of {seed}").choice(_DRAWN)
