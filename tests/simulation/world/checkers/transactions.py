"""One counting transaction: its data and its index records belong together (G3), its counts add up (G8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.topics import Counted, Entry, Topics

_WORDS: Final = ("inserts", "updates", "deletes", "superseded", "no_ops", "dead_letters")


def faults_of(topics: Topics, offset: int, entry: Entry, ordered: bool) -> Iterator[tuple[str, str]]:
    """(guarantee, what is wrong with the transaction at this ledger offset)."""
    where, counts = f"transaction at {offset}", entry["counts"]
    if counts["input"] != sum(counts[word] for word in _WORDS):
        yield "G8", f"{where}: {counts} does not add up"
    for part in entry["produced"]:
        if part["topic"] in ("data", "index"):
            found = sum(
                len(each) for n, each in _rows(topics, entry, part["topic"]) if n == part["partition"]
            )
            if found != part["records"]:
                yield "G3", f"{where} counts, but {part['topic']}[{part['partition']}] has {found} rows of it"
    index = {topics.identity(row): row for _, rows in _rows(topics, entry, "index") for row in rows}
    goes: dict[str, dict[int, dict[str, Any]]] = {}
    for _, rows in _rows(topics, entry, "data"):
        for row in rows:
            goes.setdefault(topics.identity(row), {})[row["_tm_op"]] = row
    for key, by_op in goes.items():
        named = index.pop(key, None)
        wanted = _index_row(by_op, ordered)
        if named is None:
            if wanted is not None:
                yield "G3", f"{where} has data of {key}, but no index record"
        elif (named["_tm_op"], named["_tm_partition"], named["_tm_file_id"]) != wanted:
            yield "G3", f"{where}: the index record of {key} is {named}, its data says {wanted}"
    if index:
        yield "G3", f"{where} has index records without data: {sorted(index)}"


def count_faults(topics: Topics, counted: Counted, sent: int, broken: int) -> Iterator[tuple[str, str]]:
    """At rest: what was sent, ``broken`` of it, is shuffled and tagged, or a dead letter (G8), and each row
    went through its lane.
    """
    shuffled = sum(entry["records"] for _, entry in counted.shuffled)
    letters = sum(entry["dead_letters"] for _, entry in counted.shuffled)
    kept = topics.dead_letters()
    if len(kept) != broken:
        yield "G8", f"{broken} records cannot be taken, the dead-letter topic has those at {sorted(kept)}"
    for text in topics.in_other_lanes(counted):
        yield "G3", text
    tagged = sum(entry["counts"]["input"] for _, entry in counted.tagged)
    found, wanted = (shuffled, letters, tagged), (sent, broken, sent - broken)
    if topics.is_sharded:
        letters = sum(entry["counts"]["dead_letters"] for _, entry in counted.tagged)
        found, wanted = (shuffled, letters, tagged), (0, broken, sent)
    if found != wanted:
        yield (
            "G8",
            f"{sent} records sent ({broken} broken): {shuffled} shuffled, {letters} dead letters, "
            f"{tagged} tagged",
        )


def _rows(topics: Topics, entry: Entry, role: str) -> list[tuple[int, list[dict[str, Any]]]]:
    return [
        (partition, [row for message in messages for row in decode.batch_rows(message.value or b"")])
        for partition, messages in topics.named(entry, role)
    ]


def _index_row(by_op: dict[int, dict[str, Any]], ordered: bool) -> tuple[int, str, str] | None:
    """(op, partition, file id) that the index record of a key must have; None: none is needed."""
    insert, update, delete = by_op.get(0), by_op.get(1), by_op.get(2)
    goes = insert or update or delete
    assert goes is not None
    at = (goes["_tm_partition"], goes["_tm_file_id"])
    if insert is not None:
        return (0, *at)
    if update is not None:
        return (2, *at) if ordered else None
    return (1, *at)
