"""`tidemark services list`, `run`, `pause`, `resume`, `serve`: compaction, cleaning, archival, rollback of a
table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemark.cli.commands.services import add_process_options, run_table_services
from tidemark.console.arguments import Commands, add_command, add_group, duration
from tidemark.console.output import Output, columns

if TYPE_CHECKING:
    from tidemark.console.admin_client import AdminClient
    from tidemark.stream_runtime.clock import Clock
    from tidemark.table_status.services import OpenServiceAction, OwnServices, ServiceKindState

KINDS: Final = ("compact-index", "compact-data", "clean", "clean-data", "clean-index", "archive", "rollback")
_WAIT_MS: Final = 3_600_000
_LOOK_EVERY_S: Final = 1.0
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def add(commands: Commands) -> None:
    """Adds the group."""
    group = add_group(
        commands,
        "services",
        "table services (compaction, clean, archival, rollback): list what runs, run one now, pause, resume",
    )
    add_command(
        group,
        "services list",
        run_list,
        "show each table service: what runs, what ran last, why nothing is due, what failed",
        "  tidemark services list -c flights.yaml\n"
        "  tidemark services list -c flights.yaml --json | jq '.kinds[] | select(.failures)'",
    )
    run = add_command(
        group,
        "services run",
        run_service,
        "run a table service now, whether it is due or not, also while services are paused",
        "  tidemark services run compact-data -c flights.yaml          return when it is planned\n"
        "  tidemark services run clean -c flights.yaml --wait          return when it is done\n"
        "  tidemark services run archive -c flights.yaml --wait --timeout 10m",
    )
    run.add_argument(
        "kind",
        choices=KINDS,
        metavar="KIND",
        help="compact-index, compact-data, clean (clean-data and clean-index), clean-data, clean-index, "
        "archive or rollback",
    )
    run.add_argument("--wait", action="store_true", help="wait until the action has ended, and say how")
    run.add_argument(
        "--timeout",
        type=duration,
        default=_WAIT_MS,
        metavar="T",
        help="with --wait: give up waiting after T; the action goes on (default: 1h)",
    )
    pause = add_command(
        group,
        "services pause",
        run_pause,
        "plan no table service until `tidemark services resume`; open actions end, epochs go on",
        "  tidemark services pause -c flights.yaml --reason 'Spark clusters tonight'",
    )
    pause.add_argument("--reason", default="", metavar="TEXT", help="shown by `tidemark services list`")
    add_command(
        group,
        "services resume",
        run_resume,
        "plan table services again",
        "  tidemark services resume -c flights.yaml",
    )
    _add_serve(group)


def _add_serve(group: Commands) -> None:
    serve = add_command(
        group,
        "services serve",
        run_table_services,
        "run the merges of compactions in the foreground, without Spark; several processes share the work",
        "  tidemark services serve -c flights.yaml          with table_services.run: separate",
        json=False,
    )
    add_process_options(serve, "nowhere")


def run_list(options: argparse.Namespace) -> int:
    """Prints the services. Exit code 0 also when none is enabled."""
    from tidemark.console.admin_client import connect
    from tidemark.stream_runtime.clock import SystemClock

    with connect(options.config) as client:
        services, document = client.services()
    Output(options.json).answer(document, services_lines(services, SystemClock().now_ms()))
    return 0


def run_service(options: argparse.Namespace) -> int:
    """Prints the numbers of the actions, or with --wait how they ended. Exit code 1 when one was voided."""
    from tidemark.console.admin_client import connect
    from tidemark.stream_runtime.clock import SystemClock

    output = Output(options.json)
    with connect(options.config) as client:
        runs = client.run_service(options.kind)
        if options.wait:
            waiting = _Waiting(client, SystemClock(), output.say)
            runs = [waiting.ended(run, options.timeout) if run["number"] else run for run in runs]
    output.answer({"runs": runs}, [_run_line(run) for run in runs])
    return int(any((run["ended"] or {}).get("outcome") == "voided" for run in runs))


def run_pause(options: argparse.Namespace) -> int:
    """Returns when the order is durable."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        client.pause_services(options.reason)
    text = "table services are paused: `tidemark services resume` continues"
    Output(options.json).answer({"paused": True}, [text])
    return 0


def run_resume(options: argparse.Namespace) -> int:
    """Returns when the order is durable."""
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        client.resume_services()
    Output(options.json).answer({"paused": False}, ["table services are planned again"])
    return 0


