"""The table's secondary index in a campaign: made before the first fault and kept by all epochs (`kept`), or
dropped, made and repaired again and again by the command line while faults go on (`remade`).

Every other command of the second kind is killed: at a step under the table's lock (`SecondaryFailpoint`), or
after a part of the time that the last whole one took. The same command is run again behind it, until one has
ended by itself. Each repair has to find nothing wrong: what is between two of them epochs wrote.

The first command is run until one was killed: the lock of a coordinator that died may turn it away before its
step, and a short round has no other. A round that is to be short kills only so many: nothing is committed
while the lock of a dead command is waited for.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.chaos.secondary_entries import check_entries, kept_index
from tests.input_model import Row
from tidemark.hudi_format.metadata_table.secondary_creation import SecondaryFailpoint
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE, EXIT_CODE
from tidemark.stream_runtime.platform import child

NONE, KEPT, REMADE = "none", "kept", "remade"
SECONDARY: Final = (NONE, KEPT, REMADE)
_NAME: Final = "by_it"
# Each event changes a row's name; several rows have one time; a region has many rows, which move.
_COLUMNS: Final = ("name", "ts", "region")
_KILLS_IN_A_ROW: Final = 2
_FIRST_S: Final = 3.0
_REST_S: Final = (1.0, 6.0)
_AGAIN_S: Final = 1.0
# A command waits for a dead one's lock (30 s), for a dead writer's attempt (120 s), and for its own work.
_COMMAND_S: Final = 240.0
_SUCCESS_S: Final = 360.0
# At the most: the first command is killed at last, its repetition succeeds, and so does the last creation.
COMMANDS_END_S: Final = 3 * (_SUCCESS_S + _COMMAND_S)
_JOIN_S: Final = 30.0
_POLL_S: Final = 0.05
_DROPS: Final = (
    SecondaryFailpoint.AFTER_SECONDARY_UNLISTED,
    SecondaryFailpoint.AFTER_SECONDARY_UNDEFINED,
    SecondaryFailpoint.AFTER_SECONDARY_DELETED,
)
_STEPS: Final[Mapping[str, tuple[SecondaryFailpoint, ...]]] = {
    "create": tuple(SecondaryFailpoint),
    "drop": _DROPS,
    "repair": (),
}


@dataclass(frozen=True)
class Command:
    """`tidemark index VERB by_it`; `column`: of a creation."""

    verb: str
    column: str = ""

    @property
    def arguments(self) -> list[str]:
        return ["index", self.verb, _NAME, *(["--column", self.column] if self.column else [])]


@dataclass(frozen=True)
class Death:
    """How a command dies: at a step, or after some seconds."""

    place: str = ""
    after_s: float = 0.0


def next_command(random: Random, table: Path) -> Command:
    """What comes next, by what there is: an index that is half made is made or dropped."""
    index = kept_index(table)
    if index is not None and index.is_listed:
        verb = random.choice(("repair", "repair", "create", "drop"))
    else:
        verb = random.choice(("create", "create", "drop")) if index is not None else "create"
    if verb != "create":
        return Command(verb)
    return Command(verb, random.choice(_COLUMNS) if index is None else index.column)


def next_death(random: Random, verb: str, last_s: float, at_a_step: float = 0.5) -> Death:
    """`last_s`: how long a command took that was not killed. `at_a_step`: how probable a step is, for a verb
    that has some.
    """
    if _STEPS[verb] and random.random() < at_a_step:
        return Death(random.choice(_STEPS[verb]).value)
    return Death(after_s=random.uniform(0.2, 1.1) * last_s)


class IndexCommands:
    """The thread of the commands. `failures` holds what was found wrong; `done` and `killed` count commands
    by their verb, `refused` what was said by those that ended with an error and were run again.
    """

    def __init__(
        self,
        kind: str,
        table: Path,
        config: Callable[[], Path],
        log: Path,
        seed: int,
        patience: float,
        kills: float = math.inf,
        rest: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        """`kind`: one of `SECONDARY`. `config`: makes the file that commands are given, `log`: where their
        output goes. `kills`: how many commands are killed at the most, one at least. `rest` multiplies the
        pauses between them.
        """
        self._clock = clock or SystemClock()
        self._kind, self._table, self._make_config, self._log = kind, table, config, log
        self._random, self._patience, self._most_kills = Random(seed), patience, kills
        self._shortest_s, self._longest_s = (rest * seconds for seconds in _REST_S)
        self._last_s = _FIRST_S
        self._is_last, self._abandoned = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="index commands", daemon=True)
        self.failures: list[str] = []
        self.done: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def start(self) -> None:
        if self._kind != NONE:
            # Here, as the cluster is for one thread.
            self._config = self._make_config()
            self._thread.start()

    def is_there(self) -> bool:
        """Whether the index that all epochs are to keep is made; with `remade` none has to be there."""
        return self._kind != KEPT or not self._thread.is_alive()

    def rests(self) -> bool:
        """Kills nothing more, and sees to it that there is an index in the end; whether there is."""
        self._is_last.set()
        return self._kind == NONE or not self._thread.is_alive()

    def end(self) -> None:
        """Ends the command that runs. Repeatable."""
        self._is_last.set()
        self._abandoned.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def check(self, rows: Mapping[str, Row]) -> Iterator[str]:
        """Its entries are those of the rows; with `remade` at least one command was killed."""
        if self._kind == NONE:
            return
        yield from check_entries(self._table, rows)
        if self._kind == REMADE and not self.killed:
            yield "no command of the secondary index was killed"

    def judge(self, command: Command, output: str) -> None:
        """Raises AssertionError where a repair found something."""
        if command.verb != "repair":
            return
        answer: Any = json.loads(output[output.index("{") :])
        if answer["missing"] or answer["extra"] or answer["anew"]:
            raise AssertionError(f"epochs left the secondary index wrong: {answer}")

    def summary(self) -> str:
        """Empty where the table has none."""
        if self._kind == NONE:
            return ""
        refused = f", run again: {dict(self.refused)}" if self.refused else ""
        return f"index commands {dict(self.done)}, killed {dict(self.killed)}{refused}; "

    def _run(self) -> None:
        try:
            if self._kind == KEPT:
                self._whole(Command("create", self._random.choice(_COLUMNS)))
                return
            while not self._is_last.is_set():
                self._one(next_command(self._random, self._table))
                self._pause(self._is_last, self._random.uniform(self._shortest_s, self._longest_s))
            index = kept_index(self._table)
            if index is None or not index.is_listed:
                self._whole(Command("create", index.column if index else self._random.choice(_COLUMNS)))
        except Exception as error:
            if not self._abandoned.is_set():
                self.failures.append(f"index commands: {type(error).__name__}: {error}")

    def _one(self, command: Command) -> None:
        kills = 0
        if not self.killed:
            self._kill_first(command)
            kills = 1
        while kills < _KILLS_IN_A_ROW and self._may_kill() and self._random.random() < 0.5:
            self._die(command, next_death(self._random, command.verb, self._last_s))
            kills += 1
        self._whole(command)

    def _may_kill(self) -> bool:
        return self.killed.total() < self._most_kills and not self._is_last.is_set()

    def _kill_first(self, command: Command) -> None:
        """At a step, if it has one. It is run again while it ends with an error, for as long as a command may
        that is not killed.
        """
        until_s = self._clock.monotonic_s() + _SUCCESS_S * self._patience
        death = next_death(self._random, command.verb, self._last_s, at_a_step=1.0)
        while not self._abandoned.is_set():
            if self._die(command, death) or self._clock.monotonic_s() > until_s:
                return
            self._rest()

    def _die(self, command: Command, death: Death) -> bool:
        """It may end by itself before; returns False when that was with an error. Raises AssertionError for a
        command that hangs.
        """
        environment, said = {ENVIRONMENT_VARIABLE: death.place} if death.place else {}, self._size()
        process = self._spawn(command, environment)
        self._wait(process, death.after_s or _COMMAND_S * self._patience)
        runs = process.poll() is None
        child.kill(process, self._clock)
        output = self._said(said)
        if self._abandoned.is_set():
            return True
        if runs and death.place:
            raise AssertionError(f"{command} hangs, and came to no {death.place}: {output}")
        if runs or process.returncode == EXIT_CODE:
            self.killed[command.verb] += 1
        elif self._is_done(command, process.returncode, output):
            self.judge(command, output)
        else:
            self._refuse(output)
            return False
        return True

    def _whole(self, command: Command) -> None:
        """Until the command has ended by itself with success. An error is no finding where the next try has
        none: the table may be full, a coordinator may have died with the lock.
        """
        until_s = self._clock.monotonic_s() + _SUCCESS_S * self._patience
        while not self._abandoned.is_set():
            began_s, said = self._clock.monotonic_s(), self._size()
            process = self._spawn(command, {})
            self._wait(process, _COMMAND_S * self._patience)
            hangs = process.poll() is None
            child.kill(process, self._clock)
            output = self._said(said)
            if self._is_done(command, process.returncode, output):
                self._last_s = self._clock.monotonic_s() - began_s
                self.done[command.verb] += 1
                self.judge(command, output)
                return
            if hangs or self._clock.monotonic_s() > until_s:
                raise AssertionError(
                    f"{command} {'hangs' if hangs else f'ends with {process.returncode}'}: {output}"
                )
            self._refuse(output)
            self._rest()

    def _refuse(self, output: str) -> None:
        self.refused[output.strip().rpartition("\n")[2][:160]] += 1

    def _rest(self) -> None:
        self._pause(self._abandoned, _AGAIN_S)

    def _pause(self, end: threading.Event, seconds: float) -> None:
        until_s = self._clock.monotonic_s() + seconds
        while not end.is_set() and self._clock.monotonic_s() < until_s:
            self._clock.sleep(_POLL_S)

    def _is_done(self, command: Command, code: int, output: str) -> bool:
        # Killed behind its last step, the drop before has left nothing to drop.
        gone = command.verb == "drop" and f"no secondary index {_NAME}" in output
        return code == 0 or gone

    def _spawn(self, command: Command, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        arguments = [*command.arguments, "-c", str(self._config), "--json"]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as log:
            log.write(f"--- {' '.join(command.arguments)} {dict(environment) or ''}\n")
        line = [sys.executable, "-m", "tidemark.cli.entry", *arguments]
        return child.spawn(line, self._log, environment={**os.environ, **environment})

    def _wait(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        until_s = self._clock.monotonic_s() + seconds
        while process.poll() is None and self._clock.monotonic_s() < until_s:
            if self._abandoned.is_set():
                return
            self._clock.sleep(_POLL_S)

    def _size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _said(self, since: int) -> str:
        text = self._log.read_bytes()[since:].decode(errors="replace")
        return text.partition("\n")[2]
