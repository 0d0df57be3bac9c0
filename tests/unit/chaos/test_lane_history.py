"""The judge of the kill campaign's views sees what it must see: torn, doubled, old and unknown rows."""

from __future__ import annotations

from random import Random

import pytest

from tests.chaos.events import Arrived, decode
from tests.chaos.lane_history import InputHistory, LaneHistory, Seen, TornViewError, shard_of
from tests.input_model import InputModel, RandomStream, Upsert, messages
from tidemark.hudi_format.record_index_hash import record_index_shard


def upsert(key: str, ts: int) -> Upsert:
    return Upsert({"id": key, "region": "r", "ts": ts, "name": f"{key}@{ts}", "amount": None})


def test_every_prefix_of_a_stream_is_found_and_moves_forward():
    events = list(RandomStream(7, keys=20).events(300))
    for step in (1, 7):
        lane, model = LaneHistory("lane"), InputModel()
        for event in events:
            lane.add(event)
        for number in range(0, len(events), step):
            seen = lane.check(model.rows)
            assert seen.least <= number <= seen.most
            model.apply(events[number : number + step])


@pytest.mark.parametrize("seed", range(20))
def test_view_of_half_a_commit_is_torn(seed: int):
    random = Random(seed)
    events = [upsert(f"key-{n % 10}", n) for n in range(200)]
    lane = LaneHistory("lane")
    before, after = InputModel(), InputModel()
    for event in events:
        lane.add(event)
    cut = random.randrange(40, 100)
    before.apply(events[:cut])
    after.apply(events[: cut + 30])
    torn = {
        key: (after if number % 2 else before).rows[key] for number, key in enumerate(sorted(before.rows))
    }
    with pytest.raises(TornViewError, match="no number of events"):
        lane.check(torn)


def test_lost_row_unknown_row_and_row_that_never_was_are_torn():
    history = InputHistory(shards=4, lanes=2)
    history.add(Arrived(0, n, upsert(f"key-{n}", n)) for n in range(20))
    rows = history.rows()
    assert history.check(rows) == Seen(20, 20)
    with pytest.raises(TornViewError):
        history.check({key: row for key, row in rows.items() if key != "key-3"})
    with pytest.raises(TornViewError, match="nobody ever sent"):
        history.check({**rows, "key-99": rows["key-1"]})
    with pytest.raises(TornViewError, match="never was"):
        history.check({**rows, "key-1": {**rows["key-1"], "amount": 1.0}})


def test_view_that_goes_back_is_torn():
    lane = LaneHistory("lane")
    early = InputModel()
    for n in range(30):
        lane.add(upsert("key", n))
    early.apply([upsert("key", 5)])
    lane.check(lane.model.rows)
    with pytest.raises(TornViewError, match="went back"):
        lane.check(early.rows)


def test_hash_is_the_one_that_hudi_spreads_keys_by():
    keys = [f"key-{n}" for n in range(2_000)]
    for shards in (1, 4, 7):
        assert [shard_of(key, shards) for key in keys] == list(record_index_shard(keys, shards))


def test_records_of_the_stream_are_read_back_as_they_were_made():
    events = list(RandomStream(3, keys=50).events(500))
    for event in events:
        ((key, value),) = [record for records in messages([event], 2).values() for record in records]
        assert decode(key, value) == event
    assert decode(b"k", b"{ not json") is None
