"""`tidemark init`: which fields of the records become columns, and what is said where none does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.init.test_init import here, init, sample_file
from tidemark.cli.main import main
from tidemark.config import load_config

__all__ = ["here"]


def test_of_names_that_spark_does_not_tell_apart_the_first_is_a_column_nested_too(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    records = [{"id": n, "Id": n, "rec": {"a": 1, "A": 2}, "_hoodie_x": 1} for n in range(5)]
    done = init(capsys, "--sample", str(sample_file(here, records)), "--key", "id")
    assert (done["taken"], done["refused"]) == (5, [])
    fields = {each["name"]: each["type"] for each in json.loads(Path(done["schema"]).read_text())["fields"]}
    assert list(fields) == ["id", "rec"]
    assert [each["name"] for each in fields["rec"][1]["fields"]] == ["a"]
    assert "Spark does not tell it from id" in Path(done["config"]).read_text()


@pytest.mark.parametrize("record", [{}, {"bad-name": 1, "_hoodie_x": 2}])
def test_records_without_a_field_that_can_be_a_column_are_refused_with_the_reason(
    record: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["init", "--sample", str(sample_file(here, [record]))]) == 1
    assert "no field of the records can be a column" in capsys.readouterr().err
    assert not (here / "orders.yaml").exists()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, "x"], "3 of 6 values do not fit"),
        ([[1, "x"]], "6 of 6 values do not fit array"),
        ([{"a": 1}, [1]], "3 of 6 values do not fit"),
        ([{"a": 1}, {"a": "x"}], "3 of 6 values do not fit record"),
        ([True, 5], "3 of 6 values do not fit"),
        ([10**60], "6 of 6 values do not fit decimal"),
    ],
    ids=repr,
)
def test_a_column_that_no_type_takes_is_left_out_by_name_and_the_records_are_taken(
    values: list[Any], said: str, here: Path, capsys: pytest.CaptureFixture[str]
):
    records = [{"id": n, "m": values[n % len(values)]} for n in range(6)]
    done = init(capsys, "--sample", str(sample_file(here, records)), "--key", "id")
    assert (done["taken"], done["refused"]) == (6, [])
    (note,) = [each for each in done["notes"]["table.schema"] if each.startswith("m: ")]
    assert note.startswith(f"m: left out: {said}")
    fields = json.loads(Path(done["schema"]).read_text())["fields"]
    assert [each["name"] for each in fields] == ["id"]
    assert main(["init", "--sample", "orders.jsonl", "--key", "m"]) == 2
    assert "m (left out: " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["2024-02-30", "2024-01-01T25:00:00Z"])
def test_texts_that_only_look_like_times_are_text(text: str, here: Path, capsys: pytest.CaptureFixture[str]):
    records = [{"id": n, "seen": text} for n in range(5)]
    done = init(capsys, "--sample", str(sample_file(here, records)), "--key", "id")
    assert (done["taken"], done["refused"]) == (5, [])
    fields = {each["name"]: each["type"] for each in json.loads(Path(done["schema"]).read_text())["fields"]}
    assert fields["seen"] == ["null", "string"]


def test_whole_numbers_of_any_size_beside_fractions_are_doubles_or_no_column(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    records = [{"id": n, "a": 0.5 if n else 10**20, "b": 0.5 if n % 2 else 10**400} for n in range(6)]
    done = init(capsys, "--sample", str(sample_file(here, records)), "--key", "id")
    assert (done["taken"], done["refused"]) == (6, [])
    fields = {each["name"]: each["type"] for each in json.loads(Path(done["schema"]).read_text())["fields"]}
    assert fields == {"id": "long", "a": ["null", "double"]}


@pytest.mark.parametrize("stray", ["soon", [1], {"a": 1}, True])
def test_one_broken_record_among_many_is_refused_and_its_column_stays(
    stray: Any, here: Path, capsys: pytest.CaptureFixture[str]
):
    records: list[dict[str, Any]] = [{"id": n, "version": n} for n in range(100)]
    records[7]["version"] = stray
    done = init(capsys, "--sample", str(sample_file(here, records)), "--key", "id")
    assert (done["taken"], done["ordering"]) == (99, "version")
    assert "version" in done["refused"][0]


def test_a_field_that_is_no_flag_everywhere_does_not_say_what_a_delete_is(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    records = [{"id": n, "_deleted": [True, 5][n % 2]} for n in range(6)]
    done = init(capsys, "--sample", str(sample_file(here, records)), "--key", "id")
    assert (done["taken"], done["refused"]) == (6, [])
    assert load_config(Path(done["config"]), {}).input.delete_field is None


def test_fields_of_deletes_count_for_the_type_of_a_column(here: Path, capsys: pytest.CaptureFixture[str]):
    records = [{"id": n, "tags": [n] if n % 2 else [], "_deleted": n % 2 == 1} for n in range(6)]
    done = init(capsys, "--sample", str(sample_file(here, records)), "--key", "id")
    assert (done["taken"], done["refused"]) == (6, [])
    fields = {each["name"]: each["type"] for each in json.loads(Path(done["schema"]).read_text())["fields"]}
    assert fields["tags"][1]["items"] == ["null", "long"]


def test_a_column_that_is_empty_in_a_record_is_not_proposed_as_a_key(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    records = [{"id": str(n) if n else "", "code": f"c{n}"} for n in range(5)]
    done = init(capsys, "--sample", str(sample_file(here, records)))
    assert (done["record_key"], done["taken"], done["refused"]) == (["code"], 5, [])


def test_what_init_writes_takes_the_deletes_of_the_sample(here: Path, capsys: pytest.CaptureFixture[str]):
    records = [{"key": f"k{number}", "order_id": number, "_deleted": False} for number in range(4)]
    records.append({"key": "", "order_id": 2, "_deleted": True})
    done = init(capsys, "--sample", str(sample_file(here, records)))
    assert (done["record_key"], done["taken"], done["refused"]) == (["order_id"], 5, [])


def test_a_column_that_deletes_of_change_events_leave_empty_is_no_key(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    """By PostgreSQL's default replica identity `before` of a delete has the primary key and no more."""

    def event(number: int) -> dict[str, Any]:
        row = {"order_id": f"o{number}", "id": number}
        if number < 8:
            return {"before": None, "after": row, "source": {"lsn": number}, "op": "c"}
        before = {"order_id": None, "id": number - 8}
        return {"before": before, "after": None, "source": {"lsn": number}, "op": "d"}

    done = init(capsys, "--sample", str(sample_file(here, [event(number) for number in range(10)])))
    assert (done["record_key"], done["taken"]) == (["id"], 10)
