"""`tidemark dead-letter list`: what could not be taken, and why, read from the topic itself."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Final

from tidemark_cli.commands.arguments import Commands, add_command, add_group, whole_number
from tidemark_cli.output import Output, columns

_LIMIT: Final = 100
_LIMIT_MAX: Final = 1_000_000


def add(commands: Commands) -> None:
    """Adds the group."""
    group = add_group(commands, "dead-letter", "show records that could not be taken")
    listed = add_command(
        group,
        "dead-letter list",
        run_list,
        "list refused records with reason, topic, partition, offset and detail, newest last",
        "  tidemark dead-letter list -c flights.yaml --limit 10\n"
        "  tidemark dead-letter list -c flights.yaml --json | jq .by_reason",
    )
    listed.add_argument(
        "--limit",
        type=whole_number(1, _LIMIT_MAX),
        default=_LIMIT,
        metavar="N",
        help=f"show the newest N; all are counted (default: {_LIMIT})",
    )


def run_list(options: argparse.Namespace) -> int:
    """Reads the whole topic; needs no coordinator."""
    from stream_runtime.clock import SystemClock
    from stream_runtime.config import load_config
    from stream_runtime.kafka.confluent.client import ConfluentKafkaClient
    from tidemark_cli.dead_letters import read_dead_letters
    from tidemark_cli.reachable_kafka import reachable_kafka

    output, clock = Output(options.json), SystemClock()
    with reachable_kafka(load_config(options.config), clock, output.say, "tidemark dead-letter") as config:
        client = ConfluentKafkaClient.from_config(config, clock=clock)
        letters = read_dead_letters(client, config.table.name, clock)
    by_reason = Counter(letter.reason for letter in letters)
    newest = letters[-options.limit :]
    document = {
        "count": len(letters),
        "by_reason": dict(sorted(by_reason.items())),
        "dead_letters": [letter.document() for letter in newest],
    }
    rows = [("REASON", "TOPIC", "PARTITION", "OFFSET", "DETAIL")]
    rows += [(each.reason, each.topic, str(each.partition), str(each.offset), each.detail) for each in newest]
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(by_reason.items())) or "none"
    output.answer(document, [*columns(rows, right=(2, 3)), f"{len(letters)} dead letters: {counted}"])
    return 0
