"""`tidemark table create`, `adopt`, `rebuild-index`, `describe`: creates, takes over or describes the Hudi
table, or builds its record index anew; no service runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from tidemark.console.arguments import Commands, add_command, add_group
from tidemark.console.errors import WRONG_USE, CliError
from tidemark.console.output import Output
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone


def add(commands: Commands) -> None:
    """Adds the group."""
    group = add_group(commands, "table", "create, take over or describe the Hudi table of a configuration")
    add_command(
        group,
        "table create",
        run_create,
        "create the Hudi table with its record index (`tidemark run` does the same when there is none)",
        "  tidemark table create -c flights.yaml",
    )
    adopt = add_command(
        group,
        "table adopt",
        run_adopt,
        "take over a table that Hudi on Spark made, or whose topics were lost",
        "  tidemark table adopt -c flights.yaml                  check it, set its time zone to UTC\n"
        "  tidemark table adopt -c flights.yaml --drop-stats     switch its column stats off\n"
        "  tidemark table adopt -c flights.yaml --new-ledger     topics were lost: start from the timeline\n"
        "  tidemark table adopt -c flights.yaml --moved          its folder was moved: continue here\n"
        "  tidemark table adopt -c flights.yaml --copied         it is a copy: begin a ledger of its own",
    )
    adopt.add_argument(
        "--drop-stats",
        action="store_true",
        help="switch column stats off instead of comparing them with the rows; partition stats always are",
    )
    ledger = adopt.add_mutually_exclusive_group()
    ledger.add_argument(
        "--moved",
        action="store_true",
        help="the table's folder was moved here: record the new place in its ledger, and keep the ledger",
    )
    ledger.add_argument(
        "--copied",
        action="store_true",
        help="the table is a copy with a new table.name: begin a ledger of its own, as --new-ledger does",
    )
    adopt.add_argument("--yes", action="store_true", help="for scripts: delete without asking")
    ledger.add_argument(
        "--new-ledger",
        action="store_true",
        help="delete Tidemark's own topics and begin a new ledger at the input positions of the newest "
        "commit; from there on input is applied at least once, and tombstones are lost",
    )
    _add_rebuild(group)
    add_command(
        group,
        "table describe",
        run_describe,
        "describe the table: keys, index, files, newest commit, lock, and what other writers must set",
        "  tidemark table describe -c flights.yaml",
    )


def _add_rebuild(group: Commands) -> None:
    rebuild = add_command(
        group,
        "table rebuild-index",
        run_rebuild_index,
        "build the record index anew from the rows, with another number of shards; no service may run",
        "  tidemark table rebuild-index -c flights.yaml --shards 64 --dry-run   check, and estimate disk\n"
        "  tidemark table rebuild-index -c flights.yaml --shards 64             build, compare, switch\n\n"
        "Readers find the former index until the new one is there, whole. The number has to be a multiple\n"
        "of table.index.lanes, and at least the present one. If the command is killed, run it again or\n"
        "start Tidemark: both find a whole index. What other writers commit meanwhile throws the new index\n"
        "away. docs/rebuild-index.md has more.",
    )
    rebuild.add_argument("--shards", type=int, required=True, metavar="N", help="shards of the new index")
    rebuild.add_argument(
        "--dry-run", action="store_true", help="only check, and say what it would take; changes nothing"
    )


def run_create(options: argparse.Namespace) -> int:
    """Creates the table. Fails when there is a table already."""
    use_arrow_alone()
    from tidemark.commit_coordinator.offline.adoption import create_table
    from tidemark.config import load_config
    from tidemark.stream_runtime.clock import SystemClock

    table = create_table(load_config(options.config), SystemClock())
    Output(options.json).answer(
        table, [f"created {table['type']} table {table['name']} at {table['path']}: {_made_index(table)}"]
    )
    return 0


def run_adopt(options: argparse.Namespace) -> int:
    """Takes the table over. Raises CliError while services of the table run."""
    use_arrow_alone()
    from tidemark.cli.tables import (
        adopt_table,
        check_adoptable,
        check_moved,
        move_ledger,
        ready_for_new_ledger,
        refuse_while_served_elsewhere,
        refuse_while_serving,
        what_adopt_deletes,
    )
    from tidemark.config import load_config
    from tidemark.console.confirmation import confirm
    from tidemark.stream_runtime.clock import SystemClock
    from tidemark.stream_runtime.ids import SystemIds

    config, clock, ids = load_config(options.config), SystemClock(), SystemIds()
    output, anew = Output(options.json), options.new_ledger or options.copied
    if options.moved and options.drop_stats:
        raise CliError(
            "--moved changes nothing in the table: run `table adopt --drop-stats` afterwards", WRONG_USE
        )
    refuse_while_serving(config)
    if anew or options.moved:
        refuse_while_served_elsewhere(config, clock, output.say)
    if not options.moved:
        # Every check comes before the first change, because stats that were dropped cannot be had back.
        check_adoptable(config, options.drop_stats, anew)
    if deleted := what_adopt_deletes(config, options.drop_stats, anew):
        confirm(config.table.name, deleted, options.yes)
    if options.moved:
        document, lines = check_moved(config, clock)
        lines += move_ledger(config, clock, ids, output.say)
    elif anew:
        with ready_for_new_ledger(config, clock, ids, output.say, options.copied) as begin:
            document, lines = adopt_table(
                config, clock, ids, options.drop_stats, output.say, pending_allowed=True
            )
            document["new_ledger"], more = begin()
            lines += more
    else:
        document, lines = adopt_table(config, clock, ids, options.drop_stats, output.say)
    output.answer(document, lines)
    return 0


def run_rebuild_index(options: argparse.Namespace) -> int:
    """Builds the record index anew. Raises CliError while services of the table run."""
    from tidemark.cli.index_rebuild import rebuild
    from tidemark.config import load_config

    if options.shards < 1:
        raise CliError(f"--shards {options.shards}: an index has at least one shard", WRONG_USE)
    output = Output(options.json)
    output.answer(*rebuild(load_config(options.config), options.shards, options.dry_run, output.say))
    return 0


def _made_index(table: dict[str, Any]) -> str:
    if table["index_kind"] == "partitioned":
        return "each new data partition gets shards of the record index"
    return f"{table['shards']} shards"


def _described_index(document: dict[str, Any]) -> str:
    if document["index_kind"] == "partitioned":
        return f"partitioned, {document['shards']} shards in {document['index_partitions']} data partitions"
    return f"{document['shards']} shards"


def run_describe(options: argparse.Namespace) -> int:
    """Prints the table's description. It reads the table's files, and needs no service and no Kafka."""
    use_arrow_alone()
    from tidemark.commit_coordinator.offline.table import describe
    from tidemark.config import load_config

    document = describe(load_config(options.config))
    Output(options.json).answer(document, description_lines(document))
    return 0


def description_lines(document: dict[str, Any]) -> Iterator[str]:
    """The lines of the text, made from the document of `commit_coordinator.offline.table.describe`."""
    yield f"table       {document['name']}  {document['path']}"
    yield f"type        {document['type']}, version {document['version']}, {document['merge_mode']}"
    yield f"record key  {', '.join(document['record_key'])}"
    yield f"partition   {', '.join(document['partition']) or 'none'}"
    yield f"ordering    {', '.join(document['ordering']) or 'order of arrival'}"
    indexes = ", ".join(document["metadata_partitions"])
    yield f"index       {_described_index(document)}; metadata table: {indexes}"
    for index in document["indexes"]:
        state = "" if index["in_use"] else ", not listed: it is being built, or its builder died"
        yield f"            {index['name']}: {index['kind']} of {', '.join(index['columns'])}{state}"
    yield (
        f"files       {document['partitions']} partitions, {document['file_groups']} file groups, "
        f"{document['base_files']} base and {document['log_files']} log files in use; "
        f"{document['bytes']} bytes in all"
    )
    newest = document["newest_commit"]
    yield (
        f"newest      instant {newest['instant']}, epoch {newest['epoch'] or '- (another writer)'}"
        if newest
        else "newest      no commit yet"
    )
    for pending in document["pending"]:
        yield f"pending     {pending}"
    if document["lock"] is not None:
        term = document["lock"]["term"]
        yield f"lock        held by {_holder(term)}"
    yield f"servable    {'yes' if document['servable'] else 'no: ' + document['not_servable']}"
    yield "other writers (Hudi on Spark) need these options while Tidemark runs:"
    for key, value in document["foreign_writer_options"].items():
        yield f"  {key}={value}"
    yield "Hudi's procedures need these, or they drop the record index (docs/hudi-beside.md):"
    yield f"  options => '{document['procedure_options']}'"


def _holder(term: int | None) -> str:
    if term is None:
        return "another writer"
    return f"coordinator term {term}" if term >= 0 else "a `tidemark table` command"
