"""What `tests.hostile_records` makes, through the stage that reads it: each record is a row that the next
stage can read, or a dead letter with its reason. The integration test sends the same through a broker.
"""

from __future__ import annotations

import json
import random
import sys
from itertools import count

import pytest

from tests.commit_seed import seed_of_run
from tests.hostile_records import Hostile, hostile_records, row
from tests.hostile_values import HOSTILE_SCHEMA, unfit_number, with_columns
from tests.raw_producer import RawRecord
from tidemark.epoch_protocol.batches import decode_batch
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.shuffle_batch import encode_lanes
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import Message

SCHEMA = TableSchema.from_avro(json.dumps(HOSTILE_SCHEMA))
DRAWN = seed_of_run("TIDEMARK_HOSTILE_SEED", "records")
BATCH = 50


def keyer(*key: str) -> RecordKeyer:
    generator = KeyGenerator.for_table(SCHEMA, list(key), ["region"])
    return RecordKeyer(RecordRules(SCHEMA, generator, OrderingField.of(SCHEMA, "ts"), 4, 4, 4 << 20))


def messages(records: list[RawRecord]) -> list[Message]:
    return [Message("in", 0, at, each.key, each.value) for at, each in enumerate(records)]


# By index: a drawn number in a test's id would differ between workers.
@pytest.mark.parametrize("drawn", [False, True])
def test_hostile_records_are_rows_that_can_be_read_or_dead_letters(drawn: bool) -> None:
    seed = DRAWN if drawn else 7
    sys.stderr.write(f"hostile records of seed {seed} (TIDEMARK_HOSTILE_SEED replays it)\n")
    dice, ids, made_of = random.Random(seed), count(), keyer("id")
    for _ in range(20):
        sent = hostile_records(dice, BATCH, lambda: f"good-{next(ids)}")
        behind = Hostile(
            "good record behind", RawRecord(json.dumps(row("behind")).encode()), frozenset(), "behind"
        )
        sent.append(behind)
        keyed = made_of.key_records(messages([each.record for each in sent]))
        refused = {each.position: each.reason.value for each in keyed.refused}
        wrong = [
            (each.kind, each.record.value, refused.get(at))
            for at, each in enumerate(sent)
            if refused.get(at, "") not in (each.reasons or {""})
        ]
        assert not wrong, f"seed {seed}: {wrong[:3]}"
        read = [decode_batch(each.value) for each in encode_lanes(keyed, 1 << 20, 8 << 20).batches]
        keys = {key for batch in read for key in batch.column("_tm_key").to_pylist()}
        assert {each.row for each in sent if each.row} <= keys, f"seed {seed}"


@pytest.mark.parametrize("drawn", [False, True])
def test_a_key_with_a_hostile_decimal_is_refused(drawn: bool) -> None:
    seed = DRAWN if drawn else 7
    sys.stderr.write(f"hostile keys of seed {seed} (TIDEMARK_HOSTILE_SEED replays it)\n")
    dice = random.Random(seed)
    numbers = [unfit_number(dice) for _ in range(300)]
    upserts = [RawRecord(with_columns(row("a"), {"price": number})) for number in numbers]
    deletes = [RawRecord(None, f'{{"id":"a","price":{number}}}'.encode()) for number in numbers]
    good = RawRecord(None, b'{"id":"a","price":0e-9999999}')
    keyed = keyer("id", "price").key_records(messages([*upserts, *deletes, good]))
    found = {each.position: each.reason for each in keyed.refused}
    expected = [DeadLetterReason.MISTYPED_FIELD] * len(numbers) + [DeadLetterReason.BAD_KEY] * len(numbers)
    wrong = [(at, numbers[at % 300], found.get(at)) for at in range(600) if found.get(at) is not expected[at]]
    assert not wrong, f"seed {seed}: {wrong[:3]}"
    assert keyed.rows.column("_tm_key").to_pylist() == ["id:a,price:0.00"]
