"""`tidemark input skip`, `accept-topic`, `remove-topic`: decides how reading of input continues that
stopped.
"""

from __future__ import annotations

import argparse

from tidemark.console.arguments import Commands, add_command, add_group, whole_number
from tidemark.console.output import Output

_MAX = 2**63 - 1


def add(commands: Commands) -> None:
    """Adds the group."""
    group = add_group(commands, "input", "decide how the reading of an input topic continues")
    accept = add_command(
        group,
        "input accept-topic",
        run_accept,
        "accept an input topic as it is now: it was deleted and made again, Kafka was restored, or it grew",
        "  tidemark input accept-topic orders -c orders.yaml\n"
        "      orders was deleted and made again: read the new topic from its start\n"
        "  tidemark input accept-topic orders -c orders.yaml --keep-positions\n"
        "      Kafka was restored or mirrored, with the same records at the same offsets: continue there",
    )
    accept.add_argument("topic", metavar="NAME", help="a topic of input.topics")
    accept.add_argument(
        "--keep-positions",
        action="store_true",
        help="continue at the former positions: right only if every record has its former offset",
    )
    remove = add_command(
        group,
        "input remove-topic",
        run_remove,
        "confirm that a topic that was removed from input.topics is not to be read any more",
        "  tidemark input remove-topic returns -c orders.yaml",
    )
    remove.add_argument("topic", metavar="NAME", help="the topic that was removed from input.topics")
    skipped = add_command(
        group,
        "input skip",
        run_skip,
        "move a partition past the offset at which reading stopped: past the whole record batch there, if it "
        "cannot be read, or past all records that were deleted before they were read; print the first and "
        "the last offset that was skipped. These records are not in the table",
        "  tidemark input skip --topic flights --partition 3 --offset 4711 -c flights.yaml",
    )
    skipped.add_argument("--topic", required=True, metavar="T", help="the input topic")
    skipped.add_argument(
        "--partition", required=True, type=whole_number(0, 2**31 - 1), metavar="P", help="the partition"
    )
    skipped.add_argument(
        "--offset",
        required=True,
        type=whole_number(0, _MAX),
        metavar="O",
        help="the offset at which reading stopped, as `tidemark status` shows it",
    )


def run_accept(options: argparse.Namespace) -> int:
    """Returns when the running coordinator has accepted the topic."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        taken = client.accept_topic(options.topic, options.keep_positions)
    how = "from its start" if taken["from_start"] else "on from the positions that were reached"
    line = f"topic {options.topic} is accepted with {taken['partitions']} partitions: it is read {how}"
    Output(options.json).answer(taken, [line])
    return 0


def run_remove(options: argparse.Namespace) -> int:
    """Records in the table's folder that the topic was removed. Raises CliError while services run."""
    from tidemark.cli.tables import refuse_while_served_elsewhere, refuse_while_serving
    from tidemark.commit_coordinator.offline.table import remove_topic
    from tidemark.config import load_config
    from tidemark.hudi_format.storage.locate import open_storage
    from tidemark.stream_runtime.clock import SystemClock

    config, output = load_config(options.config), Output(options.json)
    refuse_while_serving(config)
    refuse_while_served_elsewhere(config, SystemClock(), output.say)
    remove_topic(config, open_storage(config.table.path), options.topic)
    output.answer(
        {"topic": options.topic, "removed": True},
        [
            f"topic {options.topic} is not read any more; what was read from it stays in the table. If it is "
            "named in input.topics again, reading continues at the position that was reached"
        ],
    )
    return 0


def run_skip(options: argparse.Namespace) -> int:
    """Returns when the ledger has the skipped offsets. Exit code 2 when reading did not stop at that
    offset.
    """
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        done = client.skip_input(options.topic, options.partition, options.offset)
    text = (
        f"{options.topic}[{options.partition}] continues after offset {done['last']}: skipped "
        f"{done['first']} to {done['last']}. `tidemark dead-letter list --reason skipped` lists the skips"
    )
    Output(options.json).answer(done, [text])
    return 0
