"""Arguments, help, exit codes and error texts of the command line; nothing listens anywhere."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.table_files import existing_table, new_table, orders, write_config
from tidemark.cli.main import build_parser, main
from tidemark.console.output import columns
from tidemark.hudi_format import table_keys
from tidemark.hudi_format.commit.foreign_writers import kept_stats_options
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import update_properties
from tidemark.table_status.epochs import AttemptRecord, EpochRecord

ROOT = Path(__file__).parents[3]
ALL = (
    "demo",
    *("config show", "config check"),
    "completion",
    "doctor",
    "init",
    "run",
    "coordinator",
    "assigner",
    "writer",
    "table create",
    "table adopt",
    "table describe",
    "recover",
    "flush",
    "status",
    "lookup",
    "pause",
    "resume",
    "epoch list",
    "epoch show",
    "epoch retry",
    "dead-letter list",
    "dead-letter show",
    "dead-letter replay",
    "verify",
)
ASKS_THE_COORDINATOR = (
    ["flush"],
    ["status"],
    ["lookup", "k1"],
    ["pause"],
    ["resume"],
    ["epoch", "list"],
    ["epoch", "show", "1"],
    ["epoch", "retry", "1"],
)


@pytest.fixture
def config(tmp_path: Path) -> str:
    return str(write_config(tmp_path))


@pytest.mark.parametrize("command", ALL)
def test_every_command_has_a_help_page(command: str, capsys: pytest.CaptureFixture[str]):
    assert main([*command.split(), "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"usage: tidemark {command}")
    assert "\n\n" in page


def test_help_lists_no_command_that_is_not_there(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    assert all(command.split()[0] in page for command in ALL)
    # A command stands first in its line; descriptions may say what it does.
    named = {line.split()[0] for line in page.splitlines() if line.startswith("    ") and line.split()}
    assert not named & {"compact", "clean", "replay"}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["run"],
        ["status", "-c", "x", "--nonsense"],
        ["lookup", "-c", "x"],
        ["epoch", "show", "-c", "x", "minus"],
        ["epoch", "show", "-c", "x", "0"],
        ["flush", "-c", "x", "--timeout", "soon"],
        ["assigner", "-c", "x", "--stages", "shuffle,assemble"],
        ["demo", "--months", "13"],
        ["demo", "--type", "merge"],
    ],
)
def test_wrong_use_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: tidemark")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shuffle,assign", ("shuffle", "assign")),
        ("assign, shuffle", ("shuffle", "assign")),
        ("assign", ("assign",)),
    ],
)
def test_stages_are_in_the_order_of_the_flow(text: str, expected: tuple[str, ...]):
    assert build_parser().parse_args(["assigner", "-c", "x", "--stages", text]).stages == expected


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("60s", 60_000), ("500ms", 500), ("5m", 300_000), ("7", 7_000)]
)
def test_timeout_takes_units(text: str, milliseconds: int):
    assert build_parser().parse_args(["flush", "-c", "x", "--timeout", text]).timeout == milliseconds


def test_missing_configuration_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    missing = tmp_path / "none.yaml"
    assert main(["status", "-c", str(missing)]) == 2
    error = capsys.readouterr().err
    assert (
        error
        == f"tidemark status: {missing}: there is no such file: give the path of the table's YAML file\n"
    )


@pytest.mark.parametrize("command", [["list"], ["show", "1"], ["replay"]], ids=" ".join)
def test_dead_letters_of_an_embedded_kafka_that_never_ran_start_none(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = write_config(tmp_path, kafka="embedded")
    assert main(["dead-letter", *command, "-c", str(file)]) == 1
    assert f"tidemark run -c {file}` makes it" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_recovering_what_never_ran_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = write_config(tmp_path, kafka="embedded")
    new_table(tmp_path / "table")
    assert main(["recover", "-c", str(file)]) == 0
    assert "nothing to recover: no `tidemark run` was ever active" in capsys.readouterr().out
    assert not (tmp_path / "state").exists()
    (tmp_path / "table" / ".hoodie" / "lock").write_text("{}")
    assert main(["recover", "-c", str(file)]) == 1
    assert "its lock is held: if the folder was lost" in capsys.readouterr().err


def test_unknown_key_names_the_nearest(config: str, capsys: pytest.CaptureFixture[str]):
    file = Path(config)
    file.write_text(file.read_text().replace("  ordering: at", "  orderings: at"))
    assert main(["run", "-c", config]) == 2
    assert "table.orderings: unknown key; did you mean ordering?" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", ASKS_THE_COORDINATOR, ids=" ".join)
def test_silent_coordinator_is_exit_code_1_with_address_and_advice(
    arguments: list[str], config: str, capsys: pytest.CaptureFixture[str]
):
    assert main([*arguments, "-c", config, "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no coordinator answers at 127.0.0.1:1 (services.coordinator in " in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("service", ["coordinator", "assigner", "writer"])
def test_service_without_its_embedded_kafka_says_how_to_start_it(
    service: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = write_config(tmp_path, kafka="embedded")
    assert main([service, "-c", str(file)]) == 2
    assert f"no `tidemark run` is active on {tmp_path / 'state'}" in capsys.readouterr().err


def test_traceback_only_when_asked(config: str, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.delenv("TIDEMARK_DEBUG", raising=False)
    main(["verify", "-c", config])
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("TIDEMARK_DEBUG", "1")
    main(["verify", "-c", config])
    assert "Traceback" in capsys.readouterr().err


def test_create_makes_the_table_once(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", "create", "-c", config, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["type"], document["shards"]) == ("MERGE_ON_READ", 2)
    assert main(["verify", "-c", config]) == 0
    capsys.readouterr()
    assert main(["table", "create", "-c", config]) == 1
    assert "is a Hudi table already" in capsys.readouterr().err


def test_create_refuses_a_folder_in_use(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "letters.txt").write_text("mine")
    assert main(["table", "create", "-c", config]) == 2
    assert "not empty (it holds 'letters.txt')" in capsys.readouterr().err
    assert [each.name for each in (tmp_path / "table").iterdir()] == ["letters.txt"]


@pytest.mark.parametrize(
    ("setting", "column"),
    [("ordering: at", "ordering: note"), ("[day]", "[ratio]"), ("[id]", "[ratio]")],
    ids=["ordering", "partition", "record_key"],
)
def test_create_refuses_a_column_that_cannot_be_served_and_makes_nothing(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, column: str
):
    schema = json.loads((tmp_path / "orders.avsc").read_text())
    schema["fields"].append({"name": "ratio", "type": "double"})
    (tmp_path / "orders.avsc").write_text(json.dumps(schema))
    file = Path(config)
    file.write_text(file.read_text().replace(setting, column))
    assert main(["table", "create", "-c", config]) == 2
    assert "field " + column.split(": ")[-1].strip("[]") in capsys.readouterr().err
    assert not (tmp_path / "table" / ".hoodie").exists()


def test_create_refuses_an_object_store(config: str, capsys: pytest.CaptureFixture[str]):
    file = Path(config)
    file.write_text(file.read_text().replace("./table", "s3://bucket/table"))
    assert main(["table", "create", "-c", config]) == 2
    assert "object stores are not supported" in capsys.readouterr().err


def test_adopt_refuses_another_schema_of_keys(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    new_table(tmp_path / "table")
    file = Path(config)
    file.write_text(file.read_text().replace("partition: [day]", "partition: []"))
    assert main(["table", "adopt", "-c", config]) == 2
    assert "table.partition: (), but the table has ('day',)" in capsys.readouterr().err


def test_adopt_without_table_says_so(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", "adopt", "-c", config]) == 1
    assert "is no Hudi table" in capsys.readouterr().err
    assert not (tmp_path / "table" / ".hoodie").exists()


def test_adopt_drops_stats(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    new_table(tmp_path / "table").commit(orders(("k1", "2026-01-01", 1)))
    properties = tmp_path / "table" / ".hoodie" / "hoodie.properties"
    key = "hoodie.table.metadata.partitions="
    properties.write_text(properties.read_text().replace(key, f"{key}column_stats,"))
    assert main(["table", "adopt", "-c", config, "--drop-stats", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dropped"] == ["column_stats"]
    assert "column_stats" not in properties.read_text()
    assert not (tmp_path / "table" / ".hoodie" / "lock").exists()
    existing_table(tmp_path / "table").commit(orders(("k1", "2026-01-01", 2)))
    assert main(["verify", "-c", config]) == 0


def test_adopt_names_a_property_that_is_not_known_changes_nothing_and_takes_it_when_it_is_accepted(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    new_table(tmp_path / "table").commit(orders(("k1", "2026-01-01", 1)))
    properties = tmp_path / "table" / ".hoodie" / "hoodie.properties"
    text = properties.read_text().replace("timezone=UTC", "timezone=LOCAL") + "hoodie.of.later=x\n"
    properties.write_text(text)
    assert main(["table", "adopt", "-c", config, "--drop-stats", "--yes"]) == 2
    refused = capsys.readouterr().err
    assert "hoodie.of.later is 'x' (not known)" in refused
    assert "table.accept_properties" in refused
    assert properties.read_text() == text
    file = Path(config)
    accepting = "partition: [day]\n  accept_properties: [hoodie.of.later]"
    file.write_text(file.read_text().replace("partition: [day]", accepting))
    assert main(["table", "adopt", "-c", config]) == 0
    assert "hoodie.of.later=x" in properties.read_text()
    capsys.readouterr()
    assert main(["table", "describe", "-c", config, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["servable"] is True
    assert main(["config", "show", "-c", config]) == 0
    assert "hoodie.of.later" in capsys.readouterr().out


def test_describe_says_why_a_table_is_not_servable(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    new_table(tmp_path / "table").commit(orders(("k1", "2026-01-01", 1)))
    properties = tmp_path / "table" / ".hoodie" / "hoodie.properties"
    key = "hoodie.table.metadata.partitions="
    properties.write_text(properties.read_text().replace(key, f"{key}column_stats,"))
    assert main(["table", "describe", "-c", config, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["servable"] is False
    assert "column_stats" in document["not_servable"]
    assert main(["table", "describe", "-c", config]) == 0
    assert f"servable    no: {document['not_servable']}\n" in capsys.readouterr().out


def test_adopt_waits_for_no_dead_coordinator_but_names_the_way_out(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    new_table(tmp_path / "table")
    lock = tmp_path / "table" / ".hoodie" / "lock"
    lock.mkdir()
    (lock / "owner").write_text(json.dumps({"tidemark": {"term": 4, "nonce": "n"}}))
    assert main(["table", "adopt", "-c", config]) == 1
    assert "`tidemark recover` frees it" in capsys.readouterr().err
    assert lock.exists()


def test_describe_shows_what_other_writers_need(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    writer = new_table(tmp_path / "table")
    instant = writer.commit(orders(("k1", "2026-01-01", 1), ("k2", "2026-01-02", 1)))
    assert main(["table", "describe", "-c", config, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["partitions"], document["file_groups"]) == (2, 2)
    assert (document["servable"], document["not_servable"]) == (True, None)
    assert document["newest_commit"]["instant"] == instant
    options = document["foreign_writer_options"]
    assert options["hoodie.write.lock.filesystem.path"] == f"{tmp_path / 'table'}/.hoodie"
    assert main(["table", "describe", "-c", config]) == 0
    page = capsys.readouterr().out
    assert "hoodie.metadata.index.column.stats.enable=false" in page
    told = [line.strip() for line in page.splitlines() if line.startswith("  hoodie.")]
    assert len([line for line in told if line.endswith(f".filegroup.count={document['shards']}")]) == 2
    told = [line.replace(str(tmp_path / "table"), "<table>") for line in told]
    told = [re.sub(r"(?<=\.filegroup\.count=)\d+", "<shards>", line) for line in told]
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    pages = {page.name: page.read_text(encoding="utf-8").splitlines() for page in found}
    option = re.compile(r"hoodie\.[a-z.0-9_]+=[^\s,]+")
    listed = {name: each for name, lines in pages.items() if (each := list(filter(option.fullmatch, lines)))}
    # One page has the list, so that there is one to keep true, and another what column stats change in it.
    with_stats = [f"{name}={value}" for name, value in kept_stats_options(["<columns>"]).items()]
    assert listed == {"hudi-beside.md": told, "column-stats.md": with_stats}
    # Without the first two and the two about stats a procedure drops the record index.
    procedures = ",".join(line for line in told if line.startswith("hoodie.metadata."))
    assert procedures.count("=") == 7
    assert procedures in pages["hudi-beside.md"]
    assert document["procedure_options"] == procedures.replace("<shards>", str(document["shards"]))
    assert f"'{document['procedure_options']}'" in page


def test_describe_names_the_shards_that_an_index_has_to_get_once_it_was_dropped(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Built anew without both counts it would get Hudi's own number."""
    new_table(tmp_path / "table").commit(orders(("k1", "2026-01-01", 1)))
    storage = LocalStorage(tmp_path / "table")
    update_properties(storage, {table_keys.METADATA_PARTITIONS: "files"})
    shutil.rmtree(tmp_path / "table" / RECORD_INDEX_FOLDER)
    assert main(["table", "describe", "-c", config]) == 0
    page = capsys.readouterr().out
    assert "the table has no record level index" in page
    for bound in ("min", "max"):
        assert f"  hoodie.metadata.global.record.level.index.{bound}.filegroup.count=2" in page.splitlines()


