"""The assigner's own process with a partitioned record index: what it tags, refuses and answers.

Coordinator, shuffler, assigner and writer are the product's, in one thread, over a broker and a folder in
memory (`world`), whose judge looks after each event. These tests look at what comes out of the assigner.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation.world.actors import StageActor
from tests.simulation.world.script import parse
from tests.simulation.world.settings import TABLE
from tests.simulation.world.world import World
from tidemark.assigner.v1 import assigner_pb2 as pb
from tidemark.epoch_protocol.batches import FILE_ID, KEY, PARTITION, DataOp, decode_batch
from tidemark.index_assigner.assign.lookups import BadLookupError
from tidemark.ledger_client.dead_letters import read_dead_letters
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.refusals import DeadLetterReason

SETUP = "setup type=mor shards=2 lanes=2 inputs=1 assigners=1 interval_ms=0 index=partitioned"
RECORD_INDEX = ".hoodie/metadata/record_index"
ROUNDS, ROUNDS_MAX = 8, 40
INSERT, UPDATE, DELETE = DataOp.INSERT, DataOp.UPDATE, DataOp.DELETE
Tag = tuple[str, str, DataOp]
"""(partition, key, what the writer is to do)."""


class Assigned:
    """A world that goes on event by event. ``places``: what its assigner passed since the last question."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.places: list[str] = []
        self._read: dict[int, int] = {}
        self.play(*["round"] * 3)
        self.watch()

    def watch(self) -> None:
        """From here on it is told where the assigner's process passes."""
        process = self.assigner.process
        passing = process.place

        def place(text: str, writes: bool = False) -> Any:
            self.places.append(text)
            return passing(text, writes)

        process.place = place  # type: ignore[method-assign]

    @property
    def assigner(self) -> StageActor:
        actor = self.world.seats["assigner-0"].current
        assert isinstance(actor, StageActor)
        return actor

    def feed(self, *events: str) -> dict[Tag, str]:
        """What the assigner made of these, with the file group; all of it is committed then."""
        self.play(*(f"feed {event}" for event in events), "hurry")
        for _ in range(ROUNDS_MAX):
            self.play("round")
            if self.world.judge.waits_for(self.world._input_ends()) is None:
                break
        else:
            raise AssertionError(self.world.log[-20:])
        topic, found = TopicNames(TABLE).data, dict[Tag, str]()
        for partition in range(self.world.client.admin().partitions(topic) or 0):
            sent, self._read[partition] = self.world._read(topic, partition, self._read.get(partition, 0))
            for row in [row for each in sent for row in decode_batch(each.value or b"").to_pylist()]:
                tag = (row[PARTITION], row[KEY], DataOp(row["_tm_op"]))
                assert tag not in found
                found[tag] = row[FILE_ID]
        return found

    def lookup(self, *keys: str, **partition: str) -> dict[str, tuple[str, str]]:
        """(partition path, file group) of the keys that have a row; the loop answers."""
        self.places.clear()
        request = pb.LookupRequest(table=TABLE, keys=keys, **partition)
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(self.assigner.service._lookups.Lookup, request, None)
            while not asked.done():
                self.world.step(self.world.seats["assigner-0"])
            answer = asked.result()
        assert [one.key for one in answer.found] == list(keys)
        assert all(one.tier for one in answer.found), "a lane is not open"
        there = [one for one in answer.found if one.tier != "none"]
        return {one.key: (one.partition_path, one.file_id) for one in there}

    def index_reads(self) -> list[str]:
        return [each for each in self.places if RECORD_INDEX in each]

    def refused(self) -> list[tuple[int, str]]:
        """(offset in the input, reason)."""
        letters = read_dead_letters(self.world.client, TABLE, self.world.clock)
        return sorted((letter.offset, letter.reason) for letter in letters)

    def play(self, *events: str) -> None:
        for event in events:
            self.world.apply(tuple(event.split()))
            self.world.clock.advance(0.2)
            self.world._happened()
            assert not self.world.judge.violations, self.world.log[-20:]


@contextmanager
def assigned(words: str) -> Iterator[Assigned]:
    """``words``: of the setup, beside the usual ones."""
    world = World(parse(f"{SETUP} {words}"))
    with world.edges.in_place(world.setup):
        yield Assigned(world)


@pytest.mark.parametrize("format_", ["json", "debezium-json"])
def test_rows_and_deletes_are_those_of_a_partition(format_: str) -> None:
    """Which a record names in a field of its own, or in `after` and `before`."""
    with assigned(f"format={format_}") as at:
        first = at.feed("up k1 d0 5", "up k1 d1 3")
        assert first.keys() == {("d0", "k1", INSERT), ("d1", "k1", INSERT)}
        groups = {day: group for (day, _, _), group in first.items()}
        assert groups["d0"] != groups["d1"]
        both = {(day, "k1", UPDATE): group for day, group in groups.items()}
        assert at.feed("up k1 d0 6", "up k1 d1 4") == both
        # Older than the row of d0, and newer than that of d1: nothing there, an update here, and no move.
        assert at.feed("up k1 d0 5", "up k1 d1 5") == {("d1", "k1", UPDATE): groups["d1"]}
        # Of these deletes the last one alone says from which partition.
        made = at.feed("del k1 8", "null k1", "del k1 9 d1")
        assert made == {("d1", "k1", DELETE): groups["d1"]}
        without = str(DeadLetterReason.DELETE_WITHOUT_PARTITION)
        assert at.refused() == [(6, without), (7, without)]
        # The tombstone is one of d1.
        assert at.feed("up k1 d1 8", "up k1 d0 8") == {("d0", "k1", UPDATE): groups["d0"]}
        assert at.feed("up k1 d1 10").keys() == {("d1", "k1", INSERT)}


def test_a_look_up_is_answered_by_partition_and_without_a_read_where_nobody_has_begun_one() -> None:
    with assigned("units=1") as at:
        made = at.feed("up k1 d0 5", "up k1 d1 6", "up k2 d1 7")
        # An assigner with an empty cache, which has one part of the index open at a time.
        at.play("kill assigner-0", "lose-disk assigner-0", "wait 4000", *["round"] * ROUNDS)
        at.watch()
        for day in ("d0", "d1"):
            found = at.lookup("k1", "k2", "k3", partition=day)
            assert {(day, key, INSERT): group for key, (_, group) in found.items()} == {
                tag: group for tag, group in made.items() if tag[0] == day
            }
            assert {path for path, _ in found.values()} == {day}
            assert at.index_reads()
        assert at.lookup("k1", "k2", "k3", partition="d9") == {}
        assert at.index_reads() == []
        with pytest.raises(BadLookupError, match="name the partition of the keys"):
            at.lookup("k1")
        # Nor is anything read when the first rows of a partition are tagged.
        at.places.clear()
        assert at.feed("up k5 d9 3").keys() == {("d9", "k5", INSERT)}
        tagged = next(number for number, each in enumerate(at.places) if "assign_entry" in each)
        assert not any(RECORD_INDEX in each for each in at.places[:tagged])
