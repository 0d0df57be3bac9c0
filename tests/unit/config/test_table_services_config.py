"""The section `table_services`: defaults, what goes together, and what a retention costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.config.test_config import MINIMAL, SCHEMA
from tidemark.config import ConfigError, TableConfigFile, load_config
from tidemark.config.effective import effective_settings
from tidemark.config.reference import known_keys
from tidemark.config.retention_cost import Copies, former_copies, retention_costs
from tidemark.config.table_services_model import ServicesRun

MINUTE = 60_000


def loaded(folder: Path, section: str = "", more: str = "") -> TableConfigFile:
    (folder / "flights.avsc").write_text(json.dumps(SCHEMA))
    file = folder / "flights.yaml"
    text = f"{MINIMAL}{more}\n"
    file.write_text(text + (f"table_services: {section}\n" if section else ""))
    return load_config(file)


def test_the_defaults(tmp_path):
    services = loaded(tmp_path).table_services
    assert services.enabled is True, "also where nobody names them"
    compactions = (services.compact_index, services.compact_data)
    others = (services.clean, services.archive, services.rollback)
    assert [each.enabled for each in (*compactions, *others)] == [True] * 5
    assert services.run is ServicesRun.WRITER
    assert (services.share, services.task_memory_bytes, services.step_ms) == (0.25, 256 << 20, 50)
    assert (services.clean.retain_ms, services.retained_index_ms) == (60 * MINUTE, 60 * MINUTE)
    assert (services.archive.min, services.archive.max, services.archive.batch) == (300, 600, 100)


def test_the_indexs_retention_follows_that_of_the_table(tmp_path):
    assert loaded(tmp_path, "{clean: {retain: 1d}}").table_services.retained_index_ms == 24 * 60 * MINUTE
    apart = loaded(tmp_path, "{clean: {retain: 10m}, index_retain: 2h}").table_services
    assert (apart.clean.retain_ms, apart.retained_index_ms) == (10 * MINUTE, 120 * MINUTE)


def test_config_show_has_the_nested_keys_with_their_units(tmp_path):
    shown = {each.key: each.value for each in effective_settings(loaded(tmp_path, "{share: 0.5}"))}
    assert shown["table_services.share"] == 0.5
    assert shown["table_services.clean.retain"] == "1h"
    assert shown["table_services.index_retain"] == "1h"
    assert shown["table_services.compact_data.log_bytes"] == "64MiB"
    assert shown["table_services.run"] == "writer"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{shares: 1}", "table_services.shares: unknown key; did you mean share?"),
        ("{share: 2}", "table_services.share: must be a number from 0.01 to 1.0"),
        ("{run: elsewhere}", "table_services.run: must be one of writer, separate"),
        ("{archive: {min: 300, max: 350}}", "table_services.archive.max: must be at least"),
        ("{compact_index: {max_age: 10s}}", "table_services.compact_index.max_age: must not be below"),
        ("{task_memory: 1MiB}", "table_services.task_memory: must be at least 32MiB"),
        ("{compact_data: {log_files: 2}}", "table_services.compact_data.log_files: must be at least 3"),
        ("{compact_index: {log_files: 1}}", "table_services.compact_index.log_files: must be at least 3"),
        ("{clean: {max_files: 9}}", "table_services.clean.max_files: must be at least 10"),
        ("{index_retain: 5m}", "table_services.index_retain: must not be below clean.retain"),
        ("{clean: {retain: 60}}", "table_services.clean.retain: must be a duration"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(section, said, tmp_path):
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, section)
    assert said in str(refused.value)


def test_what_is_switched_off_may_have_any_value(tmp_path):
    off = "compact_data: {enabled: false, log_files: 1}, clean: {enabled: false, max_files: 1}"
    assert loaded(tmp_path, f"{{{off}}}").table_services.compact_data.log_files == 1
    least = loaded(tmp_path, "{compact_data: {log_files: 3}, clean: {max_files: 10}}").table_services
    assert (least.compact_data.log_files, least.clean.max_files) == (3, 10)


def test_a_retention_costs_a_copy_for_each_compaction(tmp_path):
    """What goes out of the window goes with the next clean, up to `clean.interval` later."""
    config = loaded(tmp_path, "{enabled: true}")
    assert former_copies(config) == Copies(49, 80_000, 390), "40 log files, one for each epoch of 2 s"
    slow = loaded(tmp_path, "{enabled: true}", "epoch: {interval: 5m}")
    assert former_copies(slow) == Copies(3, 30 * MINUTE, 390)
    said, _ = retention_costs(config)
    assert said.startswith("table_services.clean.retain: 1h keeps up to 49 former base files")
    assert "50 times" in said
    assert said.endswith("sooner: at most every 10s, which keeps up to 390")


def test_a_group_cannot_be_compacted_sooner_than_the_shortest_time_between_two(tmp_path):
    config = loaded(tmp_path, "{compact_data: {log_files: 3, min_interval: 1m}}")
    assert former_copies(config) == Copies(65, MINUTE, 65)
    assert "sooner" not in retention_costs(config)[0]


def test_a_retention_of_the_index_costs_a_copy_of_it_for_each_of_its_compactions(tmp_path):
    _, said = retention_costs(loaded(tmp_path, "{index_retain: 2h}"))
    assert said.startswith("table_services.index_retain: 2h keeps up to 32 former copies of the record index")
    assert "every 4m" in said
    assert said.endswith("at most every 1m, which keeps up to 125")
    _, slow = retention_costs(loaded(tmp_path, "{index_retain: 2h}", "epoch: {interval: 5m}"))
    assert "keeps up to 9 former copies" in slow, "compact_index.max_age is 15 minutes"


def test_a_retention_costs_a_copy_for_each_epoch_of_a_copy_on_write_table(tmp_path):
    config = loaded(tmp_path, "{enabled: true, clean: {retain: 10m}}")
    object.__setattr__(config.table, "type", type(config.table.type).COPY_ON_WRITE)
    assert former_copies(config) == Copies(450, 2_000, 450)
    assert "one for each epoch" in retention_costs(config)[0]


def test_nothing_is_said_where_another_engine_cleans_or_compacts(tmp_path):
    assert retention_costs(loaded(tmp_path, "{enabled: false}")) == []
    assert retention_costs(loaded(tmp_path, "{enabled: true, clean: {enabled: false}}")) == []
    [index] = retention_costs(loaded(tmp_path, "{compact_data: {enabled: false}}"))
    assert "index_retain" in index
    [data] = retention_costs(loaded(tmp_path, "{compact_index: {enabled: false}}"))
    assert "clean.retain" in data


def test_the_page_has_every_key_with_its_default():
    page = (Path(__file__).parents[3] / "docs" / "table-services.md").read_text("utf-8")
    table = page.partition("## Settings")[2].partition("\n## ")[0]
    missing = []
    for each in known_keys():
        name = each.key.rpartition(".")[2]
        if each.section == "table_services" and name != "enabled":
            default = "as `clean.retain`" if each.key == "index_retain" else str(each.default)
            row = next((line for line in table.splitlines() if f"{name}`" in line and default in line), None)
            missing += [] if row else [f"{each.key}: {default}"]
    assert missing == []
