"""Who makes files that count asks the publication port: no other product code knows staging folders, links,
renames or the times of files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
FORMAT: Final = ROOT / "libs/tidemark/hudi_format"
INSIDE: Final = (FORMAT / "publication", FORMAT / "storage")
FOLDER_CALLS: Final = frozenset({"rename", "rename_over", "touch", "link", "write_in_pieces"})
"""What `FolderStorage` alone has, but for `publish`, as others call things of their own."""
ONLY_INSIDE: Final = frozenset({"FolderStorage", "mtime_ms", "exclusive", "overwrite"})
OTHER_FILES: Final = frozenset({
    # Local disks of one process: no table, no storage.
    "libs/tidemark/hudi_format/file_group/kept_tables.py",
    "services/tidemark/doctor/files.py",
    "services/tidemark/index_assigner/index/rocks.py",
    "libs/tidemark/stream_runtime/platform/class_data.py",
    "libs/tidemark/stream_runtime/platform/jars.py",
    "libs/tidemark/stream_runtime/security/server.py",
})  # fmt: skip


def known_of_folders(source: str) -> Iterator[str]:
    """What the code says that only the port may know."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in FOLDER_CALLS | ONLY_INSIDE:
            yield node.attr
        elif isinstance(node, ast.Name) and node.id in ONLY_INSIDE:
            yield node.id
        elif isinstance(node, ast.keyword) and node.arg in ONLY_INSIDE:
            yield str(node.arg)


def product_files() -> list[Path]:
    found = [path for top in ("libs", "services") for path in (ROOT / top).rglob("*.py")]
    outside = [path for path in found if not any(path.is_relative_to(each) for each in INSIDE)]
    return [path for path in outside if str(path.relative_to(ROOT)) not in OTHER_FILES]


def test_no_caller_knows_folders_times_or_renames() -> None:
    files = product_files()
    assert len(files) > 300
    known = {
        str(path.relative_to(ROOT)): found
        for path in files
        if (found := [*known_of_folders(path.read_text())])
    }
    assert known == {}


@pytest.mark.parametrize(
    "planted",
    [
        "storage.rename('a', 'b')",
        "storage.touch('a', create=False)",
        "storage.publish('staging', 'a', b'', overwrite=True)",
        "storage.make_dir('a', exclusive=True)",
        "age = now - info.mtime_ms",
        "def of(storage: FolderStorage) -> None: ...",
    ],
)
def test_what_is_planted_is_found(planted: str) -> None:
    assert list(known_of_folders(planted))


def test_files_that_are_left_out_are_there() -> None:
    assert [name for name in OTHER_FILES if not (ROOT / name).exists()] == []
