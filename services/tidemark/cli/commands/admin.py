"""`tidemark flush`, `status`, `pause`, `resume`: the commands that ask a running coordinator."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemark.console.arguments import Commands, add_command, duration
from tidemark.console.output import Output, printable

if TYPE_CHECKING:
    from tidemark.config.run_file import RunFile
    from tidemark.table_status.status import Status, TableServices, VerificationState
    from tidemark.table_status.warnings import StatusWarning

_FLUSH_MS: Final = 60_000


def add(commands: Commands) -> None:
    """Adds the commands."""
    flush = add_command(
        commands,
        "flush",
        run_flush,
        "wait until everything that is in the input topics now is committed; print epoch and instant",
        "  tidemark flush -c flights.yaml\n  tidemark flush -c flights.yaml --timeout 5m --json",
    )
    flush.add_argument(
        "--timeout", type=duration, default=_FLUSH_MS, metavar="T", help="give up after T (default: 60s)"
    )
    add_command(
        commands,
        "status",
        run_status,
        "show services, lag, epochs in flight, last commit, cache tiers, dead letters, warnings",
        "  tidemark status -c flights.yaml\n  tidemark status -c flights.yaml --json | jq .lag",
    )
    pause = add_command(
        commands,
        "pause",
        run_pause,
        "stop tagging; nothing is lost, input waits in Kafka until `tidemark resume`",
        "  tidemark pause -c flights.yaml --reason 'table maintenance'",
    )
    pause.add_argument("--reason", default="", metavar="TEXT", help="shown by `tidemark status`")
    add_command(commands, "resume", run_resume, "continue tagging after `tidemark pause`")


def run_flush(options: argparse.Namespace) -> int:
    """Waits for the commit. Exit code 1 when not everything is committed in time."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        done = client.flush(options.timeout)
    Output(options.json).answer(
        done, [f"epoch {done['epoch']}, instant {done['instant'] or '(no rows yet)'}"]
    )
    return 0


def run_status(options: argparse.Namespace) -> int:
    """Prints the coordinator's status: its document, or text made from the types."""
    from tidemark.config import load_config
    from tidemark.config.run_file import read_run_file
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        status, document = client.typed_status()
    running = read_run_file(load_config(options.config).state.path)
    add_run(document, running)
    Output(options.json).answer(document, status_lines(status, run_warnings(running)))
    return 0


def add_run(document: dict[str, Any], running: RunFile | None) -> None:
    """Adds what `tidemark run` on this machine says of its services; `run` is None when none runs here."""
    document["run"] = None if running is None else {"stopped": running.stopped, "failing": running.failing}
    document["warnings"] += [warning.text for warning in run_warnings(running)]


def run_warnings(running: RunFile | None) -> list[StatusWarning]:
    """A warning for each service that `tidemark run` starts again and again, or no longer starts."""
    from tidemark.table_status.warnings import StatusWarning, WarningKind

    troubles = {} if running is None else {**running.failing, **running.stopped}
    return [
        StatusWarning(WarningKind.SERVICE_ENDED, f"tidemark run: {role} {text}")
        for role, text in troubles.items()
    ]


def run_pause(options: argparse.Namespace) -> int:
    """Returns when the order is durable."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        client.pause(options.reason)
    Output(options.json).answer({"paused": True}, ["paused: `tidemark resume` continues"])
    return 0


def run_resume(options: argparse.Namespace) -> int:
    """Returns when the order is durable."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        client.resume()
    Output(options.json).answer({"paused": False}, ["resumed"])
    return 0


