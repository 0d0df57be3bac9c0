"""What `init` writes for any sample that it takes is taken by what reads it: its own trial, `config check`
and the checks with which services start.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from testing.memory_storage import InMemoryStorage
from tests.commit_seed import seed_of_run
from tests.schema_registry import RegistryServer
from tests.unit.init.drawn_samples import TOPIC, Made, TopicSample, avro_samples, protobuf_samples
from tidemark.commit_coordinator.offline.rehearsal import rehearse_start
from tidemark.commit_coordinator.opening.table_open import open_table, read_table
from tidemark.commit_coordinator.opening.topics_setup import (
    check_lane_source,
    check_recorded,
    ensure_topics,
    open_inputs,
)
from tidemark.config import InputFormat, TableConfigFile, load_config
from tidemark.console.errors import CliError
from tidemark.doctor.config_check import check_config_file
from tidemark.index_assigner import offline as assigner
from tidemark.init import session
from tidemark.init.ask import Asker
from tidemark.init.session import InitOptions, Written, initialise
from tidemark.stream_writer import offline as writer

_USUAL = """
    id order_id uuid updated_at ts event_time created_ms version seq day dt region status amount name note at
    lsn modified_date deleted_at payload tags is_open __deleted _deleted __op __source_ts_ms value Key key
"""
_START = 1_700_000_000_000
TIMES = int(os.environ.get("TIDEMARK_INIT_TIMES", "1"))
"""How many times as many fixed samples there are: `make hostile` tries more."""
_NAMES = st.sampled_from(_USUAL.split())
_LACKING = ("--key", "holds a row", "no field of the records can be a column")


def _values() -> st.SearchStrategy[st.SearchStrategy[Any]]:
    """What a producer would put into one field, in one of the ways in which producers do, or in several."""
    numbers = st.integers(-(2**40), 2**40)
    millis = st.integers(1_600_000_000_000, 1_800_000_000_000)
    micros = millis.map(lambda value: value * 1_000)
    texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
    moments = st.datetimes().map(lambda at: at.replace(year=2024).isoformat() + "Z")
    days = st.dates().map(lambda day: day.replace(year=2024).isoformat())
    kinds: list[st.SearchStrategy[Any]] = [numbers, millis, micros, texts, moments, days]
    kinds += [
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["true", "false"]),
    ]
    kinds += [st.lists(numbers, max_size=3), st.dictionaries(_NAMES, texts, max_size=3)]
    kinds.append(st.lists(st.one_of(numbers, texts), max_size=3))
    alone = st.sampled_from(range(len(kinds))).map(lambda at: kinds[at])
    # Of several kinds, as of producers of several versions: one of three columns.
    mixed = st.lists(alone, min_size=2, max_size=3).map(lambda chosen: st.one_of(chosen))
    return st.integers(0, 2).flatmap(lambda of_three: mixed if of_three == 0 else alone)


@st.composite
def samples(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records of one shape, some with null fields; four of five samples have what can be a key."""
    has_key = draw(st.integers(0, 4)) > 0
    shape = {name: draw(_values()) for name in draw(st.sets(_NAMES, min_size=1, max_size=8))}
    records = []
    for number in range(draw(st.integers(1, 12))):
        record = {name: draw(kind) for name, kind in shape.items()}
        for name in draw(st.sets(st.sampled_from(sorted(shape)), max_size=1)):
            if draw(st.integers(0, 4)) == 0:
                record[name] = None
        if has_key:
            record["order_id"] = f"o-{number}"
        records.append(record)
    return records


