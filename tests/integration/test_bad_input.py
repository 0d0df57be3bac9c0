"""Wrong input, configurations and surroundings: a dead letter or a clear error, and all else goes on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer

from tests.input_model import SCHEMA
from tests.integration.admin_calls import (
    ADMIN,
    AdminCalls,
    check_dead_letters,
    check_discovery,
    check_looking,
    check_orders,
    check_refusals,
)
from tests.integration.foreign_clients import ForeignClient, Grpcurl, Reflected, find_grpcurl
from tests.interop.verdict import assert_same_rows, hudi_rs_snapshot
from tests.own_ports import own_ports
from tests.pipeline import Message, Pipeline
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

LARGE = 20 << 20
ROOT = Path(__file__).resolve().parents[2]


def row(key: str, **fields: Any) -> dict[str, Any]:
    return {"id": key, "region": "eu", "ts": 5, "name": f"row {key}", "amount": 0.5, **fields}


def record(fields: dict[str, Any], *without: str) -> Message:
    value = {name: each for name, each in fields.items() if name not in without}
    return b"k", json.dumps(value).encode()


BAD: list[tuple[str, Message]] = [
    ("not-json", (b"k", b"not json")),
    ("not-json", (b"k", b"")),
    ("not-json", (b"k", b'{"id": "cut off", "region"')),
    ("not-json", (b"k", b"\xff\xfe\x00")),
    ("not-json", (b"k", b'{"deep": ' + b"[" * 100_000)),
    ("wrong-shape", (b"k", b"[1, 2]")),
    ("wrong-shape", (b"k", b'"text"')),
    ("wrong-shape", (b"k", b"null")),
    ("missing-key", record(row("a"), "id")),
    ("missing-key", (b"k", b"{}")),
    ("null-key", record(row("a", id=None))),
    ("null-key", record(row("a", id=""))),
    ("mistyped-field", record(row("a", id=5))),
    ("bad-partition", record(row("a"), "region")),
    ("bad-partition", record(row("a", region=None))),
    ("mistyped-field", record(row("a", region=["eu"]))),
    ("null-ordering", record(row("a"), "ts")),
    ("null-ordering", record(row("a", ts=None))),
    ("mistyped-field", record(row("a", ts="yesterday"))),
    ("mistyped-field", record(row("a", ts=2**63))),
    ("mistyped-field", record(row("a", amount="many"))),
    ("bad-partition", record(row("a", region="../x"))),
    ("bad-partition", record(row("a", region=".."))),
    ("bad-partition", record(row("a", region="/etc"))),
    ("bad-partition", record(row("a", region="nul\x00"))),
    ("bad-partition", record(row("a", region="bell\x07 and\nline"))),
    ("bad-partition", record(row("a", region=".hoodie"))),
    ("bad-partition", record(row("a", region="r" * 300))),
    ("key-too-long", record(row("k" * 9_000))),
    ("key-too-long", (b"k" * 9_000, None)),
    ("null-value-without-key", (None, None)),
    ("null-value-without-key", (b"", None)),
    ("bad-key", (b"\xff\xfe", None)),
]


def elsewhere() -> dict[str, str]:
    """The services section of a coordinator beside the one that runs."""
    coordinator, metrics = own_ports(2)
    return {"coordinator": f"127.0.0.1:{coordinator}", "metrics": f"127.0.0.1:{metrics}"}


@pytest.fixture(scope="module")
def pipeline(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A running pipeline of a table that holds one row."""
    settings = {
        "name": "bad-input",
        "type": "merge_on_read",
        "record_key": ["id"],
        "partition": ["region"],
        "ordering": "ts",
        # As many lanes as input partitions: what refuses another `input.partitioning` is not their number.
        "index": {"shards": 4, "lanes": 2},
    }
    folder = tmp_path_factory.mktemp("bad-input")
    large = {"max.message.bytes": str(2 * LARGE)}
    with Pipeline(
        folder, kafka.bootstrap_servers, settings, SCHEMA, input_settings=large, spark=False
    ) as made:
        made.start()
        made.feed([record(row("first"))])
        made.flush()
        yield made


def feed_large(pipeline: Pipeline, size: int, partition: int) -> None:
    """One record of `size` bytes, as a producer with its own limit sends it."""
    producer = Producer(
        {"bootstrap.servers": pipeline.config.kafka.bootstrap_servers, "message.max.bytes": 2 * LARGE}
    )
    delivered: list[Any] = []
    value = json.dumps(row("large", name="x" * size)).encode()
    producer.produce(
        pipeline.topic, value, b"large", partition, on_delivery=lambda error, _: delivered.append(error)
    )
    assert producer.flush(60) == 0
    assert delivered == [None]


