"""The rules of style that no linter knows: sizes, names, docstrings, no large files."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
VAGUE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "manager.py", "common.py", "misc.py"}
PRODUCT = ("libs", "services")
SOURCE_FOLDERS = ("libs", "services", "tests", "bench", "tools")


def tracked_files():
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def files():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    return tracked_files()


@pytest.fixture(scope="module")
def modules(files):
    return [
        file for file in files if file.suffix == ".py" and file.relative_to(ROOT).parts[0] in SOURCE_FOLDERS
    ]


def named(file):
    return file.relative_to(ROOT).as_posix()


def test_modules_are_short(modules):
    long = {
        named(file): lines
        for file in modules
        if (lines := len(file.read_text().splitlines())) > MODULE_LINES_MAX
    }
    assert long == {}, f"split these modules (at most {MODULE_LINES_MAX} lines)"


def test_functions_are_short(modules):
    long = {}
    for file in modules:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{named(file)}:{node.lineno} {node.name}"] = lines
    assert long == {}, f"split these functions (at most {FUNCTION_LINES_MAX} lines)"


def test_loops_of_the_product_name_what_they_go_over(modules):
    """`each` says only that there are several."""
    bound = [
        f"{named(file)}:{node.lineno}"
        for file in modules
        if file.relative_to(ROOT).parts[0] in PRODUCT
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Name) and node.id == "each" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == "each")
    ]
    assert bound == []


def test_modules_have_names_that_say_something(modules):
    assert [named(file) for file in modules if file.name in VAGUE_NAMES] == []


def test_modules_say_what_they_are(modules):
    silent = [
        named(file)
        for file in modules
        if file.read_text().strip() and ast.get_docstring(ast.parse(file.read_text())) is None
    ]
    assert silent == []


def test_no_large_files_are_in_git(files):
    large = {named(file): file.stat().st_size for file in files if file.stat().st_size > 2_000_000}
    assert large == {}
