"""What `table_services.clean.retain` costs in disk, as a sentence for `config check`."""

from __future__ import annotations

from tidemark.config import values
from tidemark.config.effective import shown
from tidemark.config.model import ConfiguredTableType, TableConfigFile


def former_copies(config: TableConfigFile) -> tuple[int, int]:
    """(former base files that a file group keeps at most, milliseconds from one to the next), of a file group
    that every epoch writes to.
    """
    services = config.table_services
    if config.table.type is ConfiguredTableType.COPY_ON_WRITE:
        between_ms = config.epoch.interval_ms
    else:
        rule = services.compact_data
        due_ms = min(rule.log_age_ms, rule.log_files * config.epoch.interval_ms)
        between_ms = max(due_ms, rule.min_interval_ms)
    return -(-services.clean.retain_ms // between_ms), between_ms


def retention_cost(config: TableConfigFile) -> str | None:
    """The sentence; None where Tidemark does not clean the table."""
    services = config.table_services
    if not (services.enabled and services.clean.enabled):
        return None
    copies, between_ms = former_copies(config)
    retain = shown(values.duration_ms, services.clean.retain_ms)
    between = shown(values.duration_ms, between_ms)
    if config.table.type is ConfiguredTableType.COPY_ON_WRITE:
        why = f"one for each epoch (epoch.interval {between})"
    else:
        why = f"one for each compaction, at most every {between}, and the log files that they merged"
    return (
        f"table_services.clean.retain: {retain} keeps up to {copies} former base files of a file group that "
        f"every epoch writes to: {why}. Count {copies + 1} times the bytes of such file groups in disk"
    )
