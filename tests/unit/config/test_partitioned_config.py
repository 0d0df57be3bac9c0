"""What a partitioned record index cannot be used with, and what `config check` says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.table_files import SCHEMA, write_config, write_partitioned_config
from tidemark.cli.main import main
from tidemark.config import load_config
from tidemark.config.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_partitioned_config(tmp_path)


def replace(file: Path, former: str, text: str) -> None:
    before = file.read_text()
    assert former in before
    file.write_text(before.replace(former, text))


def test_a_table_without_partition_fields_is_refused(file: Path) -> None:
    replace(file, "  partition: [day]\n", "")
    with pytest.raises(ConfigError, match=r"table\.index\.kind: partitioned .* use global"):
        load_config(file, {})
    replace(file, "kind: partitioned", "kind: global")
    load_config(file, {})


def test_a_partition_field_that_the_schema_lacks_is_told_alone(file: Path) -> None:
    replace(file, "partition: [day]", "partition: [nopart]")
    with pytest.raises(ConfigError) as raised:
        load_config(file, {})
    assert "has no field nopart" in str(raised.value)
    assert "table.index.kind" not in str(raised.value)


def test_input_that_is_partitioned_by_lane_is_refused(file: Path) -> None:
    replace(file, "topics: [orders-in]", "topics: [orders-in], partitioning: shard")
    with pytest.raises(ConfigError, match=r"input\.partitioning: must be any with table\.index\.kind"):
        load_config(file, {})
    replace(file, "kind: partitioned", "kind: global")
    load_config(file, {})


def test_a_dot_that_is_in_every_partition_path_is_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = {"type": "record", "name": "place", "fields": [{"name": "city", "type": "string"}]}
    fields = [*SCHEMA["fields"], {"name": "at_place", "type": place}]
    (tmp_path / "orders.avsc").write_text(json.dumps({**SCHEMA, "fields": fields}))
    replace(file, "partition: [day]", "partition: [day, at_place.city]")
    assert main(["config", "check", "-c", str(file)]) == 0
    file.write_text(f"{file.read_text()}hoodie: {{hoodie.datasource.write.hive_style_partitioning: true}}\n")
    assert main(["config", "check", "-c", str(file)]) == 2
    assert "puts the name of at_place.city into each partition path" in capsys.readouterr().err


def test_config_check_says_what_is_given_up(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> str:
        assert main(["config", "check", "-c", str(file)]) == 0
        return capsys.readouterr().out

    said = told()
    for part in (
        "unique in each data partition only",
        "the old one stays",
        "Hudi 1.2.0 does not use this index",
        "secondary indexes",
        "a dot go to the dead letters",
        "A record with a null value names none",
    ):
        assert part in said
    replace(file, "topics: [orders-in]", "topics: [orders-in], delete_field: gone")
    assert "A record with a null value" not in told()
    write_config(tmp_path)
    assert "table.index.kind" not in told()


def test_the_example_of_the_documentation_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs/partitioned-index.md").read_text()
    [example] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "events.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "events.yaml").write_text(example)
    assert main(["config", "check", "-c", str(tmp_path / "events.yaml")]) == 0
    assert "unique in each data partition only" in capsys.readouterr().out
    assert main(["table", "create", "-c", str(tmp_path / "events.yaml")]) == 0
    assert "each new data partition gets shards" in capsys.readouterr().out
    assert main(["table", "describe", "-c", str(tmp_path / "events.yaml")]) == 0
    assert "partitioned, 0 shards in 0 data partitions" in capsys.readouterr().out
