"""`tidemark init`: which fields of the records become columns, and what is said where none does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tidemark_cli.test_init import here, init, sample_file
from tidemark_cli.main import main

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
