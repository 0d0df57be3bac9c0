"""What a killed driver left is gone at the next start, and what a living one has is not."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tidemark.stream_writer.scratch import own_scratch


def test_what_a_killed_driver_left_is_gone_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "writer" / "spark"
    with own_scratch(folder) as scratch:
        assert scratch == folder
        (scratch / "spark-1f" / "userFiles").mkdir(parents=True)
        (scratch / "liblz4-java-1.so").write_bytes(b"x")
    with own_scratch(folder):
        assert list(folder.iterdir()) == []


def test_what_a_living_driver_has_stays(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    with own_scratch(folder):
        (folder / "liblz4-java-1.so").write_bytes(b"x")
        with own_scratch(folder):
            assert (folder / "liblz4-java-1.so").exists()
    with own_scratch(folder):
        assert list(folder.iterdir()) == []


def test_what_a_second_living_driver_has_stays_when_the_first_one_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    with ExitStack() as second:
        with own_scratch(folder):
            second.enter_context(own_scratch(folder))
        (folder / "liblz4-java-1.so").write_bytes(b"x")
        with own_scratch(folder):
            assert (folder / "liblz4-java-1.so").exists()
    with own_scratch(folder):
        assert list(folder.iterdir()) == []
