"""The soak's input: each way of being malformed is refused for its reason; shares are right, keys are few."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.input_model import DELETE_FIELD, SCHEMA
from tests.soak.malformed import WAYS, KeyAndValue
from tests.soak.stream import MALFORMED_SHARE, SoakStream
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import Message

ROW = {"id": "key-1", "region": "region-1", "ts": 5, "name": "a", "amount": 0.5}


def refusals(records: Sequence[KeyAndValue]) -> Counter[str]:
    """Why the shuffle stage would refuse records, reason -> how many."""
    schema = TableSchema.from_avro(json.dumps(SCHEMA), "orders")
    generator = KeyGenerator.for_table(schema, ["id"], ["region"])
    rules = RecordRules(schema, generator, OrderingField.of(schema, "ts"), 4, 4, 4 << 20, DELETE_FIELD)
    messages = [Message("soak-input", 0, number, *record) for number, record in enumerate(records)]
    return Counter(each.reason.value for each in RecordKeyer(rules).key_records(messages).refused)


def test_there_are_twenty_ways():
    assert len(WAYS) == 20
    assert len({spoil(dict(ROW)) for _, spoil in WAYS}) == 20
    assert {reason for reason, _ in WAYS} <= {each.value for each in DeadLetterReason}


@pytest.mark.parametrize("number", range(20))
def test_each_way_is_refused_for_its_reason(number: int):
    reason, spoil = WAYS[number]
    assert refusals([spoil(dict(ROW))]) == {reason: 1}


def test_stream_has_its_share_of_each_way_and_no_more_keys():
    stream = SoakStream(seed=3, keys=50, partitions=4)
    records = list(stream.records(8_000))
    assert stream.sent == len(records) == 8_000
    assert abs(stream.malformed.total() / 8_000 - MALFORMED_SHARE) < 0.01
    assert set(stream.malformed) == {reason for reason, _ in WAYS}
    assert 0 < len(stream.model.rows) <= 50
    assert refusals([record for _, record in records]) == stream.malformed