def test_bad_records_become_dead_letters_and_all_others_go_through(pipeline: Pipeline) -> None:
    before = pipeline.status()["records"]
    committed, known = before["committed"], len(pipeline.dead_letters())
    expected = {"first": row("first")}
    for number, (_, bad) in enumerate(BAD):
        good = row(f"good-{number}", extra_field={"not": ["in the", "schema"]})
        pipeline.feed_partition(number % 2, [bad, record(good)])
        expected[good["id"]] = {name: each for name, each in good.items() if name != "extra_field"}
    feed_large(pipeline, LARGE, 0)
    pipeline.feed_partition(0, [record(row("behind"))])
    expected["behind"] = row("behind")
    pipeline.flush()

    letters = pipeline.dead_letters()[known:]
    wanted = [*((n % 2, reason) for n, (reason, _) in enumerate(BAD)), (0, "record-too-large")]
    assert sorted((each.partition, each.reason) for each in letters) == sorted(wanted)
    assert {each.topic for each in letters} == {pipeline.topic}
    assert len({(each.partition, each.offset) for each in letters}) == len(letters)
    assert all(each.detail for each in letters)
    assert_same_rows(hudi_rs_snapshot(pipeline.table), expected.values(), "rows")
    after = pipeline.status()["records"]
    assert after["dead_letters"] - before["dead_letters"] == len(wanted)
    assert after["committed"]["inserts"] - committed["inserts"] == len(BAD) + 1
    listed = pipeline.command("dead-letter", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "record-too-large" in listed.stdout


@pytest.mark.parametrize("kind", ["reflection", "grpcurl"])
def test_a_foreign_client_makes_every_call_of_the_admin_service(pipeline: Pipeline, kind: str) -> None:
    address = str(pipeline.config.services.coordinator)
    pipeline.feed([(b"k", b"not json"), record(row("known", ts=9))])
    pipeline.flush()
    with grpc.insecure_channel(address) as channel:
        client: ForeignClient
        if kind == "grpcurl":
            program = find_grpcurl()
            if program is None:
                pytest.skip("neither grpcurl nor Go is on the PATH: the calls by reflection alone were made")
            client = grpcurl = Grpcurl(program, address)
            trailers = grpcurl.trailers(f"{ADMIN}/Serves", {"table": "bad-input"}, "from-grpcurl-1")
            assert "x-request-id: from-grpcurl-1" in trailers
            assert grpcurl.run_examples(ROOT / "docs/admin-api.md", "bad-input") > 10
        else:
            client = Reflected(channel)
        methods = check_discovery(client)
        calls = AdminCalls(client, "bad-input")
        check_looking(calls, pipeline, "known")
        check_dead_letters(calls, pipeline)
        check_orders(calls, pipeline, lambda: pipeline.feed([record(row("while-paused", ts=10))]))
        check_refusals(calls)
    assert calls.asked == methods
    assert "request_id=why-ShowEpoch" in pipeline.log("coordinator")


def test_unknown_fields_are_dead_letters_where_the_configuration_says_so(pipeline: Pipeline) -> None:
    strict = pipeline.write_config("strict.yaml", {"input": {"unknown_fields": "error"}})
    pipeline.stop("assigner")
    pipeline.start_process("assigner", strict)
    known = len(pipeline.dead_letters())
    pipeline.feed([record(row("strict", surprise=1)), record(row("plain"))])
    pipeline.flush()
    assert [each.reason for each in pipeline.dead_letters()[known:]] == ["unknown-field"]
    keys = {each["id"] for each in hudi_rs_snapshot(pipeline.table)}
    assert "plain" in keys
    assert "strict" not in keys
    pipeline.stop("assigner")
    pipeline.start("assigner")


def assert_goes_on(pipeline: Pipeline, key: str) -> None:
    pipeline.feed([record(row(key))])
    pipeline.flush()
    assert key in {each["id"] for each in hudi_rs_snapshot(pipeline.table)}


def test_a_second_coordinator_at_the_same_address_refuses_to_start(pipeline: Pipeline) -> None:
    second = pipeline.command("coordinator")
    assert second.returncode == 5
    assert pipeline.document["services"]["coordinator"] in second.stderr
    assert_goes_on(pipeline, "after-the-refused")


def test_a_second_coordinator_elsewhere_takes_over_and_the_first_says_why(pipeline: Pipeline) -> None:
    other = pipeline.write_config("elsewhere.yaml", {"services": elsewhere()})
    pipeline.start_process("coordinator-2", other)
    assert pipeline.exit_code("coordinator") == 3
    assert "newer" in pipeline.log("coordinator").splitlines()[-1]
    pipeline.stop("coordinator-2")
    pipeline.start("coordinator")
    assert_goes_on(pipeline, "after-the-takeover")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"table": {"ordring": "ts"}}, "did you mean ordering"),
        ({"epok": {"interval": "2s"}}, "epoch"),
        ({"epoch": {"interval": "2 weeks"}}, "must be a duration"),
        ({"table": {"schema": "missing.avsc"}}, "missing.avsc"),
        ({"table": {"ordering": "region"}}, "ordering"),
        ({"table": {"ordering": "no_such_column"}}, "no_such_column"),
        ({"table": {"record_key": ["no_such_column"]}}, "no_such_column"),
        ({"table": {"partition": ["name"]}}, "table.partition"),
        ({"table": {"type": "copy_on_write"}}, "table.type"),
        ({"kafka": {"acks": "1"}}, "kafka.acks"),
        ({"kafka": {"no.such.setting": "1"}}, "no.such.setting"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_key(
    pipeline: Pipeline, changes: dict[str, Any], said: str
) -> None:
    wrong = pipeline.write_config("wrong.yaml", {"services": elsewhere(), **changes})
    refused = pipeline.command("coordinator", config=wrong)
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_schema_that_does_not_fit_the_table_is_refused(pipeline: Pipeline) -> None:
    fields = [{**each, "type": "string"} if each["name"] == "amount" else each for each in SCHEMA["fields"]]
    (pipeline.folder / "other.avsc").write_text(json.dumps({**SCHEMA, "fields": fields}))
    wrong = pipeline.write_config("wrong.yaml", {"services": elsewhere(), "table": {"schema": "other.avsc"}})
    refused = pipeline.command("coordinator", config=wrong)
    assert refused.returncode == 2
    assert "amount" in refused.stderr
    (pipeline.folder / "other.avsc").write_text("{ no schema")
    refused = pipeline.command("coordinator", config=wrong)
    assert refused.returncode == 2
    assert "other.avsc" in refused.stderr


def test_kafka_that_is_not_there_is_named(pipeline: Pipeline) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    apart = pipeline.write_config("apart.yaml", {"kafka": nowhere, "services": elsewhere()})
    pipeline.start_process("coordinator-lost", apart)
    # An assigner asks the coordinator first: it finds the one that runs.
    pipeline.start_process("assigner-lost", pipeline.write_config("lost.yaml", {"kafka": nowhere}))
    for name in ("coordinator-lost", "assigner-lost"):
        assert pipeline.exit_code(name) == 1
        said = pipeline.log(name).splitlines()[-1]
        assert said.startswith(f"tidemark {name.split('-')[0]}: ")
        assert "127.0.0.1:1" in said


def test_paths_that_are_no_folders_are_named(pipeline: Pipeline) -> None:
    (pipeline.folder / "a-file").write_text("in the way")
    table = {"services": elsewhere(), "table": {"name": "other", "path": "./a-file/table"}}
    state = {"state": {"path": "./a-file"}}
    for service, changes in (("coordinator", table), ("assigner", state), ("writer", state)):
        refused = pipeline.command(service, config=pipeline.write_config("wrong.yaml", changes))
        assert refused.returncode == 1
        assert "a-file" in refused.stderr.splitlines()[-1]
        assert "has to be a folder" in refused.stderr


def test_the_way_the_input_is_partitioned_cannot_change_under_a_table(pipeline: Pipeline) -> None:
    changes = {"services": elsewhere(), "input": {"partitioning": "shard"}}
    refused = pipeline.command("coordinator", config=pipeline.write_config("wrong.yaml", changes))
    assert refused.returncode == 2
    assert "offsets in bad-input.keyed" in refused.stderr


def test_a_table_folder_without_permission_is_named(pipeline: Pipeline) -> None:
    """Root may write anywhere: the command runs without that privilege."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() == 0 and setpriv is None:
        pytest.skip("root, and no setpriv to do without its privileges")
    unprivileged = [setpriv, "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    closed = pipeline.folder / "closed"
    closed.mkdir(exist_ok=True)
    closed.chmod(0o500)
    changes = {
        "services": elsewhere(),
        "table": {"name": "other", "path": "./closed/table"},
    }
    refused = pipeline.command(
        "coordinator",
        config=pipeline.write_config("wrong.yaml", changes),
        prefix=[str(p) for p in unprivileged],
    )
    assert refused.returncode == 1
    assert str(closed) in refused.stderr
    assert "permission" in refused.stderr
