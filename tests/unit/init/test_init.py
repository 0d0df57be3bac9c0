"""`tidemark init`: what it proposes, that what it writes loads and takes the sample, and that it overwrites
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka.broker import MemoryBroker
from testing.kafka.client import MemoryKafkaClient
from tests.schema_registry import RegistryServer
from tests.unit.index_assigner.avro_world import framed
from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli.main import main
from tidemark.config import load_config
from tidemark.config.reference import known_keys
from tidemark.console.errors import CliError
from tidemark.init.ask import Asker
from tidemark.init.candidates import Candidate, key_candidates, ordering_candidates, partition_candidates
from tidemark.init.columns import infer_columns, infer_type
from tidemark.init.reading import read_topic
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.ports import TopicSpec


def order(number: int) -> dict[str, Any]:
    return {
        "order_id": f"o-{number % 60}",
        "customer": {"id": number % 7, "name": None if number % 3 else "Ann"},
        "items": [{"sku": "a", "n": 1}] if number % 2 else [],
        "amount": number / 4,
        "day": f"2024-01-{number % 60 % 20 + 1:02d}",
        "updated_at": f"2024-02-01T10:{number // 60:02d}:{number % 60:02d}Z",
        "created_ms": 1_700_000_000_000 + number,
        "status": ("new", "paid", "sent")[number % 3],
        "bad-name": number,
        "_deleted": number % 50 == 49,
    }


def sample_file(folder: Path, records: Iterator[Any] | list[Any], name: str = "orders.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    return file


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = main(["init", *arguments, "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return dict(json.loads(captured.out))


def test_sample_becomes_a_configuration_that_takes_it(here: Path, capsys: pytest.CaptureFixture[str]):
    done = init(capsys, "--sample", str(sample_file(here, map(order, range(300)))))
    assert (done["record_key"], done["partition"], done["ordering"]) == (["order_id"], ["day"], "updated_at")
    assert (done["sampled"], done["taken"], done["refused"]) == (300, 300, [])
    config = load_config(here / "orders.yaml")
    assert (config.table.name, config.input.topics, config.input.delete_field) == (
        "orders",
        ("orders",),
        "_deleted",
    )
    fields = {each["name"]: each["type"] for each in json.loads((here / "orders.avsc").read_text())["fields"]}
    assert fields["order_id"] == "string"
    assert fields["amount"] == ["null", "double"]
    assert fields["updated_at"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert fields["created_ms"] == ["null", {"type": "long", "logicalType": "timestamp-millis"}]
    assert fields["day"] == {"type": "int", "logicalType": "date"}
    assert "_deleted" not in fields
    assert "bad-name" not in fields
    text = (here / "orders.yaml").read_text()
    assert "# order_id: 60 values in 294 records, named like one" in text
    assert "# bad-name: left out" in text
    assert main(["config", "check", "-c", "orders.yaml"]) == 0


def test_every_key_of_the_model_stands_in_the_file(here: Path, capsys: pytest.CaptureFixture[str]):
    """Decided, or as a comment with its default; uncommented the defaults load, and change nothing."""
    init(capsys, "--sample", str(sample_file(here, map(order, range(30)))))
    text = (here / "orders.yaml").read_text()
    for key in known_keys():
        if key.default is not None and "." not in key.key:
            assert f"{key.key}:" in text, key.path
    assert "#   clean: {enabled: true, retain: 1h, interval: 5m, max_files: 2000}\n" in text
    before = load_config(here / "orders.yaml")
    head, rest = text.split("# The rest may stay as it is")
    sections = [line[2:] for line in rest.splitlines()[1:] if line.startswith("# ")]
    (here / "orders.yaml").write_text(head + "\n".join(sections) + "\n")
    after = load_config(here / "orders.yaml")
    for section in ("limits", "epoch", "verify", "table_services"):
        assert getattr(before, section) == getattr(after, section)


def test_nothing_is_overwritten_without_force(here: Path, capsys: pytest.CaptureFixture[str]):
    sample = str(sample_file(here, map(order, range(30))))
    (here / "orders.avsc").write_text("mine")
    assert main(["init", "--sample", sample]) == 2
    assert "--force" in capsys.readouterr().err
    assert ((here / "orders.avsc").read_text(), (here / "orders.yaml").exists()) == ("mine", False)
    init(capsys, "--sample", sample, "--force")
    assert (here / "orders.avsc").read_text() != "mine"


def test_a_failure_leaves_what_was_there(here: Path, capsys: pytest.CaptureFixture[str]):
    sample = str(sample_file(here, map(order, range(30))))
    (here / "orders.yaml").write_text("mine")
    assert main(["init", "--sample", sample, "--force", "--kafka", "no.such.setting=1"]) != 0
    assert "no.such.setting" in capsys.readouterr().err
    assert ((here / "orders.yaml").read_text(), (here / "orders.avsc").exists()) == ("mine", False)


def test_options_decide_and_unknown_columns_are_named(here: Path, capsys: pytest.CaptureFixture[str]):
    sample = str(sample_file(here, map(order, range(60))))
    assert main(["init", "--sample", sample, "--key", "ordr_id"]) == 2
    assert "--key: there is no column ordr_id; there are order_id" in capsys.readouterr().err
    done = init(
        capsys, "--sample", sample, "--key", "status,order_id", "--partition", "none", "--ordering", "none",
        "--name", "shop", "--type", "copy_on_write", "--out", "deep/er/shop.yml",
    )  # fmt: skip
    assert (done["record_key"], done["partition"], done["ordering"]) == (["status", "order_id"], [], None)
    config = load_config(here / "deep" / "er" / "shop.yml")
    assert (config.table.type.value, config.table.schema.name) == ("copy_on_write", "shop.avsc")


def test_records_that_do_not_fit_are_counted_with_their_reason(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    rows = [order(number) for number in range(100)]
    rows[7]["amount"] = "a lot"
    done = init(capsys, "--sample", str(sample_file(here, rows)))
    assert done["taken"] == 99
    assert "amount" in done["refused"][0]
    assert any("1 of 100 values are no float" in each for each in done["notes"]["table.schema"])


def test_references_to_the_environment_stay_references(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOP_PASSWORD", "SECRET")
    sample = str(sample_file(here, map(order, range(30))))
    init(
        capsys, "--sample", sample, "--bootstrap-servers", "k1:9092", "--kafka", "sasl.username=ann",
        "--kafka", "sasl.password=${SHOP_PASSWORD}",
    )  # fmt: skip
    text = (here / "orders.yaml").read_text()
    assert "sasl.password: ${SHOP_PASSWORD}" in text
    assert "SECRET" not in text
    assert load_config(here / "orders.yaml").kafka.settings["sasl.password"] == "SECRET"


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_existing_table_is_described_as_it_is(
    table_type: str, here: Path, capsys: pytest.CaptureFixture[str]
):
    from tidemark.hudi_format.table_config import TableType

    writer = new_table(here / "table", TableType(table_type), shards=3)
    writer.commit(orders(("a", "d1", 1), ("b", "d2", 2)))
    done = init(capsys, "--table", "table", "--out", "there.yaml")
    assert (done["record_key"], done["partition"], done["ordering"]) == (["id"], ["day"], "at")
    config = load_config(here / "there.yaml")
    assert (config.table.index.shards, config.table.type.value) == (3, table_type.lower())
    assert config.table.path == str(here / "table")
    assert "name your topic" in (here / "there.yaml").read_text()
    assert main(["table", "adopt", "-c", "there.yaml"]) == 0


def test_folder_without_a_table_is_refused(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["init", "--table", str(here)]) == 1
    assert "is no Hudi table" in capsys.readouterr().err


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
            {"name": "id", "type": "int"},
            {"name": "price", "type": DECIMAL},
            {"name": "born", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
        ]}], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
            {"name": "lsn", "type": ["null", "long"], "default": None},
            {"name": "ts_ms", "type": "long"},
        ]}},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip


def test_change_events_with_a_registry_become_the_row_and_its_position(here: Path):
    """From the topic to the file, all but Kafka real: the registry's client, the schema, the decoder."""
    from tidemark.init.session import InitOptions, initialise

    memory = MemoryBroker(SystemClock(), SeededIds(1))
    client = MemoryKafkaClient(memory)
    client.admin().create_topics([TopicSpec("db.public.people", 2)])
    with RegistryServer() as registry:
        number = registry.register("db.public.people-value", json.dumps(ENVELOPE))
        producer = client.plain_producer()
        for id_ in range(20):
            row = {"id": id_, "price": b"\x01\x00", "born": 12_000}
            event = {"before": None, "after": row, "source": {"lsn": id_ + 1, "ts_ms": 1}, "op": "c"}
            producer.produce("db.public.people", framed(number, ENVELOPE, event), b'{"id": %d}' % id_)
        producer.flush()
        messages = read_topic(client, "db.public.people", 100, SystemClock())
        assert len(messages) == 20
        options = InitOptions(
            out=here / "people.yaml",
            topic="db.public.people",
            kafka={"bootstrap.servers": "k1:9092"},
            registry={"url": registry.url},
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("tidemark.init.session.read_topic", lambda *_: messages)
            written = initialise(options, SystemClock(), Asker(False, lambda _: None), {})
    assert (written.taken, written.refused) == (20, ())
    config = load_config(here / "people.yaml", {})
    assert config.input.format.value == "debezium-avro"
    assert config.input.debezium is not None
    assert config.input.debezium.ordering == "source.lsn"
    assert (config.table.record_key, config.table.ordering) == (("id",), "source_position")
    fields = {each["name"]: each["type"] for each in json.loads(written.schema.read_text())["fields"]}
    assert fields["born"] == ["null", {"type": "int", "logicalType": "date"}]
    assert fields["price"][1]["scale"] == 2
    assert (fields["id"], fields["source_position"]) == ("int", "long")


def test_debezium_json_is_told_by_its_envelope(here: Path, capsys: pytest.CaptureFixture[str]):
    def event(number: int) -> dict[str, Any]:
        row = {"id": number, "name": "Ann"}
        source = {"file": "binlog.000003", "pos": number, "ts_ms": 1}
        return {"payload": {"before": None, "after": row, "source": source, "op": "c"}, "schema": None}

    done = init(capsys, "--sample", str(sample_file(here, [event(number) for number in range(9)])))
    assert (done["format"], done["ordering"], done["taken"]) == ("debezium-json", "source_position", 9)
    assert load_config(here / "orders.yaml").input.debezium.ordering == "source.binlog"


def test_format_that_was_said_has_to_be_that_of_the_records(here: Path, capsys: pytest.CaptureFixture[str]):
    sample = str(sample_file(here, map(order, range(30))))
    assert main(["init", "--sample", sample, "--format", "debezium-json"]) == 1
    assert "the records look like json" in capsys.readouterr().err
    assert main(["init", "--sample", sample, "--delete-field", "status"]) == 2
    assert "true or false in status" in capsys.readouterr().err
    init(capsys, "--sample", sample, "--format", "json", "--delete-field", "none")
    config = load_config(here / "orders.yaml")
    assert config.input.delete_field is None
    assert '"_deleted"' in config.table.schema.read_text()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"no json\n", "none of 1 records holds a row"),
        (b"[1, 2", "no JSON array"),
        (b"\x00\x00\x00\x00\x01xyz", "--schema-registry"),
        (b'{"price": 1.5}\n', "no column looks like a record key"),
    ],
)
def test_sample_that_says_nothing_is_refused(
    content: bytes, says: str, here: Path, capsys: pytest.CaptureFixture[str]
):
    (here / "orders.jsonl").write_bytes(content)
    assert main(["init", "--sample", "orders.jsonl"]) != 0
    assert says in capsys.readouterr().err
    assert [each.name for each in here.iterdir()] == ["orders.jsonl"]