def events(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As Debezium's connector for PostgreSQL sends them."""
    return [
        {"before": None, "after": each, "op": "c", "ts_ms": _START + at, "source": {"lsn": 9_000 + at}}
        for at, each in enumerate(records)
    ]


def initialised(
    folder: Path, records: list[dict[str, Any]], format_: InputFormat = InputFormat.JSON
) -> Written:
    sample = folder / "orders.jsonl"
    values = events(records) if format_.is_debezium else records
    sample.write_text("".join(json.dumps(each) + "\n" for each in values), encoding="utf-8")
    asker = Asker.of_terminal(lambda _: None, wanted=False)
    options = InitOptions(out=folder / "orders.yaml", sample=sample, format=format_)
    return initialise(options, ManualClock(), asker, {})


def written_for(folder: Path, records: list[dict[str, Any]], format_: InputFormat) -> Written | None:
    """None: the sample lacks what a sample may lack, a column that can be a key, any column, or any record
    that is no delete.
    """
    try:
        return initialised(folder, records, format_)
    except CliError as error:
        if not any(text in str(error) for text in _LACKING):
            raise
        return None


def initialised_from_topic(folder: Path, sample: TopicSample) -> Written | None:
    """None as `written_for` has it."""
    asker = Asker.of_terminal(lambda _: None, wanted=False)
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    options = InitOptions(out=folder / "orders.yaml", topic=TOPIC, kafka=kafka, **sample.options)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(session, "read_topic", lambda *_: sample.messages)
        try:
            return initialise(options, ManualClock(), asker, {})
        except CliError as error:
            if not any(text in str(error) for text in _LACKING):
                raise
            return None


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


FORMATS = pytest.mark.parametrize("format_", [InputFormat.JSON, InputFormat.DEBEZIUM_JSON])
TOPIC_SAMPLES = pytest.mark.parametrize(
    "samples_",
    [avro_samples(debezium=False), avro_samples(debezium=True), protobuf_samples()],
    ids=["avro", "debezium-avro", "protobuf"],
)


def check_topic_samples(
    chosen: settings, of_format: st.SearchStrategy[Made], registry: RegistryServer, drawn: int | None = None
) -> list[bool]:
    """As `check_samples`; and each that was written is one that services start with."""
    written_of_samples: list[bool] = []

    @settings(chosen, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(of_format)
    def holds(make: Made) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            sample = make(Path(temporary), registry)
            written = initialised_from_topic(Path(temporary), sample)
            written_of_samples.append(written is not None)
            if written is None:
                return
            config, _, _ = check_config_file(written.config, {})
            assert config.input.format is sample.format
            assert not written.refused
            assert written.taken == len(sample.messages)
            starts(load_config(written.config, {}))

    if drawn is not None:
        holds = seed(drawn)(holds)
    holds()
    return written_of_samples


@TOPIC_SAMPLES
def test_what_init_writes_for_a_topic_is_taken_by_what_reads_it_and_by_a_start(
    samples_: st.SearchStrategy[Made], registry: RegistryServer
) -> None:
    written = check_topic_samples(settings(max_examples=25 * TIMES, derandomize=True), samples_, registry)
    assert sum(written) > 25 * TIMES // 3


@TOPIC_SAMPLES
def test_what_init_writes_for_a_topic_is_taken_for_other_samples_in_each_commit(
    samples_: st.SearchStrategy[Made], registry: RegistryServer
) -> None:
    assert any(check_topic_samples(settings(max_examples=15), samples_, registry, shown_seed("topic")))


def shown_seed(what: str) -> int:
    """TIDEMARK_INIT_SEED is the seed of another commit's run, which pytest shows of a test that failed."""
    number = seed_of_run("TIDEMARK_INIT_SEED", what)
    sys.stdout.write(f"TIDEMARK_INIT_SEED={number}\n")
    return number


def check_samples(chosen: settings, format_: InputFormat, drawn: int | None = None) -> list[bool]:
    """Whether a configuration was written, of each sample. `drawn`: a seed; None: the samples are fixed."""
    written_of_samples: list[bool] = []

    @settings(chosen, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(samples())
    def holds(records: list[dict[str, Any]]) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            written = written_for(Path(temporary), records, format_)
            written_of_samples.append(written is not None)
            if written is None:
                return
            config, _, _ = check_config_file(written.config, {})
            assert config.input.format is format_
            assert config.table.record_key
            assert written.taken == len(records)
            assert not written.refused

    if drawn is not None:
        holds = seed(drawn)(holds)
    holds()
    return written_of_samples


@pytest.mark.parametrize(
    ("format_", "count"), [(InputFormat.JSON, 75 * TIMES), (InputFormat.DEBEZIUM_JSON, 25 * TIMES)]
)
def test_what_init_writes_is_taken_by_what_reads_it(format_: InputFormat, count: int) -> None:
    written = check_samples(settings(max_examples=count, derandomize=True), format_)
    assert sum(written) > count * 2 // 3


@FORMATS
def test_what_init_writes_is_taken_by_what_reads_it_for_other_samples_in_each_commit(
    format_: InputFormat,
) -> None:
    assert any(check_samples(settings(max_examples=30), format_, shown_seed("sample")))


def check_starts(chosen: settings, format_: InputFormat, drawn: int | None = None) -> list[bool]:
    """As `check_samples`: each that was written is one that services start with, and doctor finds no fault
    with what it asks of table and topics for each service, before the first start and after it.
    """
    written_of_samples: list[bool] = []

    @settings(chosen, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(samples())
    def holds(records: list[dict[str, Any]]) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            written = written_for(Path(temporary), records, format_)
            written_of_samples.append(written is not None)
            if written is not None:
                starts(load_config(written.config, {}))

    if drawn is not None:
        holds = seed(drawn)(holds)
    holds()
    return written_of_samples


@FORMATS
def test_what_init_writes_is_taken_by_doctor_and_by_a_start(format_: InputFormat) -> None:
    assert sum(check_starts(settings(max_examples=20, derandomize=True), format_)) > 10


@FORMATS
def test_what_init_writes_is_taken_by_doctor_and_by_a_start_for_other_samples_in_each_commit(
    format_: InputFormat,
) -> None:
    assert any(check_starts(settings(max_examples=15), format_, shown_seed("start")))


def starts(config: TableConfigFile) -> None:
    clock, storage = ManualClock(1_750_000_000_000), InMemoryStorage()
    kafka = MemoryKafkaClient(MemoryBroker(clock, SeededIds(1)))
    admin = kafka.admin()
    rehearse_start(config, storage, kafka, clock)
    writer.rehearse_start(config)
    assert admin.partitions(config.input.topics[0]) is None, "a rehearsal makes nothing"
    assert open_table(config, storage, clock).created
    read_table(config, storage)
    open_inputs(config, storage, admin)
    check_recorded(storage, ensure_topics(config, admin))
    check_lane_source(config, storage)
    before = {info.path: storage.read(info.path) for info in storage.walk("")}
    rehearse_start(config, storage, kafka, clock)
    assigner.rehearse_start(config, storage, clock)
    assigner.rehearse_topics(config, storage, kafka)
    assert {info.path: storage.read(info.path) for info in storage.walk("")} == before


def test_epoch_milliseconds_are_proposed_as_an_ordering_that_can_be_served(tmp_path: Path) -> None:
    start = 1_700_000_000_000
    records = [{"order_id": f"o-{n % 7}", "updated_at": start + n, "n": n} for n in range(50)]
    written = initialised(tmp_path, records)
    assert written.draft.ordering == "updated_at"
    (column,) = [each for each in written.draft.schema["fields"] if each["name"] == "updated_at"]
    assert column["type"] == "long"
    assert "milliseconds" in written.config.read_text()
    assert written.taken == 50


def test_milliseconds_that_are_text_in_some_records_are_no_ordering(tmp_path: Path) -> None:
    times = ["2024-01-01", *range(_START, _START + 5)]
    written = initialised(
        tmp_path, [{"order_id": f"o-{n}", "source_ts_ms": ms} for n, ms in enumerate(times)]
    )
    assert (written.taken, written.refused) == (6, ())
    config, _, _ = check_config_file(written.config, {})
    assert config.table.ordering != "source_ts_ms"


@pytest.mark.parametrize("says", [("true", "false"), (True, False)])
def test_deletes_of_flattened_debezium_delete(tmp_path: Path, says: tuple[Any, Any]) -> None:
    records = [
        {"id": n % 9, "name": "x" * n, "__deleted": says[0] if n % 5 == 4 else says[1], "__source_ts_ms": n}
        for n in range(40)
    ]
    written = initialised(tmp_path, records)
    config = load_config(written.config, {})
    assert config.input.delete_field == "__deleted"
    assert "__deleted" not in [each["name"] for each in written.draft.schema["fields"]]
    assert config.table.partition == ()
    assert written.taken == 40
