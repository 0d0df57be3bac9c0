"""`tidemark epoch list`, `show` and `retry`: what each commit covered and how long it took; tries one
again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidemark.console.arguments import Commands, add_command, add_group, whole_number
from tidemark.console.output import Output, columns

if TYPE_CHECKING:
    from tidemark.table_status.epochs import EpochRecord

_LIMIT: Final = 20
_LIMIT_MAX: Final = 1_000


def add(commands: Commands) -> None:
    """Adds the group."""
    epochs = add_group(
        commands, "epoch", "show epochs: transactions, source offsets, counts, times of each step; retry one"
    )
    listed = add_command(
        epochs, "epoch list", run_list, "list the newest epochs", "  tidemark epoch list -c flights.yaml"
    )
    listed.add_argument(
        "--limit",
        type=whole_number(1, _LIMIT_MAX),
        default=_LIMIT,
        metavar="N",
        help=f"how many (default: {_LIMIT})",
    )
    shown = add_command(
        epochs, "epoch show", run_show, "show one epoch", "  tidemark epoch show 12 -c flights.yaml"
    )
    shown.add_argument("number", type=whole_number(1, 2**63 - 1), metavar="N", help="the epoch's number")
    retried = add_command(
        epochs,
        "epoch retry",
        run_retry,
        "try an epoch again that was given up (`tidemark status` says so); repair the cause first",
        "  tidemark epoch retry 12 -c flights.yaml",
    )
    retried.add_argument("number", type=whole_number(1, 2**63 - 1), metavar="N", help="the epoch's number")


def run_list(options: argparse.Namespace) -> int:
    """Prints the newest epochs, newest first."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        epochs, documents = client.typed_epochs(options.limit)
    Output(options.json).answer({"epochs": documents}, columns(_rows(epochs), right=(0, 3, 4, 5, 6, 7)))
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Prints everything that the coordinator remembers of the epoch."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        epoch, document = client.typed_epoch(options.number)
    Output(options.json).answer(document, _page(epoch))
    return 0


def run_retry(options: argparse.Namespace) -> int:
    """Returns when the coordinator has accepted the call. Exit code 2 when that epoch was not given up."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        attempt = client.retry(options.number)
    Output(options.json).answer(
        {"epoch": options.number, "attempt": attempt},
        [f"epoch {options.number} is tried again: attempt {attempt}. `tidemark status` shows how it goes"],
    )
    return 0


def _rows(epochs: Sequence[EpochRecord]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("EPOCH", "STATE", "INSTANT", "INPUT", "INSERTS", "UPDATES", "DELETES", "MS")
    ]
    for epoch in epochs:
        counts, took_ms = epoch.counts, epoch.commit_ms
        rows.append(
            (
                str(epoch.epoch),
                epoch.state,
                epoch.instant or "-",
                *(str(count) for count in (counts.input, counts.inserts, counts.updates, counts.deletes)),
                "-" if took_ms is None else str(took_ms),
            )
        )
    return rows


def _page(epoch: EpochRecord) -> Iterator[str]:
    yield f"epoch         {epoch.epoch}  ({epoch.state})"
    yield f"instant       {epoch.instant or '-'}, completion {epoch.completion or '-'}"
    yield f"ledger        through offset {epoch.through}, {epoch.transactions} transactions"
    counts = {name: getattr(epoch.counts, name) for name in epoch.counts.__struct_fields__}
    yield "records       " + ", ".join(f"{name} {count}" for name, count in counts.items())
    yield f"bytes         {epoch.bytes}"
    for name, ranges in (("source_offsets", epoch.source_offsets), ("keyed_offsets", epoch.keyed_offsets)):
        for lane, (first, following) in sorted(ranges.items()):
            yield f"{name:<14} {lane} [{first}, {following})"
    for attempt in epoch.attempts:
        yield f"attempt {attempt.attempt}     instant {attempt.instant or '-'}"
        for step, at_ms in (("decided", attempt.decided_ms), ("committed", attempt.committed_ms)):
            if at_ms is not None:
                yield f"              {step} after {at_ms - attempt.planned_ms} ms"
        if attempt.voided:
            yield f"              void: {attempt.voided}"
        for step, took in sorted(attempt.timings_ms.items()):
            yield f"              {step} {took:.0f} ms"
