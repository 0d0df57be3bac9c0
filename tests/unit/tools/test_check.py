"""Which tests `make check` takes for a change, what it says of the rest, and that its time is limited."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.clock import ManualClock
from tools.changed_tests import Choice, Limits, base_commit, changed_files, choose
from tools.check import Check, told
from tools.import_graph import module_name, read_graph, stub_names
from tools.time_limit import REASON, TimeLimit

ROOT = Path(__file__).resolve().parents[3]
USUAL = Limits()
FILES = {
    "libs/tidemark/fold.py": "",
    "services/tidemark/loop.py": "from tidemark import fold\n",
    "libs/tidemark/hinted.py": "if TYPE_CHECKING:\n    from tidemark.fold import Fold\n",
    "services/tidemark/page.py": 'PAGE = "page.html"\n',
    "services/tidemark/page.html": "<p>",
    "proto/tidemark/admin/v1/admin.proto": "",
    "tests/conftest.py": "",
    "tests/fold_world.py": "def world():\n    import tidemark.fold\n",
    "tests/unit/test_fold.py": "from tidemark.fold import Fold\n",
    "tests/unit/test_loop.py": "from tidemark.loop import Loop\n",
    "tests/unit/test_hinted.py": "from tidemark.hinted import hinted\n",
    "tests/unit/test_page.py": "from tidemark.page import PAGE\n",
    "tests/unit/test_admin.py": "from tidemark.admin.v1 import admin_pb2\n",
    "tests/simulation/test_world.py": "from tests.fold_world import world\n",
    "tests/interop/test_spark.py": "from tidemark.fold import Fold\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def chosen(root: Path, *changed: str, limits: Limits = USUAL) -> Choice:
    choice = choose(root, read_graph(root), changed, limits)
    rules = [path for path in choice.distances if path not in FILES]
    assert rules
    return Choice({path: n for path, n in choice.distances.items() if path not in rules}, choice.left_out)


def test_tests_that_import_what_changed_are_chosen_the_nearest_first(root: Path) -> None:
    choice = chosen(root, "libs/tidemark/fold.py")
    assert list(choice.distances.items()) == [
        ("tests/unit/test_fold.py", 1),
        ("tests/unit/test_loop.py", 2),
        ("tests/simulation/test_world.py", 2),
    ]
    assert choice.left_out == {"interop": 1}


def test_what_lies_beyond_the_limits_is_counted_as_left_out(root: Path) -> None:
    choice = chosen(root, "libs/tidemark/fold.py", limits=Limits(modules=3))
    assert list(choice.distances) == ["tests/unit/test_fold.py"]
    assert choice.left_out == {"unit": 1, "simulation": 1, "interop": 1}
    choice = chosen(root, "libs/tidemark/fold.py", limits=Limits(distance=1))
    assert list(choice.distances) == ["tests/unit/test_fold.py"]


def test_a_module_that_is_gone_still_has_its_importers(root: Path) -> None:
    (root / "libs/tidemark/fold.py").unlink()
    assert "tests/unit/test_fold.py" in chosen(root, "libs/tidemark/fold.py").distances


def test_a_file_that_is_no_python_stands_for_the_modules_that_name_it(root: Path) -> None:
    choice = choose(root, read_graph(root), ["services/tidemark/page.html"], Limits())
    assert choice.distances == {"tests/unit/test_page.py": 1}


def test_a_proto_stands_for_its_generated_modules(root: Path) -> None:
    choice = choose(root, read_graph(root), ["proto/tidemark/admin/v1/admin.proto"], Limits())
    assert choice.distances == {"tests/unit/test_admin.py": 1}


def test_a_conftest_belongs_to_all_tests_below_it(root: Path) -> None:
    found = chosen(root, "tests/conftest.py").distances
    assert set(found) == {name for name in FILES if "/test_" in name and "interop" not in name}


def test_a_changed_test_is_chosen_itself(root: Path) -> None:
    assert chosen(root, "tests/unit/test_loop.py").distances == {"tests/unit/test_loop.py": 0}


def test_modules_are_named_as_they_are_imported() -> None:
    assert module_name("libs/tidemark/errors/__init__.py") == "tidemark.errors"
    assert module_name("services/tidemark/cli/entry.py") == "tidemark.cli.entry"
    assert module_name("tests/fuzz/run.py") == "tests.fuzz.run"
    assert stub_names("proto/tidemark/admin/v1/admin.proto")[0] == "tidemark.admin.v1.admin_pb2"


def test_the_graph_of_this_repository_knows_who_tests_the_fold() -> None:
    found = choose(ROOT, read_graph(ROOT), ["libs/tidemark/epoch_protocol/fold.py"], Limits())
    assert found.distances["tests/unit/epoch_protocol/test_fold.py"] == 1
    assert len(found.distances) <= Limits().modules
    assert found.left_out["simulation"] > 0


def test_changes_since_the_branch_and_files_that_git_does_not_know_yet_are_found(root: Path) -> None:
    def git(*words: str) -> None:
        named = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *named, *words], cwd=root, check=True, capture_output=True)

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "one")
    git("checkout", "-b", "mine")
    (root / "libs/tidemark/fold.py").write_text("x = 1\n")
    git("commit", "-am", "two")
    (root / "services/tidemark/loop.py").write_text("y = 2\n")
    (root / "tests/unit/test_new.py").write_text("")
    (root / "tests/unit/test_hinted.py").unlink()
    found = changed_files(root, base_commit(root, "main"))
    tests = ["tests/unit/test_hinted.py", "tests/unit/test_new.py"]
    assert found == ["libs/tidemark/fold.py", "services/tidemark/loop.py", *tests]
    assert base_commit(root, "no-such-branch") == "HEAD"
    assert "libs/tidemark/fold.py" not in changed_files(root, "HEAD")


def test_a_step_that_fails_shows_what_it_printed_and_the_others_run() -> None:
    out = io.StringIO()
    check = Check(out, ManualClock(), [], 0.0)
    fails, works = "print('this is wrong'); raise SystemExit(1)", "print('all is well')"
    check.side_by_side({"types": (sys.executable, "-c", fails), "lint": (sys.executable, "-c", works)})
    assert check.failed == ["types"]
    assert "this is wrong" in out.getvalue()
    assert "all is well" not in out.getvalue()


def test_what_is_left_out_is_said() -> None:
    lines = told(Choice({"tests/unit/test_a.py": 1}, {"unit": 3, "e2e": 2}))
    assert lines[1] == "  1  tests/unit/test_a.py"
    assert "3 of `make unit`, 2 of `make e2e`" in lines[2]


def test_time_is_counted_from_the_first_test_on() -> None:
    clock = ManualClock()
    limit = TimeLimit(5.0, clock)
    clock.advance(100.0)
    assert not limit.is_over()
    clock.advance(4.9)
    assert not limit.is_over()
    clock.advance(0.1)
    assert limit.is_over()


def test_no_test_begins_after_the_moment_that_is_given_however_long_modules_took_to_load() -> None:
    clock = ManualClock()
    limit = TimeLimit(5.0, clock, until_s=clock.monotonic_s() + 102.0)
    clock.advance(100.0)
    assert not limit.is_over()
    clock.advance(2.0)
    assert limit.is_over()


def test_tests_run_in_the_order_of_the_command_line_and_are_skipped_when_the_time_is_over(
    tmp_path: Path,
) -> None:
    for name in ("test_b", "test_a"):
        (tmp_path / f"{name}.py").write_text("def test_it():\n    pass\n")
    command = [
        sys.executable, "-m", "pytest", "-v", "-rs", "-c", os.devnull, "--rootdir", str(tmp_path),
        "-p", "no:cacheprovider", "-p", "tools.time_limit", "test_b.py", "test_a.py", "--for",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def ran(*limits: str) -> str:
        ended = subprocess.run(
            [*command, *limits], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    in_time, too_late = ran("600"), ran("0")
    assert in_time.index("test_b.py::test_it PASSED") < in_time.index("test_a.py::test_it PASSED")
    for late in (too_late, ran("600", "--until", "0")):
        assert REASON in late
        assert "2 skipped" in late
