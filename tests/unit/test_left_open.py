"""The rule of the test suite (`tests/left_open.py`): what is left open fails the module that left it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
# Whoever waits for the endless thread has waited as long as he wants: how fast the machine is has no say, and
# what the other modules leave has as long to end as in every run.
LEAVES = {
    "cycle": """
        import socket
        class Holds: ...
        def test_leaves_a_socket_in_a_cycle():
            holds = Holds()
            holds.itself, holds.socket = holds, socket.socket()
    """,
    "fixture": """
        import pytest
        @pytest.fixture
        def opened(tmp_path):
            return (tmp_path / "file").open("w")
        def test_uses(opened): ...
    """,
    "thread_that_ends": """
        import socket, threading, time
        def holds(it):
            time.sleep(0.2)
        def test_a_thread_holds_it():
            threading.Thread(target=holds, args=(socket.socket(),), daemon=True).start()
    """,
    "thread_that_runs_on": """
        import threading
        class Endless(threading.Thread):
            def join(self, timeout=None):
                assert timeout > 0
        def test_begins():
            Endless(target=threading.Event().wait, name="endless", daemon=True).start()
    """,
    "rocksdb": """
        from rocksdict import Rdict
        kept = []
        def test_opens(tmp_path):
            kept.append(Rdict(str(tmp_path)))
    """,
    "descriptor": """
        import os
        def test_opens(tmp_path):
            os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    """,
    "failure": """
        import socket
        def test_fails():
            opened = socket.socket()
            assert opened is None
    """,
    "raises": """
        class Raises:
            def __del__(self):
                raise ValueError("in del")
        def test_raises():
            raises = Raises()
            raises.itself = raises
    """,
}
NAMED = {
    "cycle": "unclosed <socket.socket",
    "fixture": "unclosed file",
    "thread_that_ends": "unclosed <socket.socket",
    "thread_that_runs_on": "the thread 'endless' runs on",
    "rocksdb": "LOCK is open",
    "descriptor": "file is open",
    "failure": "unclosed <socket.socket",
    "raises": "ValueError('in del')",
}
_OPEN = dedent(LEAVES["cycle"]) + dedent(LEAVES["descriptor"])
# A test that is marked tells of its module, though it is left out here.
WITH_SPARK = {
    "whole": f"import pytest\npytestmark = [pytest.mark.slow, pytest.mark.spark]\n{_OPEN}",
    "partly": f"import pytest\n@pytest.mark.spark\ndef test_left_out(): ...\n{_OPEN}",
}
CLOSES = """
    import threading
    def test_closes_all(tmp_path):
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        with (tmp_path / "file").open("w"):
            pass
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of one run of all these modules, each with one behind it that closes all, with the suite's settings."""
    folder = tmp_path_factory.mktemp("modules")
    for name, text in WITH_SPARK.items():
        (folder / f"test_spark_{name}.py").write_text(text)
    # No folder is let off.
    (folder / "tests" / "integration").mkdir(parents=True)
    (folder / "tests" / "integration" / "test_9_nested.py").write_text(dedent(LEAVES["cycle"]))
    for number, (name, text) in enumerate(LEAVES.items()):
        (folder / f"test_{number}_{name}.py").write_text(dedent(text))
        (folder / f"test_{number}_{name}_after.py").write_text(dedent(CLOSES))
    command = [sys.executable, "-m", "pytest", "-p", "tests.left_open", "-c", str(ROOT / "pyproject.toml")]
    options = [
        "-k",
        "not left_out",
        "-rA",
        "-o",
        f"cache_dir={folder / 'cache'}",
        "--basetemp",
        str(folder / "tmp"),
        str(folder),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name", [*LEAVES, "nested"])
def test_what_is_left_open_fails_the_module_that_left_it(report: str, name: str) -> None:
    failed = [line for line in report.splitlines() if line.startswith(("ERROR", "FAILED"))]
    of_module = [line for line in failed if f"_{name}.py" in line]
    assert any(line.startswith("ERROR") for line in of_module), report
    assert NAMED.get(name, NAMED["cycle"]) in report


def test_no_other_module_fails(report: str) -> None:
    assert re.findall(r"^(?:ERROR|FAILED) .*_after.py", report, re.M) == []
    assert len(re.findall(r"^PASSED .*_after.py", report, re.M)) == len(LEAVES)


@pytest.mark.parametrize("name", WITH_SPARK)
def test_where_spark_is_it_is_listed(report: str, name: str) -> None:
    assert re.search(rf"^PASSED .*test_spark_{name}.py", report, re.M)
    assert re.findall(rf"^(?:ERROR|FAILED) .*test_spark_{name}.py", report, re.M) == []
