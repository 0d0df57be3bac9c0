"""What a child may take: the least that process, container and machine have left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.stream_runtime.platform import spare_memory

MIB = 1 << 20
MARGIN = 192 * MIB


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a machine that has 8 GiB left, and a process without limits."""
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\nMemAvailable: 8388608 kB\n")
    folder = tmp_path / "cgroup"
    (folder / "memory").mkdir(parents=True)
    monkeypatch.setattr(spare_memory, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(spare_memory, "_GROUP", folder)
    monkeypatch.setattr(spare_memory, "_process_bytes", list)
    return folder


def write(folder: Path, limit: object, used: int, stat: str, names: tuple[str, str, str]) -> None:
    for name, content in zip(names, (str(limit), str(used), stat), strict=True):
        (folder / name).write_text(f"{content}\n")


SECOND = ("memory.max", "memory.current", "memory.stat")
FIRST = ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat")


def test_without_a_container_it_is_the_machine(group: Path) -> None:
    assert spare_memory.spare_memory_bytes() == 8192 * MIB - MARGIN
    write(group, "max", 100 * MIB, "inactive_file 7\n", SECOND)
    assert spare_memory.spare_memory_bytes() == 8192 * MIB - MARGIN
    write(group, 9223372036854771712, 100 * MIB, "total_inactive_file 7\n", FIRST)
    assert spare_memory.spare_memory_bytes() == 8192 * MIB - MARGIN


def test_what_the_kernel_keeps_of_files_is_free(group: Path) -> None:
    """Else a container that has read many files seems full, and a sound batch of 200 MiB too large."""
    stat = f"anon {90 * MIB}\nfile {600 * MIB}\nactive_file {150 * MIB}\ninactive_file {400 * MIB}\n"
    write(group, 768 * MIB, 740 * MIB, stat, SECOND)
    assert spare_memory.spare_memory_bytes() == (768 - 740 + 550) * MIB - MARGIN


def test_older_containers_are_known_too(group: Path) -> None:
    """Their own stats stand beside those of the groups below."""
    stat = f"inactive_file 1\nactive_file 1\ntotal_inactive_file {300 * MIB}\ntotal_active_file {100 * MIB}\n"
    write(group, 768 * MIB, 700 * MIB, stat, FIRST)
    assert spare_memory.spare_memory_bytes() == (768 - 700 + 400) * MIB - MARGIN


def test_there_is_always_something_to_try_with(group: Path) -> None:
    write(group, 768 * MIB, 760 * MIB, "anon 7\n", SECOND)
    assert spare_memory.spare_memory_bytes() == 128 * MIB
