"""`tidemark dead-letter list / show / replay`: input records that were refused, and why."""

from __future__ import annotations

import argparse
import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tidemark.console.arguments import Commands, add_command, add_group, duration, whole_number
from tidemark.console.errors import CliError
from tidemark.console.output import Output, columns, printable

if TYPE_CHECKING:
    from tidemark.ledger_client.dead_letters import DeadLetter, LetterFilter, WholeLetter
    from tidemark.stream_runtime.clock import Clock

_LIMIT: Final = 100
_LIMIT_MAX: Final = 1_000_000
_NUMBER_MAX: Final = 2**63 - 1
_REPLAYS: Final = 3
_SHOWN_CHARACTERS: Final = 4_000


def add(commands: Commands) -> None:
    """Adds the group."""
    group = add_group(commands, "dead-letter", "show input records that were refused, or produce them again")
    listed = add_command(
        group,
        "dead-letter list",
        run_list,
        "list refused records with reason, topic, partition, offset and detail, newest last",
        "  tidemark dead-letter list -c flights.yaml --limit 10\n"
        "  tidemark dead-letter list -c flights.yaml --reason unknown-schema --verbose\n"
        "  tidemark dead-letter list -c flights.yaml --since 2h\n"
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
        "show one refused record with key, value and headers",
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
        "A replayed record becomes the newest of its partition. With an ordering field its ordering value\n"
        "still decides; without one it overwrites records that came after it. Its header tm-replays counts\n"
        "replays. Dead letters stay in their topic; a later replay leaves those out that were replayed.",
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
    parser.add_argument(
        "--since",
        type=duration,
        metavar="T",
        help="only those refused in the last T, e.g. 2h: reads less of a large topic",
    )


def _filter(options: argparse.Namespace, clock: Clock, ids: frozenset[int] | None = None) -> LetterFilter:
    from tidemark.ledger_client.dead_letters import LetterFilter
    from tidemark.record_formats.refusals import reason_named

    reason = None if options.reason is None else reason_named(options.reason)
    since_ms = None if options.since is None else max(clock.now_ms() - options.since, 0)
    return LetterFilter(options.topic, options.partition, options.offset, reason, ids, since_ms)


def run_list(options: argparse.Namespace) -> int:
    """Reads the topic of dead letters, whole without --since. It needs no coordinator."""
    from tidemark.cli.dead_letters import reach_letters
    from tidemark.stream_runtime.clock import SystemClock

    output, clock = Output(options.json), SystemClock()
    with reach_letters(options.config, clock, output.say) as (config, queries):
        page = queries.newest(_filter(options, clock), options.limit)
    limits, kept = config.limits, page.retention
    document = {
        "count": page.count,
        "by_reason": page.by_reason,
        "retention": {
            **asdict(kept),
            "retention_ms": limits.dead_letter_retention_ms,
            "bytes_max": limits.dead_letter_bytes,
        },
        "dead_letters": [letter.document() for letter in page.letters],
    }
    counted = ", ".join(f"{count} {reason}" for reason, count in page.by_reason.items()) or "none"
    lines = _table(page.letters, options.verbose)
    days, mib = limits.dead_letter_retention_ms / 86_400_000, limits.dead_letter_bytes >> 20
    retention = (
        f"kept for {days:g} days and up to {mib} MiB; of {kept.kept} offsets {kept.expiring} are deleted "
        f"next, {kept.deleted} were deleted"
    )
    output.answer(document, [*lines, f"{page.count} dead letters: {printable(counted)}", retention])
    return 0


def _table(letters: list[DeadLetter], verbose: bool) -> list[str]:
    more = ("TIME (MS)", "REPLAYS", "REPLAYED") if verbose else ()
    rows: list[tuple[str, ...]] = [("ID", "REASON", "TOPIC", "PARTITION", "OFFSET", *more, "DETAIL")]
    for letter in letters:
        replayed = "yes" if letter.replayed else "no"
        extra = (str(letter.timestamp_ms), str(letter.replays), replayed) if verbose else ()
        place = (printable(letter.reason), printable(letter.topic), str(letter.partition), str(letter.offset))
        rows.append((str(letter.id), *place, *extra, printable(letter.detail)))
    return columns(rows, right=(0, 3, 4))


def run_show(options: argparse.Namespace) -> int:
    """Prints one dead letter. Raises CliError, exit code 1, when there is none of this id."""
    from tidemark.cli.dead_letters import reach_letters
    from tidemark.stream_runtime.clock import SystemClock

    output = Output(options.json)
    with reach_letters(options.config, SystemClock(), output.say) as (_, queries):
        whole = queries.show(options.id)
    if whole is None:
        raise CliError(f"there is no dead letter {options.id}: `tidemark dead-letter list` has their ids")
    document = {
        **whole.letter.document(),
        "headers": [{"name": name, "value_base64": _base64(value)} for name, value in whole.headers],
        "key_base64": _base64(whole.key),
        "value_base64": _base64(whole.value),
    }
    # Another record of the topic says whether this one was replayed, and `show` does not read it.
    del document["replayed"]
    output.answer(document, _page(whole))
    return 0


def _page(whole: WholeLetter) -> Iterator[str]:
    letter = whole.letter
    yield f"reason     {printable(letter.reason)}"
    yield f"detail     {printable(letter.detail)}"
    yield f"record     {printable(letter.topic)}[{letter.partition}] at offset {letter.offset}"
    yield f"time       {letter.timestamp_ms} ms since 1970"
    yield f"replays    {letter.replays}"
    if letter.cut:
        yield f"cut        {', '.join(letter.cut)}"
    for name, value in whole.headers:
        yield f"header     {printable(name)} = {_shown(value)}"
    yield f"key        {_shown(whole.key)}"
    yield f"value      {_shown(whole.value)}"


def _shown(content: bytes | None) -> str:
    """The content as text if it is UTF-8, else in hexadecimal; cut after `_SHOWN_CHARACTERS`."""
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
    """Produces the records again. Assigners need not run: they read them later, like any other records."""
    from tidemark.cli.dead_letters import reach_letters
    from tidemark.stream_runtime.clock import SystemClock

    output, clock = Output(options.json), SystemClock()
    wanted = _filter(options, clock, frozenset(options.ids) or None)
    with reach_letters(options.config, clock, output.say) as (config, queries):
        done = queries.replay(
            wanted, dry_run=options.dry_run, again=options.again, replays_max=options.max_replays
        )
    if config.table.ordering is None and done.chosen:
        output.say("the table has no ordering field: a replayed record overwrites records that came after it")
    skipped = Counter(why for _, why in done.skipped)
    document = {
        "dry_run": options.dry_run,
        "replayed": done.done,
        "chosen": [letter.document() for letter in done.chosen],
        "skipped": [{**letter.document(), "why": why} for letter, why in done.skipped],
    }
    what = f"{len(done.chosen)} would be replayed" if options.dry_run else f"{done.done} replayed"
    left_out = [f"{count} left out: {why}" for why, count in sorted(skipped.items())]
    output.answer(document, [*(_table(done.chosen, True) if options.dry_run else ()), *left_out, what])
    return 0
