"""`tidemark dead-letter list / show / replay`: what could not be taken, and why, from the topic itself."""

from __future__ import annotations

import argparse
import base64
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidemark_cli.commands.arguments import Commands, add_command, add_group, whole_number
from tidemark_cli.errors import CliError
from tidemark_cli.output import Output, columns, printable

if TYPE_CHECKING:
    from commit_coordinator.dead_letters import DeadLetter, LetterFilter
    from stream_runtime.clock import Clock
    from stream_runtime.config import TableConfigFile
    from stream_runtime.kafka.ports import KafkaClient, Message

_LIMIT: Final = 100
_LIMIT_MAX: Final = 1_000_000
_NUMBER_MAX: Final = 2**63 - 1
_REPLAYS: Final = 3
_SHOWN_CHARACTERS: Final = 4_000


def add(commands: Commands) -> None:
    """Adds the group."""
    group = add_group(commands, "dead-letter", "show records that could not be taken, or produce them again")
    listed = add_command(
        group,
        "dead-letter list",
        run_list,
        "list refused records with reason, topic, partition, offset and detail, newest last",
        "  tidemark dead-letter list -c flights.yaml --limit 10\n"
        "  tidemark dead-letter list -c flights.yaml --reason unknown-schema --verbose\n"
        "  tidemark dead-letter list -c flights.yaml --json | jq .by_reason",
    )
    listed.add_argument(
        "--limit",
        type=whole_number(1, _LIMIT_MAX),
        default=_LIMIT,
        metavar="N",
        help=f"show the newest N; all are counted (default: {_LIMIT})",
    )
    listed.add_argument(
        "--verbose", action="store_true", help="show when each came and how often it was replayed"
    )
    _add_filters(listed)
    shown = add_command(
        group,
        "dead-letter show",
        run_show,
        "show one refused record whole: key, value and headers",
        "  tidemark dead-letter show 17 -c flights.yaml\n"
        "  tidemark dead-letter show 17 -c flights.yaml --json | jq -r .value_base64 | base64 -d",
    )
    shown.add_argument("id", type=whole_number(0, _NUMBER_MAX), metavar="ID", help="as `list` names it")
    _add_replay(group)


def _add_replay(group: Commands) -> None:
    replayed = add_command(
        group,
        "dead-letter replay",
        run_replay,
        "produce refused records again, as they were, to the topic and partition they came from",
        "  tidemark dead-letter replay -c flights.yaml --dry-run\n"
        "  tidemark dead-letter replay -c flights.yaml --reason unknown-schema\n"
        "  tidemark dead-letter replay -c flights.yaml --topic flights --partition 2 --offset 1041\n\n"
        "A replayed record is the newest of its partition: with an ordering field its value still decides,\n"
        "without one it overwrites what came after it. Its header tm-replays counts. Letters stay; those\n"
        "that were replayed are left out the next time.",
    )
    replayed.add_argument(
        "ids", nargs="*", type=whole_number(0, _NUMBER_MAX), metavar="ID", help="only these"
    )
    replayed.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    replayed.add_argument("--again", action="store_true", help="also those that were replayed already")
    replayed.add_argument(
        "--max-replays",
        type=whole_number(1, 1_000),
        default=_REPLAYS,
        metavar="N",
        help=f"leave records out that were replayed N times (default: {_REPLAYS})",
    )
    _add_filters(replayed)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="T", help="only records of this input topic")
    parser.add_argument(
        "--partition", type=whole_number(0, _NUMBER_MAX), metavar="P", help="only of this partition"
    )
    parser.add_argument(
        "--offset", type=whole_number(0, _NUMBER_MAX), metavar="O", help="only at this offset"
    )
    parser.add_argument("--reason", metavar="R", help="only with this reason, e.g. not-json")


def _filter(options: argparse.Namespace, ids: frozenset[int] | None = None) -> LetterFilter:
    from commit_coordinator.dead_letters import LetterFilter

    return LetterFilter(options.topic, options.partition, options.offset, options.reason, ids)


@contextmanager
def _reached(
    options: argparse.Namespace, output: Output
) -> Iterator[tuple[TableConfigFile, KafkaClient, Clock]]:
    from stream_runtime.clock import SystemClock
    from stream_runtime.config import load_config
    from stream_runtime.kafka.confluent.client import ConfluentKafkaClient
    from tidemark_cli.reachable_kafka import has_kafka, reachable_kafka

    clock, loaded = SystemClock(), load_config(options.config)
    if not has_kafka(loaded):
        raise CliError(
            f"there are no dead letters yet: {loaded.state.path} (state.path) holds no embedded Kafka; "
            f"`tidemark run -c {options.config}` makes it"
        )
    with reachable_kafka(loaded, clock, output.say, "tidemark dead-letter") as config:
        yield config, ConfluentKafkaClient.from_config(config, clock=clock), clock


