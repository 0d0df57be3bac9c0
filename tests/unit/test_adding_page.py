"""What docs/adding.md names is there: each file, and each name, in the file that is named beside it. On all
pages the tests that are named are there.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding.md"
NOT_OURS = {"index.json"}
"""Files of a Hudi table."""
QUOTED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.-]+(/[\w.-]+)*\.(py|md|proto|yml|json|toml|txt)")
NAME = re.compile(r"_?[A-Z]\w+|\w+_\w+")
TEST_PATH = re.compile(
    r"(?:[\w.-]*/)*test_\w+\.py"
    r"|(?:tests/)?(?:chaos|contract|e2e|fuzz|golden|integration|interop|simulation|soak|unit)/[\w./-]+"
)
"""Of a test's module, or of something in one of the folders of tests."""
TEST_NAME = re.compile(r"test_\w+")
NAME_IN_FILE = re.compile(r"`(\w+)` in `([\w./]+\.py)`")


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def ends_with(tracked: list[str], named: str) -> list[str]:
    """Files whose path is the named one, or ends with it."""
    return [path for path in tracked if f"/{path}".endswith(f"/{named}")]


def test_each_file_that_a_recipe_names_is_there(tracked: list[str]) -> None:
    named = {word for word in QUOTED.findall(PAGE.read_text("utf-8")) if FILE.fullmatch(word)}
    assert len(named) > 80
    assert sorted(word for word in named - NOT_OURS if not ends_with(tracked, word)) == []


def test_each_folder_that_a_recipe_names_is_there(tracked: list[str]) -> None:
    folders = {str(parent) for path in tracked for parent in PurePosixPath(path).parents}
    words = QUOTED.findall(PAGE.read_text("utf-8"))
    named = {word for word in words if re.fullmatch(r"[\w-]+(/[\w-]+)+", word)}
    assert named
    assert sorted(word for word in named if not ends_with(sorted(folders), word)) == []


def test_each_name_that_a_recipe_names_is_in_the_code(tracked: list[str]) -> None:
    texts = [(ROOT / path).read_text("utf-8") for path in tracked if path.endswith((".py", ".proto"))]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    named = {word for word in QUOTED.findall(PAGE.read_text("utf-8")) if NAME.fullmatch(word)}
    assert len(named) > 30
    assert sorted(named - words) == []


def test_a_name_that_is_said_to_be_in_a_file_is_in_it(tracked: list[str]) -> None:
    pairs = NAME_IN_FILE.findall(PAGE.read_text("utf-8"))
    assert len(pairs) > 10
    wrong = [
        (name, file)
        for name, file in pairs
        if not any(
            re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8")) for path in ends_with(tracked, file)
        )
    ]
    assert wrong == []


def wrong_tests(page: str, files: list[str], functions: set[str]) -> list[str]:
    """The tests that a page names in backticks, and that are nowhere: paths, and names of modules or of
    functions. ``files``: paths of files and folders.
    """
    words = dict.fromkeys(QUOTED.findall(page))
    paths = {word: word.strip("/").replace("../", "") for word in words if TEST_PATH.fullmatch(word)}
    names = [word for word in words if TEST_NAME.fullmatch(word) and word not in functions]
    return [word for word, path in paths.items() if not ends_with(files, path)] + [
        name for name in names if not ends_with(files, f"{name}.py") and not ends_with(files, name)
    ]


def test_each_test_that_a_page_names_is_there(tracked: list[str]) -> None:
    files = sorted({str(part) for path in tracked for part in (path, *PurePosixPath(path).parents)})
    tests = [path for path in tracked if path.startswith("tests/") and path.endswith(".py")]
    functions = {
        name for path in tests for name in re.findall(r"def (test_\w+)", (ROOT / path).read_text("utf-8"))
    }
    pages = {path: (ROOT / path).read_text("utf-8") for path in tracked if path.endswith(".md")}
    named = sum(len(re.findall(r"`[^`\n]*test_\w+[^`\n]*`", page)) for page in pages.values())
    assert named > 150, "the pages name their tests otherwise than this test reads them"
    wrong = {path: wrong_tests(page, files, functions) for path, page in pages.items()}
    assert {path: words for path, words in wrong.items() if words} == {}


def test_a_test_that_is_nowhere_is_found() -> None:
    files = ["tests/unit", "tests/unit/rpc", "tests/unit/rpc/test_limits.py"]
    page = "`unit/rpc/test_limits.py`, U`/test_limits.py`, `tests/unit/rpc`, `test_limits`, `test_of_a_case`"
    assert wrong_tests(page, files, {"test_of_a_case"}) == []
    page = "`unit/test_limits.py`, U`/test_gone.py`, `tests/unit/gone`, `test_gone`, `limits.py`"
    assert wrong_tests(page, files, set()) == page.replace("U`", "`").replace("`", "").split(", ")[:4]
