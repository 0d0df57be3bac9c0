"""Stories of keys in tables that Hudi on Spark wrote: the row that is read, former versions, commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.test_spark_slices import NAMES, SparkTable
from tidemark.admin.v1 import admin_pb2
from tidemark.hudi_format.file_group.base_file import COMMIT_SEQNO, RECORD_KEY
from tidemark.page.key_story import KeyStories
from tidemark.page.plain_values import user_columns
from tidemark.stream_runtime.clock import SystemClock


def stories(table: SparkTable, places: dict[str, str]) -> KeyStories:
    """``places``: record key -> file id, as an assigner would answer."""

    def lookup(keys: list[str], _: str | None) -> list[Any]:
        found = admin_pb2.LookupResponse.Found
        return [
            found(key=key, tier="mdt", file_id=places[key]) if key in places else found(key=key, tier="none")
            for key in keys
        ]

    return KeyStories(lookup, table.storage, table.config, lambda _: {}, SystemClock(), 8 << 10)


@pytest.mark.parametrize("name", NAMES)
def test_stories_end_with_the_row_that_spark_reads(name: str, tmp_path: Path) -> None:
    table = SparkTable(name, tmp_path)
    (only,) = table.slices()
    rows = {row[RECORD_KEY]: row for row in table.read().to_pylist()}
    told_by = stories(table, dict.fromkeys(rows, only.file_id))
    several = 0
    for key, row in list(rows.items())[:60]:
        told = told_by.story(key)
        assert "files_error" not in told, told
        assert told["merged"] == user_columns(row)
        json.dumps(told, allow_nan=False)
        read = [version for version in told["versions"] if version["is_read"]]
        assert [version["row"] for version in read] == [told["merged"]]
        # Another engine's commits belong to no epoch, but they have a time.
        assert {version["epoch"] for version in told["versions"]} == {None}
        assert all(version["completion"] for version in told["versions"])
        several += len(told["versions"]) > 1
    assert several > 0, "no key of this table was ever updated"
    assert told_by.story(str(told_by.some_key("", only.file_id)))["versions"]
    told_by.close()


def test_rewritten_base_files_tell_each_former_row_once(tmp_path: Path) -> None:
    table = SparkTable("cow_long", tmp_path)
    (only,) = table.slices()
    rows = table.read().to_pylist()
    told_by = stories(table, {row[RECORD_KEY]: only.file_id for row in rows})
    told = [told_by.story(row[RECORD_KEY]) for row in rows[:60]]
    earlier = [each for each in told if each["versions"][0]["slice"] == "earlier"]
    assert earlier
    for each in earlier:
        assert each["slice"]["earlier_slices"] >= 1
        assert [version["slice"] for version in each["versions"]].count("current") == 1
        contents = [json.dumps(version["row"]) + version["instant"] for version in each["versions"]]
        assert len(set(contents)) == len(contents)
    assert COMMIT_SEQNO not in {name for each in told for name, _ in each["merged"]}
    told_by.close()


def test_a_key_whose_file_group_has_no_files_yet_is_placed_and_has_no_versions(tmp_path: Path) -> None:
    table = SparkTable("mor_long", tmp_path)
    told_by = stories(table, {"new": "00000000-0000-4000-8000-000000000000-0"})
    told = told_by.story("new")
    assert (told["found"], told["slice"], told["versions"]) == (True, None, [])
    told_by.close()


def test_a_deleted_key_is_told_with_the_ordering_value_of_its_delete(tmp_path: Path) -> None:
    table = SparkTable("mor_long", tmp_path)
    deleted = admin_pb2.LookupResponse.Found(key="gone", tier="none", has_ordering=True, ordering=7)
    told_by = KeyStories(
        lambda *_: [deleted], table.storage, table.config, lambda _: {}, SystemClock(), 8 << 10
    )
    told = told_by.story("gone")
    assert (told["found"], told["deleted"], told["versions"]) == (False, True, [])
    assert told["ordering_field"] is not None
    assert told["ordering"] is not None
    told_by.close()
    told_by = stories(table, {})
    told = told_by.story("never")
    assert (told["found"], told["deleted"]) == (False, False)
    told_by.close()
