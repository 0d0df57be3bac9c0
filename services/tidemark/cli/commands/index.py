"""`tidemark index`: `warm` loads the record index into the assigners' run files before it is asked for,
`create` makes column stats or a secondary index of the table, `repair` and `drop` are for secondary indexes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from tidemark.console.arguments import Commands, add_command, add_group
from tidemark.console.errors import WRONG_USE, CliError
from tidemark.console.output import Output
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

if TYPE_CHECKING:
    from tidemark.config import TableConfigFile
    from tidemark.console.admin_client import AdminClient, Warmth
    from tidemark.stream_runtime.clock import Clock

_ASK_EVERY_S: Final = 1.0
_NO_ASSIGNER: Final = "NO_ASSIGNER"
# An assigner answers between two batches. On a cold index one may take half a minute.
_BUSY_S: Final = 180.0
# A coordinator that answers may have assigners that are about to start.
_STARTING_S: Final = 20.0
# A lane moves within two leases, and a load shows entries every second.
_STILL_S: Final = 300.0
_PERCENT: Final = 100


class _Progress(Protocol):
    """How far the loads are (`WarmIndexResponse`)."""

    @property
    def shards(self) -> int: ...
    @property
    def loaded(self) -> int: ...
    @property
    def left(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def entries_max(self) -> int: ...


def add(commands: Commands) -> None:
    """Adds the group."""
    group = add_group(commands, "index", "the table's indexes, and the assigners' copies of its record index")
    add_command(
        group,
        "index warm",
        run_warm,
        "load the record index into run files on the assigners' disks, ahead of the first look-ups",
        "  tidemark index warm -c flights.yaml\n\n"
        "Assigners that run are asked, and load beside their work; Ctrl-C ends the command, not the loads.\n"
        "Where none runs, the command itself loads the whole index into the cache folder that the first\n"
        "assigner of this machine will take (state.path); Ctrl-C costs the shard that is being loaded.\n"
        "What does not fit into state.disk is not loaded, and is read from the table's files as before.",
    )
    create = add_command(
        group,
        "index create",
        run_create,
        "make column stats (no service may run) or a secondary index, by which readers pass over files",
        "  tidemark index create -c flights.yaml --column-stats day,price\n\n"
        "Reads these columns of all files, and writes the least and the greatest value of each file into\n"
        "the metadata table; from then on each commit of Tidemark's adds those of its files. In place of\n"
        "column stats that are there, if any. Killed, it leaves the table without: run it again.\n"
        "docs/column-stats.md says what Hudi's readers make of them.\n\n"
        "  tidemark index create -c flights.yaml by_city --column city\n\n"
        "With a name and --column: a secondary index, by which readers find the rows of a value. Reads the\n"
        "column of all rows; from then on each commit of Tidemark's keeps it. Services and other writers\n"
        "may run: at the end no epoch is planned for a moment. Killed, it leaves the table without the\n"
        "index; what was half made a coordinator takes out after two minutes: run it again\n"
        "(docs/secondary-index.md).",
    )
    create.add_argument("name", nargs="?", metavar="NAME", help="of the secondary index")
    create.add_argument("--column", help="the secondary index's column")
    create.add_argument("--column-stats", metavar="COLUMNS", help="the columns, with commas between them")
    repair = add_command(
        group,
        "index repair",
        run_repair,
        "compare a secondary index with the rows, and put right what is wrong",
        "  tidemark index repair -c flights.yaml by_city\n\n"
        "Writes the wrong entries alone, in a commit without rows. An index that cannot be read, or has\n"
        "more than 100 000 wrong entries, is made anew. Services and other writers may run. Killed, it\n"
        "leaves the index as it was or repaired, or, while it is made anew, the table without: run it again.",
    )
    repair.add_argument("name", metavar="NAME", help="of the secondary index")
    drop = add_command(
        group,
        "index drop",
        run_drop,
        "drop a secondary index",
        "  tidemark index drop -c flights.yaml by_city",
    )
    drop.add_argument("name", metavar="NAME", help="of the secondary index")


def run_create(options: argparse.Namespace) -> int:
    """Makes column stats or a secondary index. Raises CliError for column stats while services run."""
    use_arrow_alone()
    from tidemark.cli.column_stats import create
    from tidemark.cli.secondary_index import create as create_secondary
    from tidemark.config import load_config

    if (options.column_stats is None) == (options.name is None) or bool(options.name) != bool(options.column):
        raise CliError("give --column-stats, or a name and --column", WRONG_USE)
    if options.name is not None:
        output = Output(options.json)
        loaded = load_config(options.config)
        output.answer(*create_secondary(loaded, options.name, options.column, output.say))
        return 0
    columns = [name.strip() for name in options.column_stats.split(",") if name.strip()]
    if not columns:
        raise CliError("--column-stats names no column", WRONG_USE)
    output = Output(options.json)
    output.answer(*create(load_config(options.config), columns, output.say))
    return 0


def run_repair(options: argparse.Namespace) -> int:
    """Compares a secondary index with the rows, and puts it right."""
    use_arrow_alone()
    from tidemark.cli.secondary_index import repair
    from tidemark.config import load_config

    output = Output(options.json)
    output.answer(*repair(load_config(options.config), options.name, output.say))
    return 0


def run_drop(options: argparse.Namespace) -> int:
    """Drops a secondary index. Raises CliError where there is none."""
    use_arrow_alone()
    from tidemark.cli.secondary_index import drop
    from tidemark.config import load_config

    output = Output(options.json)
    output.answer(*drop(load_config(options.config), options.name, output.say))
    return 0


def run_warm(options: argparse.Namespace) -> int:
    """Returns when everything is loaded. Exit code 1 when a part is not."""
    use_arrow_alone()
    from tidemark.cli.answering import answering_coordinator
    from tidemark.config import load_config
    from tidemark.stream_runtime.clock import SystemClock
    from tidemark.stream_runtime.rpc.errors import RpcError

    output, clock = Output(options.json), SystemClock()
    say = _saying(output)
    loaded = load_config(options.config)
    client = answering_coordinator(loaded, options.config)
    if client is not None:
        with client:
            try:
                return _answer(output, _asked(client, clock, output, say), "assigners")
            except RpcError as error:
                if error.info.reason != _NO_ASSIGNER:
                    raise
    return _answer(output, _by_itself(loaded, options.config, output, clock, say), "folder")


def _asked(client: AdminClient, clock: Clock, output: Output, say: Callable[[_Progress], None]) -> _Progress:
    """Asks until every shard of the table is loaded, as long as something changes.

    1. While something is left to load, or no assigner holds some shards (their lane moves), it waits.
    2. When nothing is left of all shards it asks for the rest anew: an assigner that opened a lane anew
       (another writer has committed, a lane moved, it started again) has forgotten what was left.
    3. When that ends with as many loaded shards as before, the rest has no room.

    Raises CliError when nothing changes for `_STILL_S`.
    """
    progress = _answered(client, clock, output, True, _STARTING_S)
    changes, at_rest = _Changes(clock), -1
    while True:
        shards = max(progress.table_shards, progress.shards)
        is_at_rest = not progress.left and progress.shards == shards
        whole = progress._replace(shards=shards)
        if progress.loaded >= shards or (is_at_rest and progress.loaded == at_rest):
            return whole
        if is_at_rest:
            at_rest = progress.loaded
        else:
            say(whole)
            changes.check(progress, shards)
            clock.sleep(_ASK_EVERY_S)
        progress = _answered(client, clock, output, not progress.left, _BUSY_S)


class _Changes:
    """Whether the loads go on. Entries count where they are more than before: a shard whose load fails again
    and again has some of them each time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._since_s = clock, clock.monotonic_s()
        self._seen, self._entries = (-1, -1, -1), -1

    def check(self, progress: Warmth, shards: int) -> None:
        """Raises CliError where nothing has changed for `_STILL_S`. ``shards``: of the table."""
        seen, now_s = (progress.shards, progress.loaded, progress.left), self._clock.monotonic_s()
        if seen != self._seen or progress.entries > self._entries:
            self._seen, self._entries, self._since_s = seen, progress.entries, now_s
        elif now_s - self._since_s >= _STILL_S:
            raise CliError(
                f"nothing changed for {_STILL_S:.0f} s: {progress.loaded} of {shards} shards are loaded, "
                f"{progress.left} are left, no assigner holds {shards - progress.shards}. `tidemark status` "
                "and the assigners' logs say what they do; run the command again"
            )


