"""The checks and the printed lines of `tidemark table adopt`; `commit_coordinator.offline` does the work.

Functions that return a document and lines return the two forms of one answer: `--json` and text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tidemark.cli.reachable_kafka import reachable_kafka
from tidemark.cli.secondary_index import answer_of
from tidemark.commit_coordinator.offline import adoption
from tidemark.commit_coordinator.offline.moved_table import take_over_moved
from tidemark.commit_coordinator.offline.new_ledger import (
    NewLedger,
    check_new_ledger,
    new_ledger,
    prepare_topics,
)
from tidemark.commit_coordinator.offline.secondary_index import repair_index
from tidemark.commit_coordinator.offline.watch import WATCHED_S, is_served
from tidemark.config import TableConfigFile
from tidemark.config.run_file import read_run_file
from tidemark.console.errors import WRONG_USE, CliError
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.ledger_client.topics import TopicNames, topic_specs
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.rpc.health import is_serving
from tidemark.stream_runtime.security.client import client_security


def check_adoptable(config: TableConfigFile, stats: bool, pending_allowed: bool = False) -> None:
    """Raises every error that `adopt_table` cannot avoid before anything is changed, and CliError while
    services of the table run. The arguments are those of `adopt_table`.
    """
    refuse_while_serving(config)
    adoption.check_adoptable(config, stats, pending_allowed)


def adopt_table(
    config: TableConfigFile,
    clock: Clock,
    ids: IdSource,
    stats: bool,
    say: Callable[[str], None],
    pending_allowed: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """Adopts the table and returns the answer of `offline.adoption.adopt_table`. Call `check_adoptable`
    before. Secondary indexes are compared with the rows, and put right; not where writes may be pending,
    which `pending_allowed` allows.
    """
    adopted = adoption.adopt_table(config, clock, ids, stats, pending_allowed)
    document, pinned, dropped, kept, secondary = adopted
    lines = [_can_be_served(document)]
    lines += ["its timeline's time zone is now UTC: restart other writers"] if pinned else []
    lines += [f"switched off: {', '.join(dropped)}"] if dropped else []
    lines += kept.lines
    stats_of = {"columns": list(kept.columns), "wrong": [list(wrong) for wrong in kept.wrong]}
    document |= {"timezone_set": pinned, "dropped": dropped, "column_stats": stats_of}
    names = [name.removeprefix(SECONDARY_PREFIX) for name in secondary]
    if pending_allowed:
        lines += [f"{name} was not compared with the rows: `tidemark index repair` does" for name in names]
        return document, lines
    indexes = [answer_of(repair_index(config, clock, ids, name, say)) for name in names]
    document["secondary_indexes"] = [index for index, _ in indexes]
    return document, lines + [line for _, told in indexes for line in told]


def check_moved(config: TableConfigFile, clock: Clock) -> tuple[dict[str, Any], list[str]]:
    """Checks a table that was moved and returns the answer of `offline.adoption.check_moved`. Raises CliError
    while services of the table run.
    """
    refuse_while_serving(config)
    document = adoption.check_moved(config, clock)
    return document, [_can_be_served(document)]


def _can_be_served(document: dict[str, Any]) -> str:
    return f"{document['type']} table {document['name']} at {document['path']} can be served"


def what_adopt_deletes(config: TableConfigFile, stats: bool, new_ledger: bool) -> list[str]:
    """What the options let `table adopt` delete, as text for `confirm`; empty when nothing is deleted."""
    deleted = []
    if stats:
        deleted.append(f"column and partition stats of {config.table.path}, if it has any")
    if new_ledger:
        names = TopicNames(config.table.name)
        own = (names.keyed, names.data, names.index, names.tombstones, names.ledger, names.epochs)
        deleted.append(f"the topics {', '.join(own)} on {config.kafka.bootstrap_servers}, if they are there")
    return deleted


def move_ledger(
    config: TableConfigFile, clock: Clock, ids: IdSource, say: Callable[[str], None]
) -> list[str]:
    """Records the table's new place in its ledger (`commit_coordinator.offline.moved_table`). Raises CliError
    while services of the table run.
    """
    refuse_while_serving(config)
    with reachable_kafka(config, clock, say, "tidemark table adopt --moved") as reachable:
        client = ConfluentKafkaClient.from_config(reachable, clock=clock)
        moved = take_over_moved(reachable, client, open_storage(config.table.path), clock, ids)
    return [f"the ledger goes on with the table at {moved.path}"]


@contextmanager
def ready_for_new_ledger(
    config: TableConfigFile, clock: Clock, ids: IdSource, say: Callable[[str], None], copied: bool = False
) -> Iterator[Callable[[], tuple[dict[str, Any], list[str]]]]:
    """Checks that a new ledger can be begun, and yields the function that begins it and returns the answer.

    Every reason to refuse is raised before the block: CliError while services of the table run, or, when the
    table is ``copied``, if topics of its name exist; and the errors of
    `commit_coordinator.offline.new_ledger`.
    """
    refuse_while_serving(config)
    storage = open_storage(config.table.path)
    with reachable_kafka(config, clock, say, "tidemark table adopt --new-ledger") as reachable:
        client = ConfluentKafkaClient.from_config(reachable, clock=clock)
        if copied:
            refuse_topics(reachable, client)
        check_new_ledger(reachable, client, storage, clock, ids)
        prepare_topics(reachable, client)
        yield lambda: _told(new_ledger(reachable, client, storage, clock, ids))


def _told(begun: NewLedger) -> tuple[dict[str, Any], list[str]]:
    lines = [f"new ledger after epoch {begun.epoch} (instant {begun.instant or '-'})"]
    lines += [f"  {lane} continues at {position}" for lane, position in sorted(begun.positions.items())]
    lines += [
        f"  {lane} is read from the start of its topic, which does not hold all records that were to come"
        for lane in begun.anew
    ]
    lines += [f"  rolled back: {instant}" for instant in begun.rolled_back]
    lines.append("from these positions on the input is applied at least once; earlier tombstones are gone")
    document = {
        "epoch": begun.epoch,
        "instant": begun.instant,
        "positions": begun.positions,
        "begin_anew": begun.anew,
        "rolled_back": begun.rolled_back,
    }
    return document, lines


def refuse_topics(config: TableConfigFile, client: ConfluentKafkaClient) -> None:
    """Raises CliError when topics of the table's name exist. For a copied table they belong to the original,
    or to another table.
    """
    admin = client.admin()
    try:
        there = [spec.name for spec in topic_specs(config) if admin.partitions(spec.name) is not None]
    finally:
        admin.close()
    if there:
        raise CliError(
            f"{config.file}: a copy needs a table.name of its own: topic {there[0]} is on "
            f"{config.kafka.bootstrap_servers} already",
            WRONG_USE,
        )


def refuse_while_serving(config: TableConfigFile) -> None:
    """Raises CliError when a `tidemark run` on this machine, or a coordinator at `services.coordinator`,
    serves the table.
    """
    running = read_run_file(config.state.path)
    if running is not None:
        raise CliError(f"`tidemark run` (process {running.run}) serves this table: stop it first")
    at = config.services.coordinator
    if at.port and is_serving(at, security=client_security(config)):
        raise CliError(f"a coordinator serves at {at}: stop the table's services first")


def refuse_while_served_elsewhere(config: TableConfigFile, clock: Clock, say: Callable[[str], None]) -> None:
    """Raises CliError when a coordinator serves the table's folder at any address, found by its sign of life
    in the folder: also a coordinator of another configuration, and one that has nothing to commit.
    """
    path = config.table.path

    def waits() -> None:
        say(f"a coordinator served {path}: looking for {WATCHED_S:.0f} s whether it still does")

    if is_served(open_storage(path), clock, waits):
        raise CliError(
            f"a coordinator serves {path}, and not at {config.services.coordinator}: `tidemark run` or a "
            "service with another configuration, or on another machine. Stop it first"
        )
