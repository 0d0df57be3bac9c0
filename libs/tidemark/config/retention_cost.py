"""What the retentions of `table_services` cost in disk, as sentences for `config check`."""

from __future__ import annotations

from typing import NamedTuple

from tidemark.config import values
from tidemark.config.effective import shown
from tidemark.config.model import ConfiguredTableType, TableConfigFile


class Copies(NamedTuple):
    """Former base files that are kept at most. ``usual``: one comes after ``between_ms``, when the number or
    the age of log files triggers a compaction. ``most``: one comes as soon as a compaction may, because the
    bytes of log files trigger it.
    """

    usual: int
    between_ms: int
    most: int


def former_copies(config: TableConfigFile) -> Copies:
    """Those of a file group that every epoch writes to."""
    services, interval_ms = config.table_services, config.epoch.interval_ms
    kept_ms = _kept_ms(config, services.clean.retain_ms)
    if config.table.type is ConfiguredTableType.COPY_ON_WRITE:
        return _copies(kept_ms, interval_ms, interval_ms)
    rule = services.compact_data
    due_ms = min(rule.log_age_ms, rule.log_files * interval_ms)
    return _copies(kept_ms, due_ms, rule.min_interval_ms)


def former_copies_of_index(config: TableConfigFile) -> Copies:
    """Those of the record index: a compaction of the metadata table takes all shards."""
    services, rule = config.table_services, config.table_services.compact_index
    due_ms = min(rule.max_age_ms, rule.log_files * config.epoch.interval_ms)
    return _copies(_kept_ms(config, services.retained_index_ms), due_ms, rule.min_interval_ms)


def retention_costs(config: TableConfigFile) -> list[str]:
    """The sentences; none where Tidemark does not clean the table."""
    services = config.table_services
    if not (services.enabled and services.clean.enabled):
        return []
    costs: list[str] = []
    is_copy_on_write = config.table.type is ConfiguredTableType.COPY_ON_WRITE
    if is_copy_on_write or services.compact_data.enabled:
        costs.append(_of_data(config, is_copy_on_write))
    if services.compact_index.enabled:
        costs.append(_of_index(config))
    return costs


def _of_data(config: TableConfigFile, is_copy_on_write: bool) -> str:
    services, copies = config.table_services, former_copies(config)
    between = _time(copies.between_ms)
    sooner = _sooner(copies, services.compact_data.min_interval_ms, "log_ratio or log_bytes")
    if is_copy_on_write:
        why = f"one for each epoch (epoch.interval {between})"
    else:
        why = (
            f"one for each compaction, every {between} by their log files, and the log files that they merged"
        )
    return (
        f"table_services.clean.retain: {_time(services.clean.retain_ms)} keeps up to {copies.usual} former "
        f"base files of a file group that every epoch writes to: {why}. Count {copies.usual + 1} times the "
        f"bytes of such file groups in disk{sooner}"
    )


def _of_index(config: TableConfigFile) -> str:
    services, copies = config.table_services, former_copies_of_index(config)
    sooner = _sooner(copies, services.compact_index.min_interval_ms, "log_ratio")
    return (
        f"table_services.index_retain: {_time(services.retained_index_ms)} keeps up to {copies.usual} former "
        "copies of the record index: one for each compaction of the metadata table, every "
        f"{_time(copies.between_ms)} by its log files. Count {copies.usual + 1} times the bytes of the index "
        f"in disk{sooner}"
    )


def _sooner(copies: Copies, min_ms: int, triggers: str) -> str:
    if copies.most <= copies.usual:
        return ""
    return (
        f". Where the bytes of log files trigger it ({triggers}), a compaction comes sooner: at most every "
        f"{_time(min_ms)}, which keeps up to {copies.most}"
    )


def _kept_ms(config: TableConfigFile, retain_ms: int) -> int:
    """How long a superseded file stays at most: it goes with the first clean after its retention."""
    return retain_ms + config.table_services.clean.interval_ms


def _copies(kept_ms: int, due_ms: int, min_ms: int) -> Copies:
    between_ms = max(due_ms, min_ms)
    return Copies(-(-kept_ms // between_ms), between_ms, -(-kept_ms // min_ms))


def _time(millis: int) -> str:
    return str(shown(values.duration_ms, millis))
