"""Records that are refused for their memory keep their place, and what lies behind them is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.unit.index_assigner.input.test_sharded_input_source import keys_for, produce, source
from tests.unit.index_assigner.shuffle_world import LANES, PLENTY, World, order, rules
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.record_formats.errors import InputWaitsError
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition


def starving(world: World) -> None:
    """One row at a time has room, and every record that holds a note is too large."""
    world.keyer = RecordKeyer(
        replace(rules(), record_bytes_max=8 << 20, row_bytes_max=10_000, rows_bytes_max=1)
    )


REFUSED = order("refused", note="x" * 900_000)


def stage_of(world: World) -> ShuffleWork:
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 16 << 20, 8 << 20)
    return ShuffleWork(world.client, world.keyer, settings, world.clock)


def letters_of(found: Iterable[OutgoingMessage]) -> list[list[str]]:
    names = ("tm-reason", "tm-topic", "tm-partition", "tm-offset")
    return [[(dict(each.headers)[name] or b"").decode() for name in names] for each in found]


def test_a_stage_whose_records_are_all_refused_goes_on_behind_them() -> None:
    world = World()
    starving(world)
    place = TopicPartition("orders-in", 1)
    for value in [*[REFUSED] * 5, order("k")]:
        world.broker.produce(place, None, value, ())
    stage = stage_of(world)
    stage.start({"orders-in:1": 0})
    letters: list[list[str]] = []
    reached = rows = 0
    for at in range(100):
        if not stage.gather(PLENTY, 0.0).records:
            continue
        prepared = stage.prepare(f"n{at}")
        assert prepared is not None
        (part,) = prepared.consumed
        assert (part.start, part.next > reached) == (reached, True)
        reached = part.next
        dead = [each for each in prepared.messages if each.topic_partition.topic == world.names.dead_letter]
        letters += letters_of(dead)
        rows += len(prepared.messages) - len(dead)
    assert (reached, rows) == (6, 1)
    assert letters == [["record-too-large", "orders-in", "1", str(offset)] for offset in range(5)]


def test_a_lane_whose_records_are_all_refused_goes_on_behind_them() -> None:
    world = World()
    starving(world)
    (key,) = keys_for(1, 1)
    produce(world, 1, *[REFUSED] * 5, order(key))
    reader = source(world)
    reader.assign("1", 0)
    letters: list[list[str]] = []
    keys: list[str] = []
    reached = 0
    for _ in range(100):
        for each in reader.poll(PLENTY, 0.0):
            assert (each.start, each.next > reached) == (reached, True)
            reached = each.next
            letters += letters_of(each.dead_letters)
            keys += [key for batch in each.batches for key in batch.column("_tm_key").to_pylist()]
    assert (reached, keys) == (6, [key])
    assert letters == [["record-too-large", "orders-in", "1", str(offset)] for offset in range(5)]


def test_what_a_transaction_left_of_lanes_that_are_gone_holds_nobody_up() -> None:
    world = World()
    starving(world)
    for lane in range(2):
        for at in range(9):
            value = order(f"k{lane}-{at}", note="x" * 9_000, filler="y" * 900_000)
            world.broker.produce(TopicPartition("orders-in", lane), None, value, ())
    stage = stage_of(world)
    stage.start({"orders-in:0": 0})
    while not stage.gather(PLENTY, 0.0).records:
        pass
    assert stage.prepare("n") is not None
    assert stage.gather(PLENTY, 0.0).drained
    stage.drop(["orders-in:0"])
    stage.start({"orders-in:1": 0})
    assert any(stage.gather(PLENTY, 0.0).records for _ in range(10))
    prepared = stage.prepare("m")
    assert prepared is not None
    assert [part.lane for part in prepared.consumed] == ["orders-in:1"]


class Waiting:
    """A keyer that waits at its second call; `taken` are the records of each other call."""

    def __init__(self, inner: RecordKeyer) -> None:
        self._inner, self.calls = inner, 0
        self.rows_bytes_max = inner.rows_bytes_max

    def key_records(self, given: list[Message]) -> KeyedRows:
        self.calls += 1
        if self.calls == 2:
            raise InputWaitsError("the registry does not answer")
        return self._inner.key_records(given)


def test_a_lane_that_waits_loses_nothing_of_those_before_it() -> None:
    world = World()
    world.keyer = Waiting(RecordKeyer(replace(rules(), rows_bytes_max=1 << 30)))  # type: ignore[assignment]
    keys = {lane: keys_for(lane, 3) for lane in range(LANES)}
    for lane, found in keys.items():
        produce(world, lane, *map(order, found))
    reader = source(world)
    for lane in keys:
        reader.assign(str(lane), 0)
    assert _keys_of(reader) == keys, "those in front of it are handed out at once"


def _keys_of(reader: ShardedInputSource) -> dict[int, list[str]]:
    """By lane, of ten polls."""
    seen: dict[int, list[str]] = {}
    for _ in range(10):
        for each in reader.poll(PLENTY, 0.0):
            assert each.start == len(seen.get(int(each.lane), []))
            found = [key for batch in each.batches for key in batch.column("_tm_key").to_pylist()]
            seen.setdefault(int(each.lane), []).extend(found)
    return seen