def run_list(options: argparse.Namespace) -> int:
    """Reads the whole topic; needs no coordinator."""
    from commit_coordinator.dead_letters import read_dead_letters

    output, wanted = Output(options.json), _filter(options)
    with _reached(options, output) as (config, client, clock):
        letters = [each for each in read_dead_letters(client, config.table.name, clock) if wanted.takes(each)]
    by_reason = Counter(letter.reason for letter in letters)
    newest = letters[-options.limit :]
    document = {
        "count": len(letters),
        "by_reason": dict(sorted(by_reason.items())),
        "dead_letters": [letter.document() for letter in newest],
    }
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(by_reason.items())) or "none"
    lines = _table(newest, options.verbose)
    output.answer(document, [*lines, f"{len(letters)} dead letters: {printable(counted)}"])
    return 0


def _table(letters: list[DeadLetter], verbose: bool) -> list[str]:
    more = ("TIME (MS)", "REPLAYS", "REPLAYED") if verbose else ()
    rows: list[tuple[str, ...]] = [("ID", "REASON", "TOPIC", "PARTITION", "OFFSET", *more, "DETAIL")]
    for each in letters:
        extra = (
            (str(each.timestamp_ms), str(each.replays), "yes" if each.replayed else "no") if verbose else ()
        )
        place = (printable(each.reason), printable(each.topic), str(each.partition), str(each.offset))
        rows.append((str(each.id), *place, *extra, printable(each.detail)))
    return columns(rows, right=(0, 3, 4))


def run_show(options: argparse.Namespace) -> int:
    """Exit code 1 when there is no letter of this id."""
    from commit_coordinator.dead_letters import DeadLetter, original_headers, read_dead_letter

    output = Output(options.json)
    with _reached(options, output) as (config, client, clock):
        message = read_dead_letter(client, config.table.name, clock, options.id)
    if message is None:
        raise CliError(f"there is no dead letter {options.id}: `tidemark dead-letter list` has their ids")
    letter, headers = DeadLetter.of(message), original_headers(message)
    document = {
        **letter.document(),
        "headers": [{"name": name, "value_base64": _base64(value)} for name, value in headers],
        "key_base64": _base64(message.key),
        "value_base64": _base64(message.value),
    }
    # Whether it was replayed stands elsewhere in the topic.
    del document["replayed"]
    output.answer(document, _page(letter, headers, message))
    return 0


def _page(letter: DeadLetter, headers: Any, message: Message) -> Iterator[str]:
    yield f"reason     {printable(letter.reason)}"
    yield f"detail     {printable(letter.detail)}"
    yield f"record     {printable(letter.topic)}[{letter.partition}] at offset {letter.offset}"
    yield f"time       {letter.timestamp_ms} ms since 1970"
    yield f"replays    {letter.replays}"
    if letter.cut:
        yield f"cut        {', '.join(letter.cut)}"
    for name, value in headers:
        yield f"header     {printable(name)} = {_shown(value)}"
    yield f"key        {_shown(message.key)}"
    yield f"value      {_shown(message.value)}"


def _shown(content: bytes | None) -> str:
    """Text where it is some, else hexadecimal; long content is cut."""
    if content is None:
        return "(null)"
    try:
        text = printable(content.decode())
    except UnicodeDecodeError:
        text = f"0x{content.hex()}"
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]} … ({len(content)} bytes; --json has all of them)"


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def run_replay(options: argparse.Namespace) -> int:
    """Needs Kafka alone: whether assigners run or not, they read the records as any others."""
    from commit_coordinator.dead_letter_replay import plan_replay, replay
    from commit_coordinator.dead_letters import read_dead_letters

    output = Output(options.json)
    wanted = _filter(options, frozenset(options.ids) or None)
    with _reached(options, output) as (config, client, clock):
        table = config.table.name
        letters = [each for each in read_dead_letters(client, table, clock) if wanted.takes(each)]
        admin = client.admin()
        try:
            plan = plan_replay(
                letters, admin.partitions, config.input.topics, options.again, options.max_replays
            )
        finally:
            admin.close()
        if config.table.ordering is None and plan.letters:
            output.say("the table has no ordering field: a replayed record overwrites what came after it")
        done = 0 if options.dry_run else replay(client, table, clock, plan.letters)
    skipped = Counter(why for _, why in plan.skipped)
    document = {
        "dry_run": options.dry_run,
        "replayed": done,
        "chosen": [letter.document() for letter in plan.letters],
        "skipped": [{**letter.document(), "why": why} for letter, why in plan.skipped],
    }
    what = f"{len(plan.letters)} would be replayed" if options.dry_run else f"{done} replayed"
    left_out = [f"{count} left out: {why}" for why, count in sorted(skipped.items())]
    output.answer(document, [*(_table(plan.letters, True) if options.dry_run else ()), *left_out, what])
    return 0