@pytest.mark.parametrize(
    ("values", "avro"),
    [
        ([1, None, 2], "long"),
        ([1, 2.5], "double"),
        ([2**70], {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}),
        ([True, False], "boolean"),
        (["2024-01-31", "2024-02-01"], {"type": "int", "logicalType": "date"}),
        (["2024-01-31", "soon"], "string"),
        (["2024-13-01"], "string"),
        (["2024-01-31 10:00:00", "2024-01-31T10:00:00.123+02:00"], "timestamp-micros"),
        ([None], "string"),
        ([{"a b": 1}], {"type": "map", "values": ["null", "long"]}),
        ([[1], [None]], {"type": "array", "items": ["null", "long"]}),
    ],
    ids=str,
)
def test_types_are_those_that_every_value_has(values: list[Any], avro: Any):
    found, _ = infer_type("x", values)
    assert found == ({"type": "long", "logicalType": avro} if avro == "timestamp-micros" else avro)


def test_columns_that_differ_in_case_alone_are_not_both_taken():
    found = infer_columns([{"Id": 1, "id": 2}])
    assert (list(found.types), "does not tell" in found.notes["id"]) == (["Id"], True)


def test_kafka_key_is_the_strongest_sign():
    rows = [{"a": f"k{number}", "id": number} for number in range(5)]
    columns = infer_columns(rows)
    assert key_candidates(rows, [row["a"] for row in rows], columns, "t")[0].fields == ("a",)
    assert key_candidates(rows, [{"id": row["id"]} for row in rows], columns, "t")[0].score == 100
    assert key_candidates(rows, [None] * 5, columns, "t")[0].fields == ("id",)


