"""Computes the rows that the table must have, from the events alone, by sorting.

Tidemark applies records one by one against an index. The model instead ranks all events of all keys at once
(pandas) and takes the highest of each key. The two share no code, only the rules of ARCHITECTURE.md
(guarantee G1 and section 3.2):

- The highest ordering value wins; of equal ones the event that arrived last.
- A delete is an event like any other. When it wins there is no row: its ordering value becomes the
  tombstone's, and no tombstone expires within the demo.
- A null value has the ordering value of the row that is stored when it arrives, which is the highest that
  arrived before it. If none arrived before, it deletes nothing and ranks below every other event.
- Broken records are no events.

The order of arrival is that of the stream. Kafka keeps it for each key, because all records of a flight have
the same Kafka key and so are in one partition. Only null values depend on it: all other events of a flight
differ in ordering value, except repetitions, which are equal in every field.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.demo.events import ORDERING_FIELD, PARTITION_FIELD, TABLE_SCHEMA, key_texts

_NOTHING_BEFORE = np.iinfo(np.int64).min


@dataclass(frozen=True)
class ModelCounts:
    """The model's counts. ``rows``: live rows; ``deleted``: keys that had a row and have none at the end;
    ``stale``: events older than one that had arrived; ``moves``: changes of partition; ``moved_rows``: live
    rows that are not in the partition of their scheduled day; ``dead_letters``: broken records.
    """

    records: int
    rows: int
    partitions: int
    deleted: int
    stale: int
    moves: int
    moved_rows: int
    dead_letters: int


@dataclass(frozen=True)
class LifeEvent:
    """One record of a key: its number in the stream, its content, and its effect on the table."""

    arrival: int
    event_time_us: int | None
    status: str
    day: str | None
    effect: str


class TableModel:
    """The expected table for events of ``EVENT_SCHEMA`` in order of arrival. ``rows`` are its rows.

    It keeps all events in memory, about 150 bytes each.
    """

    def __init__(self, event_tables: Iterable[pa.Table]) -> None:
        parts, arrivals, records = [], [], 0
        for table in event_tables:
            sound = pc.equal(table["broken"], 0)
            arrivals.append(records + np.flatnonzero(sound.to_numpy()))
            parts.append(table.filter(sound))
            records += table.num_rows
        self._events = pa.concat_tables(parts).combine_chunks()
        del parts
        self._keys = key_texts(self._events).dictionary_encode()
        self._facts = _facts(self._events, self._keys, np.concatenate(arrivals))
        self._winners = _winners(self._facts)
        live = np.sort(self._winners.index[~self._winners["gone"]].to_numpy())
        self.rows: pa.Table = self._events.take(pa.array(live)).select(TABLE_SCHEMA.names)
        self.counts = self._count(records)

    def _count(self, records: int) -> ModelCounts:
        moved_rows = pc.not_equal(self.rows[PARTITION_FIELD], self.rows["flight_date"])
        gone = self._winners[self._winners["gone"]]
        had_rows = self._facts.loc[~self._facts["gone"] & self._facts["applied"], "key"].unique()
        return ModelCounts(
            records=records,
            rows=self.rows.num_rows,
            partitions=pc.count_distinct(self.rows[PARTITION_FIELD]).as_py(),
            deleted=int(gone["key"].isin(had_rows).sum()),
            stale=int((~self._facts["applied"]).sum()),
            moves=int(self._facts["moves"].sum()),
            moved_rows=int(pc.sum(moved_rows, min_count=0).as_py()),
            dead_letters=records - len(self._facts),
        )

    def moved_key(self) -> str | None:
        """A flight whose row is not in its scheduled day's partition: the one with most moves and stale
        events.
        """
        moved = pc.not_equal(self._events[PARTITION_FIELD], self._events["flight_date"]).to_numpy()
        return self._most_eventful(self._winners[~self._winners["gone"] & moved[self._winners.index]]["key"])

    def deleted_key(self) -> str | None:
        """A flight whose row was deleted: of those the one with most moves and stale events."""
        had_rows = self._facts.loc[~self._facts["gone"] & self._facts["applied"], "key"]
        gone = self._winners.loc[self._winners["gone"], "key"]
        return self._most_eventful(gone[gone.isin(had_rows)])

    def _most_eventful(self, keys: pd.Series) -> str | None:
        if keys.empty:
            return None
        lives = self._facts[self._facts["key"].isin(keys)].groupby("key")
        score = lives["moves"].sum() * 2 + (~self._facts["applied"]).groupby(self._facts["key"]).sum()
        ranked = score[score.index.isin(keys)].sort_index().sort_values(kind="stable", ascending=False)
        return str(self._keys.dictionary[int(ranked.index[0])].as_py())

    def life(self, key: str) -> list[LifeEvent]:
        """All records of a record key in order of arrival; empty for an unknown key."""
        code = self._keys.dictionary.index(key).as_py()
        rows = self._facts.index[self._facts["key"] == code].to_numpy()
        events = self._events.take(pa.array(rows)).to_pylist()
        return _tell(events, self._facts.loc[rows, "arrival"].tolist())


def _facts(events: pa.Table, keys: pa.DictionaryArray, arrivals: npt.NDArray[np.intp]) -> pd.DataFrame:
    """One row per sound event: key, arrival, effective ordering value, day, and whether it is a delete
    (gone), is not stale (applied), and moves the row.
    """
    null_value = events["null_value"].to_numpy()
    facts = pd.DataFrame(
        {
            "key": keys.indices.to_numpy(),
            "arrival": arrivals,
            "ordering": np.where(null_value, _NOTHING_BEFORE, events[ORDERING_FIELD].to_numpy()),
            "gone": null_value | events["deleted"].to_numpy(),
        }
    )
    # The running maximum per key is the ordering value of the stored row. A null value has the lowest number
    # of all so far, so it takes its predecessors' maximum: of ordering values [5, lowest] of a key `highest`
    # is [5, 5].
    highest = facts.groupby("key")["ordering"].cummax()
    facts["ordering"] = np.where(null_value, highest, facts["ordering"])
    facts["applied"] = facts["ordering"] >= highest
    facts["day"] = events[PARTITION_FIELD].combine_chunks().dictionary_encode().indices.to_numpy()
    applied = facts[facts["applied"]]
    # `shift` puts beside each applied event the one before it of the same key: days [1, 2] become [none, 1].
    # The second event moves the row, because its day differs and a row was there.
    before = applied.groupby("key")[["day", "gone"]].shift()
    moves = (before["day"] != applied["day"]) & before["gone"].eq(False) & ~applied["gone"]
    facts["moves"] = moves.reindex(facts.index, fill_value=False)
    return facts


def _winners(facts: pd.DataFrame) -> pd.DataFrame:
    """The winning event of each key: the highest ordering value, of equal ones the last to arrive.

    The sort is stable, so equal ordering values stay in order of arrival, and `keep="last"` takes the last
    one.
    """
    return facts.sort_values("ordering", kind="stable").drop_duplicates("key", keep="last")


def _tell(events: list[dict[str, object]], arrivals: list[int]) -> list[LifeEvent]:
    """The events of one key with their effects, found by applying them one after the other."""
    life: list[LifeEvent] = []
    day: str | None = None
    newest: int | None = None
    for event, arrival in zip(events, arrivals, strict=True):
        if event["null_value"]:
            effect = "deleted" if day is not None else "nothing to delete"
            life.append(LifeEvent(arrival, None, "null value", None, effect))
            day = None
            continue
        at, new_day = int(str(event[ORDERING_FIELD])), str(event[PARTITION_FIELD])
        if newest is not None and at < newest:
            effect = "ignored: older than what is known"
        elif event["deleted"]:
            effect, newest, day = "deleted", at, None
        else:
            effect = _change(day, new_day)
            newest, day = at, new_day
        life.append(LifeEvent(arrival, at, str(event["status"]), new_day, effect))
    return life


def _change(day: str | None, new_day: str) -> str:
    if day is None:
        return f"inserted into {new_day}"
    return "updated in place" if day == new_day else f"moved from {day} to {new_day}"