def status_lines(status: Status, of_run: Sequence[StatusWarning] = ()) -> Iterator[str]:
    """The text of `tidemark status`. `of_run` are the warnings of `tidemark run` on this machine."""
    coordinator, last, flight = status.coordinator, status.last_commit, status.in_flight
    yield f"table         {status.table}  {status.path}"
    doing = coordinator.doing + (f" ({coordinator.waiting_for})" if coordinator.waiting_for else "")
    yield f"coordinator   term {coordinator.term}, generation {coordinator.generation}, {doing}"
    for stage, members in (("shuffle", status.services.shuffle), ("assign", status.services.assign)):
        for member in members:
            lanes = ", ".join(member.lanes) or "none"
            yield f"{stage:<13} slot {member.slot} at {member.address}: lanes {lanes}"
            yield from _stats(member.figures)
        if not members:
            yield f"{stage:<13} nobody"
    asked = f"{status.writer.process}, asked {status.writer.asked} times"
    yield f"writer        {asked if status.writer.asked else 'has not asked for work yet'}"
    if status.paused.paused:
        yield f"paused        {status.paused.reason}"
    yield f"last commit   epoch {last.epoch}, instant {last.instant or '-'}"
    if flight.epoch is not None:
        waits = ", ".join(flight.not_reported) or "nobody"
        yield (
            f"in flight     epoch {flight.epoch} attempt {flight.attempt}, {flight.age_ms} ms, "
            f"waits for {waits}"
        )
    if (blocker := status.open_transaction) is not None:
        yield (
            f"open          transaction of {blocker.stage} slot {blocker.slot} "
            f"({blocker.process or 'nobody'}) for {blocker.age_ms} ms: readers wait for its end"
        )
    yield _lag_line(status)
    committed = status.records.committed
    yield (
        f"records       {committed.input} committed ({committed.inserts} inserts, "
        f"{committed.updates} updates, {committed.deletes} deletes, "
        f"{committed.superseded} superseded, {committed.no_ops} no-ops)"
    )
    yield f"dead letters  {status.records.dead_letters}"
    refused = {reason: count for reason, count in status.refused_calls.items() if count}
    if refused:
        shown = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in refused.items())
        yield f"refused       {shown} (calls since the coordinator's start)"
    if status.verification is not None:
        yield f"verified      {verified_line(status.verification)}"
    yield from _table_services(status.table_services)
    for warning in (*status.warnings, *of_run):
        yield f"WARNING       {warning.text}"


def _lag_line(status: Status) -> str:
    lag = status.lag
    if lag is None:
        reason = next((missing.reason for missing in status.missing if missing.part == "lag"), "")
        return f"lag           unknown: {printable(reason)}"
    return (
        f"lag           {lag.input_offsets_not_shuffled} input offsets not shuffled, "
        f"{lag.input_offsets_not_committed} not committed"
    )


def _table_services(services: TableServices) -> Iterator[str]:
    if services.table is None or services.metadata_table is None:
        return
    yield from _own_services(services)
    for name, history in (("table", services.table), ("metadata table", services.metadata_table)):
        pending = f", pending {', '.join(history.pending)}" if history.pending else ""
        compaction, clean = (
            history.last_compaction or "never seen",
            history.last_clean or "never seen",
        )
        yield (
            f"              {name}: last compaction {compaction}, last clean {clean}, "
            f"{history.timeline_files} timeline files{pending}"
        )


def _own_services(services: TableServices) -> Iterator[str]:
    """Who runs the table services, and what is open, paused or failing of ours."""
    own = services.own
    if not own.enabled:
        yield f"services      nothing is scheduled here: compaction and cleaning are {services.run_by}'s"
        return
    paused = f"paused: {own.reason}" if own.paused else "by Tidemark, `tidemark services list` has more"
    yield f"services      {paused}"
    for kind in own.kinds:
        if (action := kind.open) is not None:
            done = f", {action.groups_done} of {action.groups} file groups" if action.groups else ""
            yield f"              {kind.kind}: action {action.number} {action.step}{done}"
        if (failures := kind.failures) is not None:
            yield f"              {kind.kind}: failed {failures.in_a_row} times in a row: {failures.reason}"


def verified_line(verification: VerificationState) -> str:
    """The result of the last verification, and the newest epoch up to which the table was found to agree."""
    last, verified = verification.last, verification.verified
    if last is None:
        return f"not yet, every {verification.every_commits} commits"
    how = {True: "agrees", False: "DOES NOT AGREE", None: "undecided"}[last.agrees]
    until = f"; agreed up to epoch {verified.epoch}" if verified is not None else ""
    return f"as of {last.as_of or '-'}: {how}, in {last.seconds} s{until}"


def _stats(stats: dict[str, float]) -> Iterator[str]:
    if stats:
        shown = ", ".join(f"{name} {value:g}" for name, value in sorted(stats.items()))
        yield f"              {shown}"
