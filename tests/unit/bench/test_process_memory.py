"""What a process allocated itself, apart from the files that it has mapped."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import psutil
import pytest

from bench import process_memory
from bench.process_memory import MemorySampler, merged_peaks

BYTES = 32 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="others count shared memory in another way")
def test_mapped_files_count_as_resident_and_not_as_anonymous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_memory, "_GROWN_UP_S", 0.0)
    file = tmp_path / "mapped"
    file.write_bytes(bytes(BYTES))
    sampler = MemorySampler(lambda: {"own": [os.getpid()]})
    sampler.sample_now()
    before = sampler.peaks_mib()["own"], sampler.anonymous_mib()["own"]
    assert before[1] == pytest.approx(_anonymous_mib(), abs=4)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert not any(mapped[at] for at in range(0, BYTES, mmap.PAGESIZE))
        sampler.sample_now()
    assert sampler.peaks_mib()["own"] >= before[0] + (BYTES >> 20) - 4
    assert sampler.anonymous_mib()["own"] <= before[1] + 4


def _anonymous_mib() -> float:
    maps = psutil.Process().memory_maps(grouped=True)
    return sum(each.anonymous for each in maps) / (1 << 20)


def test_the_greatest_of_several_samplers_count() -> None:
    assert merged_peaks([{"a": 3, "b": 1}, {"a": 2, "c": 5}]) == {"a": 3, "b": 1, "c": 5}