class _Waiting:
    """Waits for the ends of actions, and says how far they are whenever that changes."""

    def __init__(self, client: AdminClient, clock: Clock, say: Callable[[str], None]) -> None:
        self._client = client
        self._clock = clock
        self._say = say

    def ended(self, run: dict[str, Any], timeout_ms: int) -> dict[str, Any]:
        """The run with how its action ended. Raises CliError when it has not within the time."""
        import msgspec

        from tidemark.console.errors import CliError
        from tidemark.stream_runtime.retry import Deadline

        deadline, said = Deadline(self._clock, timeout_ms / 1_000), ""
        while not deadline.is_over:
            state = self._client.services()[0].of(run["kind"])
            last = state.last if state is not None else None
            if last is not None and last.number >= run["number"]:
                is_it = last.number == run["number"]
                return {**run, "ended": msgspec.to_builtins(last) if is_it else None}
            if state is not None and state.open is not None:
                doing = f"{run['kind']} {_open_text(run['kind'], state.open, self._clock.now_ms())}"
                if doing.partition(", since")[0] != said:
                    said = doing.partition(", since")[0]
                    self._say(doing)
            deadline.sleep(_LOOK_EVERY_S)
        raise CliError(
            f"{run['kind']} has not ended in {timeout_ms / 1_000:g} s; it goes on as action {run['number']}: "
            "`tidemark services list` shows it"
        )


def services_lines(services: OwnServices, now_ms: int) -> Iterator[str]:
    """The text of `tidemark services list`."""
    if not services.enabled:
        yield (
            "Tidemark runs no table services of this table (table_services.enabled is false): another engine "
            "has to compact, clean and archive it"
        )
        return
    if services.paused:
        yield f"paused: {services.reason}. `tidemark services resume` continues"
    rows: list[Sequence[str]] = [("SERVICE", "STATE", "LAST", "OUTCOME", "TOOK", "COUNT", "SIZE")]
    rows += [_row(state, services.paused, now_ms) for state in services.kinds]
    yield from columns(rows, right=(4, 5, 6))
    for state in services.kinds:
        for text in _remarks(state, now_ms):
            yield f"{state.kind}: {text}"
    for text in services.behind:
        yield f"behind: {text}"


def _row(state: ServiceKindState, paused: bool, now_ms: int) -> Sequence[str]:
    stands = "open" if state.open is not None else "due" if state.due else "paused" if paused else "idle"
    if state.open is None and state.failures is not None:
        stands = "failing"
    if (last := state.last) is None:
        return (state.kind, stands, "never", "-", "-", "-", "-")
    took = f"{(last.ended_ms - last.planned_ms) / 1_000:.1f} s"
    ago = f"{_duration(now_ms - last.ended_ms)} ago"
    if not last.number:
        return (state.kind, stands, ago, last.outcome, "-", "-", "-")
    size = size_text(last.bytes) if last.bytes else "-"
    return (state.kind, stands, ago, last.outcome, took, f"{last.groups} {counted(state.kind)}", size)


def _remarks(state: ServiceKindState, now_ms: int) -> Iterator[str]:
    if state.open is not None:
        yield _open_text(state.kind, state.open, now_ms)
    elif state.due:
        yield f"due: {state.due}"
    elif state.not_due:
        yield f"not due: {state.not_due}"
    if (failures := state.failures) is not None:
        wait = max(failures.next_try_ms - now_ms, 0) / 1_000
        yield f"failed {failures.in_a_row} times in a row: {failures.reason}; next try in {wait:.0f} s"
    elif state.last is not None and state.last.reason:
        yield f"action {state.last.number} was voided: {state.last.reason}"
    for text in state.held_back:
        yield f"held back: {text}"


def counted(kind: str) -> str:
    """What the stats of a kind's actions count."""
    if kind.startswith("compact"):
        return "file groups"
    return "files" if kind.startswith("clean") else "instants"


def _open_text(kind: str, action: OpenServiceAction, now_ms: int) -> str:
    """What is open. The first part, up to ", since", changes only when the action gets on."""
    done = f", {action.groups_done} of {action.groups} {counted(kind)}" if action.groups else ""
    where = f" at {action.worker}" if action.worker else ""
    since = _duration(now_ms - action.planned_ms)
    size = f", {size_text(action.bytes)}" if action.bytes else ""
    return (
        f"action {action.number} {action.step}{done}{where}, since {since} (instant {action.instant}{size})"
    )


def _run_line(run: Mapping[str, Any]) -> str:
    if not run["number"]:
        return f"{run['kind']}: {run['nothing']}"
    if run["ended"] is None:
        return f"{run['kind']}: action {run['number']}; `tidemark services list` shows how it goes"
    ended = run["ended"]
    took = (ended["ended_ms"] - ended["planned_ms"]) / 1_000
    why = f": {ended['reason']}" if ended["reason"] else ""
    size = f", {size_text(ended['bytes'])}" if ended["bytes"] else ""
    return (
        f"{run['kind']}: action {run['number']} {ended['outcome']}{why}, {ended['groups']} "
        f"{counted(run['kind'])}{size}, in {took:.1f} s"
    )


def _duration(millis: int) -> str:
    seconds = max(millis, 0) // 1_000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"


def size_text(size: float) -> str:
    """Bytes in the largest unit of which there is at least one."""
    for unit in _UNITS[:-1]:
        if size < 1_024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_024
    return f"{size:.1f} {_UNITS[-1]}"