def test_a_column_that_deletes_leave_empty_is_no_key():
    rows = [{"key": f"k{number}", "id": number, "code": f"c{number}"} for number in range(5)]
    columns, no_keys = infer_columns(rows), [None] * 5
    for delete in ({"key": "", "id": 3}, {"key": None, "id": 3}, {"id": 3}):
        assert [found.fields for found in key_candidates(rows, no_keys, columns, "t", [delete])] == [("id",)]
    assert key_candidates(rows, [row["key"] for row in rows], columns, "t", [{"id": 3}])[0].fields == ("id",)
    assert key_candidates(rows, no_keys, columns, "t", [{}]) == []


def test_columns_that_are_unique_together_are_a_key_where_none_is_alone():
    rows = [{"x": number % 3, "y": number // 3} for number in range(9)]
    assert key_candidates(rows, [None] * 9, infer_columns(rows), "t")[0].fields == ("x", "y")


def test_a_value_that_changes_within_a_key_is_no_partition_of_choice():
    rows = [{"id": number % 4, "state": number // 8 % 2, "region": f"r{number % 2}"} for number in range(40)]
    found = partition_candidates(rows, infer_columns(rows), ("id",), None)
    assert found[0].fields == ("region",)
    assert [each.score > 0 for each in found] == [True, False]


@pytest.mark.parametrize("value", ["=^", "50%2F", "a:b", "..", "x.parquet"])
def test_a_column_with_a_value_that_no_assigner_takes_as_partition_is_not_proposed(value: str) -> None:
    rows = [{"id": number, "region": value if number else "north"} for number in range(40)]
    assert partition_candidates(rows, infer_columns(rows), ("id",), None) == []
    fine = [{**row, "region": "south" if row["id"] else "north"} for row in rows]
    assert partition_candidates(fine, infer_columns(fine), ("id",), None) != []


def test_what_rises_is_preferred_as_order():
    rows = [{"id": 1, "created_at": 2_000 - number, "version": number} for number in range(9)]
    assert ordering_candidates(rows, infer_columns(rows), ("id",))[0].fields == ("version",)


def test_answers_on_a_terminal():
    said: list[str] = []
    answers = iter(["what\n", "2\n", "\n", "none\n", "a,b\n"])
    asker = Asker(True, said.append, lambda: next(answers))
    offered = [Candidate(("a",), "first", 2), Candidate(("b",), "second", 1)]
    assert asker.choose("Q", offered, ["a", "b"], optional=True) == ("b",)
    assert "there is no column what" in "".join(said)
    assert asker.choose("Q", offered, ["a", "b"], optional=True) == ("a",)
    assert asker.choose("Q", offered, ["a", "b"], optional=True) == ()
    assert asker.choose("Q", offered, ["a", "b"], optional=False) == ("a", "b")


def test_topic_sample_is_the_newest_of_every_partition():
    client = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1)))
    client.admin().create_topics([TopicSpec("t", 2)])
    with pytest.raises(CliError, match="is empty"):
        read_topic(client, "t", 10, ManualClock())
    producer = client.plain_producer()
    for number in range(50):
        producer.produce("t", b"%d" % number, partition=number % 2)
    producer.flush()
    found = read_topic(client, "t", 10, ManualClock())
    assert sorted(int(each.value or b"-1") for each in found) == list(range(40, 50))
    with pytest.raises(CliError, match="there is no topic"):
        read_topic(client, "nope", 10, ManualClock())


def test_nothing_to_start_from_says_what_there_is(here: Path, capsys: pytest.CaptureFixture[str]):
    write_config(here)
    assert main(["init"]) == 2
    assert "--topic T, --sample FILE or --table PATH" in capsys.readouterr().err
    assert main(["init", "--topic", "t"]) == 2
    assert "--bootstrap-servers" in capsys.readouterr().err


def test_written_file_is_plain_yaml(here: Path, capsys: pytest.CaptureFixture[str]):
    rows = [{"id": f"x{number}", "na: me # \n": 1} for number in range(5)]
    init(capsys, "--sample", str(sample_file(here, rows)))
    assert yaml.safe_load((here / "orders.yaml").read_text())["table"]["record_key"] == ["id"]