def epoch(**attempt: Any) -> EpochRecord:
    return EpochRecord(3, 9, [AttemptRecord(1, "i", 100, **attempt)])


@pytest.mark.parametrize(
    ("document", "state", "took"),
    [
        (epoch(), "planned", None),
        (epoch(decided_ms=150), "decided", None),
        (epoch(decided_ms=150, committed_ms=180), "committed", 80),
        (epoch(voided="rolled back"), "void", None),
    ],
)
def test_state_and_latency_of_an_epoch(document: EpochRecord, state: str, took: int | None):
    assert document.state == state
    assert document.commit_ms == took


def test_columns_are_aligned():
    assert columns([("A", "LONG"), ("bbb", "1")], right=(1,)) == ["A    LONG", "bbb     1"]
    assert columns([]) == []


def test_lookup_tells_a_deleted_key_from_one_that_nobody_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = {"tier": "none", "partition_path": None, "file_id": None, "shard": 1, "ordering_exact": True}
    found = [{"key": "gone", **absent, "ordering": 7}, {"key": "never", **absent, "ordering": None}]
    client = SimpleNamespace(lookup=lambda keys, partition: found)
    monkeypatch.setattr("tidemark.console.admin_client.connect", lambda config: nullcontext(client))
    assert main(["lookup", "gone", "never", "-c", "x.yaml"]) == 0
    _, gone, never = capsys.readouterr().out.splitlines()
    assert gone.split() == ["gone", "none", "(deleted)", "-", "1", "7"]
    assert never.split() == ["never", "none", "-", "-", "1", "-"]
