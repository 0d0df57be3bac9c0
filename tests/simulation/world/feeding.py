"""The verb `feed` of a script: input records, sound ones and others."""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

from tests.simulation.world.checkers.layout import SUB, zone_of
from tests.simulation.world.checkers.model import Change, Row
from tests.simulation.world.checkers.partitioned import lane_of
from tests.simulation.world.deadly_input import DECODED
from tests.simulation.world.edges import INDEXED_BYTES_MAX
from tests.simulation.world.settings import INPUT, NOTE, inputs_of
from tests.simulation.world.town import Town
from tidemark.epoch_protocol.lanes import shuffle_lane
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.stream_runtime.kafka.ports import TopicPartition

_KEY_BYTES: Final = INDEXED_BYTES_MAX - 1
"""Of a record key that is not too long itself, and is with a dollar and a digit."""
_DAY: Final = "d0"


class Feeding(Town):
    """Who sends records, and knows which of them the table has to hold."""

    def _do_feed(self, kind: str, key: str = "", *words: str) -> None:
        encoding = self._encoding
        if kind == "bad":
            self._broken += 1
            self._produce("", None, encoding.broken())
        elif kind == "long":
            self._feed_long(key)
        elif kind == "lost":
            place, first, last = self._feed_unread(key, *words)
            self.broker.faults.make_unreadable(place, first, last)
        elif kind == "deadly":
            when = words[1] if len(words) > 1 else DECODED
            self.deadly.add(*self._feed_unread(key, *words[:1]), when)
        elif kind == "up":
            day, at, number = words[0], int(words[1]), self.ground.records
            row = Row(self.layout.path(day), at, number, self.layout.note(number, self._has_grown))
            document = {**self._row_fields(key, day), "ts": at, "v": number}
            if row.note is not None:
                document[NOTE] = row.note
            self._send(Change(self._identity(key, day), row, at), None, encoding.value(document, False))
        elif kind == "del":
            self._feed_delete(key, int(words[0]), *words[1:])
        elif encoding.is_debezium and self._deletes_last(key):
            pass
        elif self.layout.deletes_name_partition:
            self._broken += 1
            self.reached["delete without a partition"] += 1
            self._produce(self._identity(key), encoding.key(key), None)
        else:
            self._send(Change(self._identity(key), None, None), encoding.key(key), None)

    def _identity(self, key: str, day: str = _DAY) -> str:
        return self.layout.identity(self.layout.path(day), self.layout.record_key(key))

    def _feed_delete(self, key: str, at: int, day: str | None = None) -> None:
        """By a delete field; with a day it names the partition of its row."""
        if day is None and self.layout.deletes_name_partition:
            self._broken += 1
            self.reached["delete without a partition"] += 1
            value = self._encoding.value({**self._key_fields(key), "ts": at}, True)
            self._produce(self._identity(key), None, value)
            return
        fields = self._key_fields(key) if day is None else self._row_fields(key, day)
        change = Change(self._identity(key, day or _DAY), None, at if self.setup.ordered else None)
        self._send(change, None, self._encoding.value({**fields, "ts": at}, True))

    def _feed_long(self, key: str) -> None:
        """A row whose key and value are too long for an entry of the secondary index, and no longer: it is
        refused where the index is known, which takes a second.
        """
        if self.clock.monotonic_s() > self._indexed_s:
            self._broken += 1
            name = key.ljust(_KEY_BYTES - len(self.layout.record_key("")), "x")
            document = {**self._row_fields(name, _DAY), "ts": 1, "v": 0}
            self._produce(self._identity(name), None, self._encoding.value(document, False))
            self.reached["value too long for the index"] += 1

    def _key_fields(self, key: str) -> dict[str, object]:
        return {"id": key, "sub": SUB}

    def _row_fields(self, key: str, day: str) -> dict[str, object]:
        return {**self._key_fields(key), "day": day, "zone": zone_of(day)}

    def _deletes_last(self, key: str) -> bool:
        """Whether the key's newest event is a delete: a null value behind it may only repeat it."""
        record_key, key_of = self.layout.record_key(key), self.layout.key_of
        last = next((each for each in reversed(self._sent) if key_of(each.key) == record_key), None)
        return last is not None and last.row is None

    def _feed_unread(self, key: str, count: str = "1") -> tuple[TopicPartition, int, int]:
        """A record batch that nobody can read: one dead letter, once an operator has it passed over."""
        self._broken += 1
        value = self._encoding.value({**self._row_fields(key, _DAY), "ts": 0, "v": 0}, False)
        places = [self._produce(self._identity(key), None, value) for _ in range(int(count))]
        (place, first), (_, last) = places[0], places[-1]
        self._lost.append((shuffle_lane(*place), first, last))
        return place, first, last

    def _send(self, change: Change, key: bytes | None, value: bytes | None) -> None:
        self.ground.records += 1
        self._sent.append(change)
        place, offset = self._produce(change.key, key, value)
        if self.setup.is_sharded:
            self._by_lane[place.partition].append((offset, change))

    def _produce(self, identity: str, key: bytes | None, value: bytes | None) -> tuple[TopicPartition, int]:
        record_key = self.layout.key_of(identity)
        hashed, topics = zlib.crc32(record_key.encode()), inputs_of(self.setup)
        place = TopicPartition(topics[hashed // 64 % len(topics)], hashed % self.setup.inputs)
        if self.setup.is_sharded:
            place = TopicPartition(INPUT, self._lane(identity, record_key))
        # Whoever feeds the input waits until the broker is back; here that is at once.
        running, self.broker._running = self.broker._running, True
        offset = self.broker.log(place).end
        self.broker.produce(place, key, value, ())
        self.broker._running = running
        return place, offset

    def _lane(self, identity: str, record_key: str) -> int:
        if self.setup.by_partition:
            return lane_of(self.layout.path_of(identity), record_key, self.setup.lanes)
        return int(record_index_shard(pa.array([record_key]), self.setup.shards)[0]) % self.setup.lanes
