"""Rebuilds the record index of a small table in this process, step by step, without Spark and Kafka."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.locate import open_publication, service_files_of
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.publication.tickets import TermId, Ticket
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.rebuilding.documents import whole_build
from tidemark.hudi_format.table_services.rebuilding.planning import RebuildPlan, plan_rebuild
from tidemark.hudi_format.table_services.rebuilding.shard_files import compact_others
from tidemark.hudi_format.table_services.rebuilding.switching import RebuildFailpoint, switch
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.timeline.avro_records import encode_commit_metadata
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_writer.index_rebuild import RebuildJob, entry_pieces, shard_files

LEDGER = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


class KilledError(Exception):
    """A failpoint ended the command."""


@contextmanager
def held_term(path: Path, number: int) -> Iterator[Term]:
    """A later term of a coordinator, or of a command in its place, which holds the table's lock."""
    term = open_publication(LocalStorage(path), SystemClock(), SystemIds()).open_term(TermId(number, LEDGER))
    term.lock.acquire(1_000)
    yield term
    if term.lock.is_held:
        term.lock.release()
        term.lock.free()


def built(term: Term, plan: RebuildPlan, tasks: int = 2) -> tuple[list[Ticket], bytes]:
    """The tickets of all new base files, and the content of the commit that shows them."""
    storage = term.storage
    config, timeline = read_table_config(storage), load_timeline(storage)
    schema = table_schema(storage, config, timeline)
    assert schema is not None
    token = term.open_service(0)
    paths = tuple(plan.shard_path(shard) for shard in range(plan.shards))
    job = RebuildJob(storage.base_uri, config.name, schema.avro_json, plan.instant, paths, token, 64 << 20)
    pieces = list(entry_pieces(job, plan.slices))
    documents = [
        data
        for task in range(tasks)
        for data in shard_files(
            job,
            range(task, plan.shards, tasks),
            [piece for piece in pieces if piece[0] % tasks == task],
        )
    ]
    written = whole_build(documents, plan.shards, 1)
    with tempfile.TemporaryDirectory() as folder:
        of_action = service_files_of(storage, token)
        bounds = MergeBounds(64 << 20, Path(folder))
        files = compact_others(storage, plan.others(), plan.instant, of_action, bounds)
    tickets = [*(file.ticket for file in files if file.ticket), *(file.ticket for file in written)]
    return tickets, encode_commit_metadata(plan.commit(written, files))


def rebuild(
    path: Path, shards: int, hit: Callable[[RebuildFailpoint], None] = lambda _: None, term: int = 1
) -> RebuildPlan:
    """Rebuilds the index; leaves the document of the switch behind, as a command that died before its claim.
    The lock stays held if ``hit`` raises.
    """
    with held_term(path, term) as held:
        times = InstantGenerator(SystemClock())
        plan = plan_rebuild(held.storage, shards, times)
        tickets, commit = built(held, plan)
        switch(held, plan.rebuild(), tickets, times.next(), commit, hit)
    return plan


def killed_at(place: RebuildFailpoint) -> Callable[[RebuildFailpoint], None]:
    """What a failpoint does that ends the command there."""

    def hit(reached: RebuildFailpoint) -> None:
        if reached is place:
            raise KilledError(place)

    return hit