def _answered(client: AdminClient, clock: Clock, output: Output, start: bool, nobody_s: float) -> Warmth:
    """How far the loads are. An assigner that is busy or opens its lanes is asked again, and for ``nobody_s``
    also where there is none: one may be starting. Raises RpcError.
    """
    from tidemark.errors import ErrorKind
    from tidemark.stream_runtime.retry import Deadline
    from tidemark.stream_runtime.rpc.errors import RpcError

    deadline, of_nobody, is_told = Deadline(clock, _BUSY_S), Deadline(clock, nobody_s), False
    while True:
        try:
            return client.warm_index(start)
        except RpcError as error:
            is_over = of_nobody.is_over if error.info.reason == _NO_ASSIGNER else deadline.is_over
            if error.kind is not ErrorKind.RETRYABLE or is_over:
                raise
            if not is_told:
                output.say(f"{error.details}; asking again")
            is_told = True
        clock.sleep(_ASK_EVERY_S)


def _by_itself(
    loaded: TableConfigFile,
    config_file: str,
    output: Output,
    clock: Clock,
    say: Callable[[_Progress], None],
) -> _Progress:
    from tidemark.cli.reachable_kafka import has_kafka, reachable_kafka
    from tidemark.commit_coordinator.offline.rehearsal import check_ledger
    from tidemark.hudi_format.storage.locate import open_storage
    from tidemark.index_assigner.offline import warm_index
    from tidemark.stream_runtime.ids import SystemIds
    from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient

    if not has_kafka(loaded):
        raise CliError(
            f"{loaded.state.path} (state.path) holds no embedded Kafka, so nothing says up to where the "
            f"index is known: `tidemark run -c {config_file}` makes it"
        )
    output.say("no assigner runs: loading the index here")
    with reachable_kafka(loaded, clock, output.say, "tidemark index warm") as config:
        client = ConfluentKafkaClient.from_config(config, clock=clock)
        storage = open_storage(config.table.path)
        check_ledger(config, storage, client, clock)
        return warm_index(config, storage, client, clock, SystemIds(), say)


def _saying(output: Output) -> Callable[[_Progress], None]:
    def say(progress: _Progress) -> None:
        share = _PERCENT * progress.entries // max(progress.entries_max, 1)
        output.say(
            f"{progress.entries} of {progress.entries_max} entries ({share} %), {progress.loaded} of "
            f"{progress.shards} shards are loaded"
        )

    return say


def _answer(output: Output, progress: _Progress, where: str) -> int:
    missing = progress.shards - progress.loaded
    document: Mapping[str, object] = {
        "by": where,
        "shards": progress.shards,
        "loaded": progress.loaded,
        "entries": progress.entries,
    }
    lines = [f"{progress.entries} entries of {progress.loaded} shards are in run files"]
    if missing:
        lines.append(
            f"{missing} shards are not: neither state.disk nor the disk itself has room for them, or their "
            "load failed (the log says why)"
        )
    output.answer(document, lines)
    return 1 if missing else 0
