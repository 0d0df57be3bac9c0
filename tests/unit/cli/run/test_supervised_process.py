"""Children of `run`: started again with growing pauses, given up when they refuse, their words handed on."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidemark.cli.run.console_log import ConsoleLog, short_line
from tidemark.cli.run.supervised_process import Backoff, ReplacedError, SupervisedProcess
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.console.errors import CliError, exit_code_of
from tidemark.console.state_lock import state_lock
from tidemark.epoch_protocol.errors import FoldGapError
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.index_assigner.errors import InputLostError
from tidemark.ledger_client.errors import SupersededError
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError

STAYS = "import time; print('up', flush=True); time.sleep(600)"
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {STAYS}"


class Rig:
    """One supervised child that runs a line of Python."""

    def __init__(self, folder: Path, source: str) -> None:
        self.said: list[str] = []
        self.forwarded: list[str] = []
        self.log = folder / "logs" / "child.log"
        console = ConsoleLog(self.log, self.forwarded.append)
        command = [sys.executable, "-c", source]
        self.process = SupervisedProcess("child", command, console, SystemClock(), self.said.append)

    def until(self, holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
        end = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < end, (self.said, self.log.read_text() if self.log.exists() else "")
            self.process.step()
            time.sleep(0.01)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[[str], Rig]]:
    rigs: list[Rig] = []

    def make(source: str) -> Rig:
        rigs.append(Rig(tmp_path, source))
        return rigs[-1]

    yield make
    for each in rigs:
        each.process.stop(0.0)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_killed_child_is_started_again_with_a_new_process(rig):
    one = rig(STAYS)
    one.until(lambda: one.log.exists() and "up" in one.log.read_text())
    first = one.process.pids[0]
    os.kill(first, signal.SIGKILL)
    one.until(lambda: one.process.pids not in ([], [first]))
    assert one.process.starts == 2
    assert "child was killed by signal 9; it starts again in 0.2 s" in one.said[0]


def test_child_that_lived_long_is_started_again_at_once(rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidemark.cli.run.supervised_process._SETTLED_S", 0.0)
    one = rig(STAYS)
    one.until(lambda: bool(one.process.pids))
    first = one.process.pids[0]
    os.kill(first, signal.SIGKILL)
    one.until(lambda: one.process.pids not in ([], [first]))
    assert "child was killed by signal 9; it starts again at once" in one.said[0]


def test_child_that_keeps_dying_is_started_ever_less_often(rig):
    one = rig("raise SystemExit(1)")
    started = time.monotonic()
    one.until(lambda: len(one.said) == 4)
    # Pauses of 0.25, 0.5 and 1 s came before the fourth death.
    assert time.monotonic() - started > 1.75
    assert "it starts again in 2.0 s" in one.said[3]


def test_pauses_are_bounded_and_forgotten_after_a_long_life():
    backoff = Backoff()
    assert [backoff.wait_s(0.1) for _ in range(8)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert [backoff.wait_s(0.1) for _ in range(14)][-2:] == [60.0, 60.0]
    assert backoff.wait_s(31.0) == 0.0
    assert backoff.wait_s(0.1) == 0.5


def test_child_whose_configuration_is_wrong_is_stopped_at_once_with_its_words(rig):
    words = "tidemark child: x.yaml: table.path: no such"
    one = rig(f"import sys; sys.stderr.write({words!r} + chr(10)); sys.exit(2)")
    one.until(lambda: one.process.stopped is not None)
    assert (one.process.stopped, one.process.stopped_code) == ("x.yaml: table.path: no such", 2)
    assert (one.process.starts, one.said) == (1, [])


@pytest.mark.parametrize("code", [4, 5])
def test_child_that_refuses_again_and_again_is_stopped_with_its_words(rig, code: int):
    words = "tidemark child: x.yaml: table.path: no such"
    one = rig(f"import sys; sys.stderr.write({words!r} + chr(10)); sys.exit({code})")
    one.until(lambda: one.process.stopped is not None)
    assert (one.process.stopped, one.process.stopped_code) == ("x.yaml: table.path: no such", code)
    assert one.process.starts == 3
    assert [f"ended with code {code}; it starts again in {wait} s" in said for wait, said in
            zip(("0.5", "2.0"), one.said, strict=True)] == [True, True]  # fmt: skip
    for _ in range(5):
        one.process.step()
    assert (one.process.starts, one.process.pids) == (3, [])


def test_child_whose_port_was_taken_for_a_moment_goes_on(rig, tmp_path: Path):
    """Code 5 twice, then it lives: who had the port has gone."""
    turns = tmp_path / "turns"
    one = rig(
        f"from pathlib import Path; p = Path({str(turns)!r}); n = len(p.read_text()) if p.exists() else 0; "
        f"p.write_text('x' * (n + 1)); import sys; n < 2 and sys.exit(5); {STAYS}"
    )
    one.until(lambda: one.log.exists() and "up" in one.log.read_text())
    assert one.process.stopped is None
    assert one.process.starts == 3


def test_child_that_keeps_dying_is_said_to_fail_until_it_lives(rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidemark.cli.run.supervised_process._WAIT_MIN_S", 0.01)
    one = rig("import sys; sys.stderr.write('tidemark child: Kafka is not there' + chr(10)); sys.exit(1)")
    one.until(lambda: one.process.failing is not None)
    assert one.process.starts == 5
    assert one.process.failing == (
        "ended with code 1, 5 times in a row, and is started again: Kafka is not there"
    )
    assert one.process.stopped is None
    assert sum("5 times in a row" in said for said in one.said) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputLostError("gone"), 4),
        (DivergedError("two stories"), 4),
        (FoldGapError("eaten"), 4),
        (CorruptFileError("damaged"), 4),
        (SetupError("wrong"), 2),
        (OSError(28, "No space left on device"), 1),
        (KafkaUnavailableError("nobody"), 1),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_what_a_restart_cannot_cure_has_an_exit_code_of_its_own(error: Exception, code: int):
    assert exit_code_of(error) == code


def test_child_that_is_replaced_twice_in_a_row_is_not_started_again(rig):
    one = rig("raise SystemExit(3)")
    with pytest.raises(ReplacedError, match="another `tidemark run`") as replaced:
        one.until(lambda: False)
    assert (one.process.starts, len(one.said), replaced.value.exit_code) == (2, 1, 3)


def test_a_coordinator_that_was_replaced_exits_with_a_code_of_its_own():
    assert exit_code_of(SupersededError("a newer coordinator has claimed this table")) == 3


def test_being_replaced_now_and_then_is_no_reason_to_stop(rig, tmp_path):
    turns = tmp_path / "turns"
    one = rig(
        f"from pathlib import Path; p = Path({str(turns)!r}); n = len(p.read_text()) if p.exists() else 0; "
        "p.write_text('x' * (n + 1)); raise SystemExit(3 if n % 2 == 0 else 1)"
    )
    one.until(lambda: len(one.said) == 4)
    assert one.process.starts == 4


def test_stop_asks_first_and_insists_after_the_grace(rig):
    polite, stubborn = rig(STAYS), rig(IGNORES_SIGTERM)
    for one in (polite, stubborn):
        one.until(lambda one=one: one.log.read_text().count("up") >= 1 if one.log.exists() else False)
    stubborn.until(lambda: stubborn.log.read_text().count("up") == 2)
    pids = [*polite.process.pids, *stubborn.process.pids]
    started = time.monotonic()
    polite.process.stop(120.0)
    assert time.monotonic() - started < 100.0, "it was asked, and ended long before the grace was over"
    stubborn.process.stop(0.3)
    assert all(map(is_gone, pids))


def test_warnings_are_handed_on_and_the_rest_stays_in_the_file(tmp_path: Path):
    lines: list[str] = []
    log = tmp_path / "x.log"
    log.write_text('level=error message="of an earlier run"\n')
    console = ConsoleLog(log, lines.append)
    with log.open("a") as file:
        file.write('time=1 level=info message=fine\ntime=2 level=warning message="it is \\"late\\"" lane=3\n')
        file.write(
            "Traceback (most recent call last):\ntidemark writer: no Java 17\nlevel=error message=half"
        )
        file.flush()
        console.poll()
        assert lines == ['warning: it is "late"', "tidemark writer: no Java 17"]
        file.write("way\n")
    console.poll()
    assert lines[2:] == ["error: halfway"]
    assert console.last_lines()[-1] == "level=error message=halfway"


@pytest.mark.parametrize("form", ['level=error message="{}"', '{{"level": "error", "message": "{}"}}'])
@pytest.mark.parametrize("length", [3_970, 3_990, 5_000, 200_000])
def test_line_that_is_too_long_is_handed_on_as_far_as_it_goes(tmp_path: Path, form: str, length: int):
    """A stack trace of Spark is longer than what is kept of a line."""
    lines: list[str] = []
    log = tmp_path / "x.log"
    console = ConsoleLog(log, lines.append)
    log.write_text(form.format("Spark gave up: " + "\\n\\tat x" * (length // 8)) + "\n")
    console.poll()
    (line,) = lines
    assert "error" in line
    assert "Spark gave up" in line


@pytest.mark.parametrize("message", ['"', '"a', '"a\\', '"\\x41"', '"\\ud800"', '"\\', '""'])
def test_message_in_broken_quotes_stays_readable(message: str):
    assert short_line(f"level=warning message={message}").startswith("warning: ")


def test_json_logs_are_handed_on_too(tmp_path: Path):
    lines: list[str] = []
    console = ConsoleLog(tmp_path / "x.log", lines.append)
    (tmp_path / "x.log").write_text('{"level": "warning", "message": "late"}\n{"level": "info"}\n')
    console.poll()
    assert lines == ["warning: late"]


def test_log_stays_below_its_limit_while_the_child_goes_on_writing(tmp_path: Path):
    log = tmp_path / "x.log"
    console = ConsoleLog(log, lambda _: None, bytes_max=1_000)
    with log.open("ab", buffering=0) as child:
        for number in range(200):
            child.write(f"line {number:04d} {'.' * 40}\n".encode())
            console.poll()
    kept = sorted(tmp_path.iterdir())
    assert [each.name for each in kept] == ["x.log", "x.log.1", "x.log.2"]
    assert all(each.stat().st_size < 1_200 for each in kept)
    assert "line 0199" in log.read_text() + (tmp_path / "x.log.1").read_text()
    assert "\0" not in log.read_text()


@pytest.mark.parametrize("line", ["plain words", "level=warning without a message", ""])
def test_lines_of_another_form_stay_as_they_are(line: str):
    assert short_line(line) == line


def test_state_folder_is_held_by_one_and_free_after_it(tmp_path: Path):
    with state_lock(tmp_path / "state", "tidemark run -c a.yaml"):
        in_use = rf"in use by process {os.getpid()} \(tidemark run -c a.yaml\)"
        with pytest.raises(CliError, match=in_use), state_lock(tmp_path / "state", "tidemark demo"):
            pytest.fail("two held it")
    with state_lock(tmp_path / "state", "tidemark demo"):
        assert "tidemark demo" in (tmp_path / "state" / "run.lock").read_text()


def test_state_path_that_is_a_file_is_named(tmp_path: Path):
    (tmp_path / "state").write_text("")
    taken = r"state: Not a directory: state\.path must be a folder"
    with pytest.raises(CliError, match=taken) as raised, state_lock(tmp_path / "state", "tidemark run"):
        pytest.fail("held a file")
    assert raised.value.exit_code == 2


def test_a_line_of_json_that_is_cut_stays_as_it_is():
    assert short_line('{"level": "warning", "mess') == '{"level": "warning", "mess'
