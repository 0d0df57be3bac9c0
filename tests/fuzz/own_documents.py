"""The documents that Tidemark keeps with a table as targets, each by the reader that production uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from testing.memory_storage import InMemoryStorage
from tests.fuzz.target import Target
from tidemark.commit_coordinator.calls import reader_death_record
from tidemark.commit_coordinator.calls.reader_death_record import READER_DEATHS
from tidemark.commit_coordinator.input import starts as input_starts
from tidemark.commit_coordinator.input.watch import read_record
from tidemark.commit_coordinator.offline import new_ledger_inputs
from tidemark.commit_coordinator.opening import table_creation, topics_setup
from tidemark.commit_coordinator.opening.configured_columns import CONFIGURED_COLUMNS, _recorded
from tidemark.commit_coordinator.opening.ledger_record import (
    LEDGER_RECORD,
    LedgerRecord,
    read_ledger_record,
)
from tidemark.config import InputStart
from tidemark.epoch_protocol.input_topics import (
    INPUT_TOPICS_PATH,
    InputTopic,
    InputTopics,
    encode_input_topics,
)
from tidemark.epoch_protocol.state import Committed
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.documents import read_document
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.hudi_format.table_services.operations import (
    CleanPlan,
    CompactionPlan,
    MergeOperation,
    MergeOutcome,
    decode_clean,
    decode_outcomes,
    decode_plan,
    encode_outcomes,
    encode_plan,
)
from tidemark.index_assigner.input.positions import recorded_starts
from tidemark.index_assigner.input.same_topics import stale_by_record
from tidemark.ledger_client.table_identity import SERVED_BY, TABLE_ID, known_ledger_id, shown_owner

_INSTANT: Final = "20260101000000000"
_COUNTS: Final = b'{"orders": 4, "orders.ledger": 1}'
_STARTS: Final = b'{"orders:0": 17, "orders:1": 4}'
_DEATHS: Final = b'{"deaths":{"shuffle":{"orders:0":[7,2]}},"serving":true}'


def own_documents() -> list[Target]:
    """None is counted: they have no checksum."""
    record = LedgerRecord("6f0c", Committed(3, 9, "20260101000000000", "20260101000000001", {"in:0": 7}))
    creation = table_creation.Creation(_definition(), 4, ["20260101000000000", "20260101000000001"])
    topics = encode_input_topics(InputTopics({"in": InputTopic(4, 2, "xyz", 2)}))
    return [
        _target("ledger record", LEDGER_RECORD, msgspec.json.encode(record), _ledger),
        _target("input topics", INPUT_TOPICS_PATH, topics, read_record),
        _target("input topics in an assigner", INPUT_TOPICS_PATH, topics, _stale),
        _target("creation", table_creation.CREATION, msgspec.json.encode(creation), table_creation._read),
        _target("identity", TABLE_ID, b"8d3a-\xc3\xa9", known_ledger_id),
        _target("owner", SERVED_BY, "coördinator".encode(), shown_owner),
        _target("topic counts", topics_setup.RECORD, _COUNTS, topics_setup._recorded_counts),
        _target("lane source", topics_setup.LANE_SOURCE, b'{"topic": "o"}', topics_setup._recorded_source),
        _target("input starts", input_starts.INPUT_STARTS, _STARTS, _starts(InputStart.LATEST)),
        _target("first inputs", input_starts.INPUT_EARLIEST, _STARTS, _starts(InputStart.EARLIEST)),
        *(
            _target(f"{path} anew", path, _STARTS, _starts_anew(path))
            for path in (input_starts.INPUT_STARTS, input_starts.INPUT_EARLIEST)
        ),
        _target(
            "input starts in an assigner", input_starts.INPUT_STARTS, _STARTS, _read_by(InputStart.LATEST)
        ),
        _target(
            "first inputs in an assigner",
            input_starts.INPUT_EARLIEST,
            _STARTS,
            _read_by(InputStart.EARLIEST),
        ),
        _target("reader deaths", READER_DEATHS, _DEATHS, _reader_deaths),
        _target("columns", CONFIGURED_COLUMNS, b'{"columns": ["a"]}', _recorded),
        *_of_table_services(),
    ]


def _starts(start: InputStart) -> Callable[[InMemoryStorage], object]:
    return lambda storage: input_starts._read(storage, start)


def _starts_anew(path: str) -> Callable[[InMemoryStorage], object]:
    return lambda storage: new_ledger_inputs._recorded_starts(storage, path)


def _read_by(start: InputStart) -> Callable[[InMemoryStorage], object]:
    return lambda storage: recorded_starts(storage, start)


def _of_table_services() -> list[Target]:
    """Documents that the decisions name by their checksums."""
    operation = MergeOperation("p", "f-0", _INSTANT, None, (f".f-0_{_INSTANT}.log.1_0-0-0",), 7, 0)
    compaction = encode_plan(CompactionPlan(_INSTANT, False, "{}", (operation,), ("q",)))
    clean = encode_plan(CleanPlan(_INSTANT, True, {"files": ("a", "b")}, _INSTANT))
    outcomes = encode_outcomes((MergeOutcome(0, "f", 9, 1, 0, 1, 0, 1, 1, 2**63, Ticket("p/f", 9)),))
    return [
        _target(
            "compaction of ours", "c.json", compaction, lambda s: decode_plan(s.read("c.json"), "c.json")
        ),
        _target("clean of ours", "k.json", clean, lambda s: decode_clean(s.read("k.json"), "k.json")),
        _target("outcomes", "o.json", outcomes, lambda s: decode_outcomes(s.read("o.json"), "o.json")),
    ]


def _target(name: str, path: str, content: bytes, read: Callable[[InMemoryStorage], object]) -> Target:
    def found(storage: InMemoryStorage, _: str) -> None:
        read(storage)

    return Target(name, path, content, found, False)


def _ledger(storage: InMemoryStorage) -> None:
    """A record that cannot be read is none, so the second reading is what tells."""
    read_ledger_record(storage)
    read_document(storage, LEDGER_RECORD, LedgerRecord)


def _reader_deaths(storage: InMemoryStorage) -> None:
    """As the ledger record: one that cannot be read is none."""
    reader_death_record._read(storage)
    read_document(storage, READER_DEATHS, reader_death_record.ReaderDeaths)


def _stale(storage: InMemoryStorage) -> None:
    admin = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1))).admin()
    stale_by_record(storage)(admin, ["in@2"])


def _definition() -> TableDefinition:
    return TableDefinition(
        name="t",
        table_type=TableType.MERGE_ON_READ,
        record_key_fields=("id",),
        partition_fields=("day",),
        schema='{"type": "record", "name": "t", "fields": []}',
    )
