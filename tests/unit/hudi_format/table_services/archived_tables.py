"""A timeline in memory with instants of all kinds, and archivers that take turns with it."""

from __future__ import annotations

import io
from collections.abc import Callable

from testing.faulty_storage import FaultyStorage
from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tests.hudi_rules.table import DATA, HudiTable
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_services.archive_planning import ArchivedName, ArchivePlan
from tidemark.hudi_format.table_services.archiving import (
    Merge,
    delete_instants,
    publish_merged,
    publish_rows,
    write_merged,
)
from tidemark.hudi_format.timeline import ArchivedInstant, ArchivedTimeline, load_timeline

HISTORY = f"{DATA}/history"


def t(n: int) -> str:
    return f"202601010000{n:05d}"


def files_of(n: int, action: str = "deltacommit", done: str | None = None) -> dict[str, bytes]:
    return {
        f"{t(n)}.{action}.requested": b"requested %d" % n,
        f"{t(n)}.{action}.inflight": b"" if action == "clustering" else b"inflight %d" % n,
        f"{t(n)}_{t(n + 5)}.{done or action}": b"completed %d" % n,
    }


KINDS = {
    10: ("deltacommit", "deltacommit"),
    20: ("compaction", "commit"),
    30: ("clean", "clean"),
    40: ("replacecommit", "replacecommit"),
    50: ("clustering", "replacecommit"),
    60: ("rollback", "rollback"),
    70: ("logcompaction", "deltacommit"),
}
PLAN = ArchivePlan(False, tuple(ArchivedName(t(n), t(n + 5), kind) for n, (kind, _) in KINDS.items()))
GOING = [ArchivedInstant(t(n), t(n + 5), done, b"completed %d" % n, b"") for n, (_, done) in KINDS.items()]
PLANS = {
    20: b"requested 20", 30: b"requested 30", 40: b"inflight 40", 50: b"requested 50", 70: b"requested 70",
}  # fmt: skip
ROWS = [row._replace(plan=PLANS.get(int(row.requested[-5:]), b"")) for row in GOING]


def table() -> InMemoryStorage:
    storage = InMemoryStorage()
    for n, (action, done) in KINDS.items():
        for name, content in files_of(n, action, done).items():
            storage.create(f"{DATA}/{name}", content)
    for name, content in (files_of(80) | {f"{t(90)}.deltacommit.requested": b""}).items():
        storage.create(f"{DATA}/{name}", content)
    return storage


def check(storage: Storage) -> None:
    """All that counted counts, and nothing else."""

    def names(folder: str) -> list[str]:
        return [info.name for info in storage.list(folder) if not info.is_dir]

    by_rules = HudiTable(names, storage.read, {}).timeline
    ours = load_timeline(storage)
    for n in (*KINDS, 80):
        assert by_rules.counts(t(n))
        assert by_rules.completion(t(n)) == t(n + 5)
        assert ours.is_committed(t(n))
        assert ours.completion_time(t(n)) == t(n + 5)
    for n in (85, 90, 99):
        assert not by_rules.counts(t(n))
        assert not ours.is_committed(t(n))
    assert [each.requested for each in ours.pending()] == [t(90)]


def archived(storage: Storage) -> list[ArchivedInstant]:
    return ArchivedTimeline(storage).instants()


class Turn:
    """One coordinator's turn, with the lock."""

    def __init__(self, storage: FaultyStorage, number: int) -> None:
        self.storage = storage
        self.term = begin_term(storage, number)
        self.term.lock.acquire(0, ends_epoch=True)
        self.hits: list[str] = []

    def delete(self, path: str) -> bool:
        self.term.lock.check()
        return self.storage.delete(path)

    def archive(self, plan: ArchivePlan = PLAN, hit: Callable[[str], None] | None = None) -> None:
        hit = hit or self.hits.append
        publish_rows(self.term, plan, self.term.lock.lease(), self.delete, hit)
        assert delete_instants(self.storage, plan, self.delete, hit, lambda: False)

    def merge(self, merge: Merge) -> bool:
        sink = io.BytesIO()
        write_merged(self.storage, merge, sink)
        ticket = self.term.prepare(merge.path, sink.getvalue())
        return publish_merged(self.term, merge, ticket, self.term.lock.lease(), self.delete, self.hits.append)


def names_of(storage: Storage, folder: str = DATA) -> list[str]:
    return sorted(info.name for info in storage.list(folder) if not info.is_dir)
