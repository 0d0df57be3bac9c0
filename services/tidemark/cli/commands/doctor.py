"""`tidemark doctor`: checks whether everything is there that a table needs, and says what to do if not."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.console.arguments import Commands, add_command, duration
from tidemark.console.output import Output, printable
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

if TYPE_CHECKING:
    from tidemark.doctor.checks import Result

_TIMEOUT_MS: Final = 20_000
_NAME_WIDTH: Final = 15
_STATUS_WIDTH: Final = 7
_COLOURS: Final = {"ok": "32", "warning": "33", "fails": "31;1", "skipped": "2"}


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "doctor",
        run_doctor,
        "check Python, Java, the configuration, storage, clocks and Kafka, and say what to do",
        "  tidemark doctor                     what this machine has\n"
        "  tidemark doctor -c flights.yaml     all that this table needs: before the first start, and when\n"
        "                                      something is strange; services may run\n"
        "  tidemark doctor -c flights.yaml --json | jq '.checks[] | select(.status == \"fails\")'\n\n"
        "Exit code 0: no check fails; 1: one does. It removes what it made to try things out (files in the\n"
        "table's and the state folder, a Kafka topic TABLE.doctor-…).",
        config=False,
    )
    parser.add_argument(
        "-c", "--config", metavar="F", help="the table's YAML file; without it only the machine is checked"
    )
    parser.add_argument(
        "--timeout",
        type=duration,
        default=_TIMEOUT_MS,
        metavar="T",
        help="give up a check after T (default: 20s)",
    )


def run_doctor(options: argparse.Namespace) -> int:
    """Prints each result when its check has ended; with --json all at the end. Exit code 1 when a check
    fails.
    """
    use_arrow_alone()
    from tidemark.doctor.checks import CheckStatus, run_checks
    from tidemark.doctor.plan import Patient, plan
    from tidemark.stream_runtime.clock import SystemClock
    from tidemark.stream_runtime.ids import SystemIds

    # Clients log their errors too; the findings say the same in words for the user.
    logging.getLogger("tidemark").addHandler(logging.NullHandler())
    clock, output = SystemClock(), Output(options.json)
    file = None if options.config is None else Path(options.config).expanduser().resolve()
    results = []
    for result in run_checks(plan(Patient(file, clock, SystemIds())), clock, options.timeout / 1_000):
        results.append(result)
        if not options.json:
            output.answer(None, _lines(result, _in_colour()))
    counts = Counter(result.status.value for result in results)
    healthy = counts[CheckStatus.FAILS.value] == 0
    checks = [result.document() for result in results]
    document = {"healthy": healthy, "counts": dict(counts), "checks": checks}
    summary = ", ".join(
        f"{counts[status.value]} {status.value}" for status in CheckStatus if counts[status.value]
    )
    output.answer(document, ["", f"{len(results)} checks: {summary}"])
    return 0 if healthy else 1


def _lines(result: Result, in_colour: bool) -> Iterator[str]:
    for number, finding in enumerate(result.findings):
        name = result.name if number == 0 else ""
        status = finding.status.value
        shown = status.ljust(_STATUS_WIDTH)
        if in_colour:
            shown = f"\x1b[{_COLOURS[status]}m{shown}\x1b[0m"
        yield f"{name:{_NAME_WIDTH}}  {shown}  {printable(finding.text)}"
        if finding.remedy:
            yield f"{'':{_NAME_WIDTH}}  {'':{_STATUS_WIDTH}}  → {printable(finding.remedy)}"


def _in_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ
