"""Checks of the table's files: its version is supported, it matches the configuration, and its lock is
not stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.commit_coordinator.offline.table import check_table, is_half_made_here, other_stats_here
from tidemark.config import TableConfigFile
from tidemark.doctor.checks import Finding, fails, ok, skipped, warning
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.tickets import NO_TERM
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.stream_runtime.clock import Clock

_HELD_MS_MAX: Final = 60_000


def table(config: TableConfigFile, clock: Clock, served: bool) -> Iterator[Finding]:
    """Checks what a coordinator checks of the table when it starts, and the lock. `served`: a coordinator
    answers, so pending instants are its own. Raises what `check_table` raises, which says what to do.
    """
    storage = open_storage(config.table.path)
    if not storage.exists(PROPERTIES_PATH):
        used = [info.name for info in storage.list("") if info.name != ".hoodie"]
        if used:
            yield fails(
                f"{storage.base_uri} is no Hudi table and not empty (it holds {used[0]!r})",
                "Choose another table.path, or empty the folder",
            )
        else:
            yield skipped("there is no table yet: the first start makes it")
        return
    if is_half_made_here(config, storage):
        yield warning("the table's creation was interrupted", "The next start completes it")
        return
    checked = check_table(config, storage, served)
    kind = checked.table_type.value
    yield ok(f"Hudi table {checked.name}, version {checked.version}, {kind}, as configured")
    other = other_stats_here(config, storage)
    if other is not None:
        yield warning(other.text, other.remedy)
    yield from _lock(storage, clock, served)


def _lock(storage: Storage, clock: Clock, served: bool) -> Iterator[Finding]:
    holder = read_lock(storage)
    if holder is None:
        yield ok("its lock is free")
        return
    held_s = max(clock.now_ms() - holder.since_ms, 0) / 1_000
    who = "another writer" if holder.is_foreign else f"coordinator term {holder.term}"
    if holder.term == NO_TERM.offset:
        who = "a `tidemark table` command"
    text = f"its lock has been held by {who} for {held_s:.0f} s"
    if served or held_s * 1_000 < _HELD_MS_MAX:
        yield ok(text)
    elif holder.is_foreign:
        yield warning(text, "Look for a writer of Hudi on Spark; if it is dead, delete its lock file by hand")
    elif holder.term == NO_TERM.offset:
        yield warning(text, "If no command runs, give it again: it takes the lock over and frees it")
    else:
        yield warning(
            text, "No coordinator answers: start `tidemark run`, or free it with `tidemark recover`"
        )
