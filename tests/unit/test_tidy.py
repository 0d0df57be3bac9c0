"""The rules of style that no linter knows: sizes, names, docstrings, no large files."""

import ast
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
VAGUE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "manager.py", "common.py", "misc.py"}
PRODUCT = ("libs/", "services/")
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


@dataclass
class Looked:
    """What was found in all modules, by place. ``each_bound``: in the product alone."""

    long_modules: dict[str, int] = field(default_factory=dict)
    long_functions: dict[str, int] = field(default_factory=dict)
    each_bound: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def looked(modules):
    """All modules, each parsed once: that is what takes time here."""
    found = Looked()
    for file in modules:
        text, name = file.read_text(), named(file)
        if (lines := len(text.splitlines())) > MODULE_LINES_MAX:
            found.long_modules[name] = lines
        tree = ast.parse(text)
        if text.strip() and ast.get_docstring(tree) is None:
            found.silent.append(name)
        says_each = name.startswith(PRODUCT) and "each" in text
        if says_each or lines > FUNCTION_LINES_MAX:
            look_through(tree, name, says_each, found)
    return found


def look_through(tree, name, says_each, found):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.long_functions[f"{name}:{node.lineno} {node.name}"] = lines
        elif says_each and isinstance(node, ast.Name | ast.arg) and binds_each(node):
            found.each_bound.append(f"{name}:{node.lineno}")


def binds_each(node):
    """`each` says only that there are several."""
    if isinstance(node, ast.arg):
        return node.arg == "each"
    return node.id == "each" and isinstance(node.ctx, ast.Store)


def test_modules_are_short(looked):
    assert looked.long_modules == {}, f"split these modules (at most {MODULE_LINES_MAX} lines)"


def test_functions_are_short(looked):
    assert looked.long_functions == {}, f"split these functions (at most {FUNCTION_LINES_MAX} lines)"


def test_loops_of_the_product_name_what_they_go_over(looked):
    assert looked.each_bound == []


def test_modules_have_names_that_say_something(modules):
    assert [named(file) for file in modules if file.name in VAGUE_NAMES] == []


def test_modules_say_what_they_are(looked):
    assert looked.silent == []


def test_no_large_files_are_in_git(files):
    large = {named(file): file.stat().st_size for file in files if file.stat().st_size > 2_000_000}
    assert large == {}
