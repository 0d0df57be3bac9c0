"""Stubs are made anew beside processes that import them: what is right already is not touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.generate_stubs import PROTO_ROOT, generate

_COMMIT = Path("tidemark/commit/v1/commit_pb2.py")


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    folder = tmp_path / "proto"
    shutil.copytree(PROTO_ROOT, folder)
    return folder


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Path below `folder` -> (inode, bytes)."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_ino, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_stubs_that_are_right_are_not_touched(tmp_path: Path, protos: Path) -> None:
    target = tmp_path / "stubs"
    assert generate(protos, target) == 3
    (target / ".stamp-1").touch()
    before = files(target)
    assert _COMMIT.as_posix() in before
    assert generate(protos, target) == 3
    assert files(target) == before


def test_what_differs_is_replaced_and_what_no_proto_asks_for_is_removed(tmp_path: Path, protos: Path) -> None:
    target = tmp_path / "stubs"
    generate(protos, target)
    right = {name: content for name, (_, content) in files(target).items()}
    (target / ".stamp-1").touch()
    (target / _COMMIT).write_text("stale")
    former = target / "tidemark" / "former" / "v1"
    former.mkdir(parents=True)
    (former / "former_pb2.py").touch()
    untouched = (target / _COMMIT).with_name("__init__.py").stat().st_ino
    generate(protos, target)
    assert {name: content for name, (_, content) in files(target).items()} == right
    assert (target / _COMMIT).with_name("__init__.py").stat().st_ino == untouched
    assert not (target / "tidemark" / "former").exists()


def test_a_stub_of_a_former_proto_is_removed_where_nothing_else_differs(tmp_path: Path, protos: Path) -> None:
    target = tmp_path / "stubs"
    generate(protos, target)
    before = files(target)
    (target / _COMMIT).with_name("former_pb2.py").touch()
    (target / ".stamp-1").touch()
    generate(protos, target)
    assert files(target) == before


def test_a_proto_that_does_not_compile_leaves_the_former_stubs(tmp_path: Path, protos: Path) -> None:
    target = tmp_path / "stubs"
    generate(protos, target)
    before = files(target)
    (protos / "tidemark" / "commit" / "v1" / "commit.proto").write_text("nonsense")
    with pytest.raises(RuntimeError, match="protoc failed"):
        generate(protos, target)
    assert files(target) == before
