"""`state.mapped`: pages of run files are given back above it, and answers stay right."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.mapped_pages import MappedPages
from tidemark.index_assigner.runs.directory import RunIdentity
from tidemark.index_assigner.runs.files import RunFolder
from tidemark.index_assigner.runs.run import Run
from tidemark.index_assigner.runs.writing import RunWriter

BLOCKS, ROWS, RUNS = 32, 2_000, 3


def key(block: int, row: int) -> str:
    return f"key-{block:03d}-{row:021d}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Of about 2.3 MiB each."""
    folder = RunFolder(tmp_path_factory.mktemp("runs"))
    made = []
    for number in range(RUNS):
        name = f"{number:05d}-life"
        locations = Locations(1)
        places = np.full(ROWS, locations.intern("p", f"group-{number}"), np.int32)
        file = folder.create(name)
        writer = RunWriter(file, RunIdentity(ShardId(number), "life", "base", "mark", False), locations)
        for block in range(BLOCKS):
            keys = [key(block, row) for row in range(ROWS)]
            writer.add([keys[0].encode()], pa.array(keys), places, None, [ROWS])
        writer.finish()
        folder.finish(file)
        folder.publish(name)
        made.append(Run(folder, name, Locations(1)))
    return made


def resident_bytes(runs: list[Run]) -> int:
    """What /proc says of their mappings; the kernel walks through all of the process's for each answer."""
    found = dict(re.findall(r"/([^/\s]+)\.run\nSize:.*\n(?:[KM].*\n)*Rss: +(\d+) kB", SMAPS.read_text()))
    return sum(int(found[run.name]) << 10 for run in runs)


SMAPS = Path("/proc/self/smaps")


def test_pages_are_given_back_above_the_limit_and_asked_keys_stay_right(runs: list[Run]) -> None:
    total = sum(run.size for run in runs)
    pages = MappedPages(total // 2)
    for _ in range(2):
        for run in runs:
            for block in range(BLOCKS):
                found = run.find(pa.array([key(block, row) for row in range(0, ROWS, 400)]))
                assert (found.locations == 0).all()
                pages.used(run)
                assert resident_bytes(runs) <= pages.nbytes + RUNS * 2 * (64 << 10)
                assert pages.nbytes <= total // 2 + (128 << 10)
    assert pages.given_back > total
    assert sum(run.mapped_bytes for run in runs) == pages.nbytes


class WatchedPages(MappedPages):
    """``most``: resident bytes of these runs, before any are given back."""

    def __init__(self, bytes_max: int, watched: list[Run]) -> None:
        super().__init__(bytes_max)
        self._watched, self.most = watched, 0

    def used(self, run: Run) -> None:
        self.most = max(self.most, resident_bytes(self._watched))
        super().used(run)


def test_one_look_up_in_all_images_keeps_to_the_limit(runs: list[Run], monkeypatch) -> None:
    """As the first one after a restart, which has to compare all of them with their checksums."""
    one = runs[0]
    limit = one.size // 2
    pages = WatchedPages(limit, [one])
    monkeypatch.setattr(one, "_pages", pages)
    one.give_back_pages()
    keys = pa.array([key(block, row) for block in range(BLOCKS) for row in range(0, ROWS, 400)])
    found = one.find(keys)
    pages.used(one)
    assert (found.locations == 0).all()
    assert one.find(pa.array(["absent", *keys.to_pylist()])).locations.tolist() == [-1] + [0] * len(keys)
    # A portion, and the image and the windows at its end.
    assert limit // 2 < pages.most <= limit + limit // 16 + one.size // BLOCKS + (128 << 10)


def test_a_limit_as_large_as_the_runs_gives_nothing_back(runs: list[Run]) -> None:
    pages = MappedPages(1 << 30)
    for run in runs:
        run.give_back_pages()
        run.find(pa.array([key(block, 7) for block in range(BLOCKS)]))
        pages.used(run)
        assert run.mapped_bytes >= run.size - (128 << 10)
    assert pages.given_back == 0
    pages.closed(runs[0])
    assert pages.nbytes == sum(run.mapped_bytes for run in runs[1:])


def test_pages_that_are_used_again_and_again_stay(runs: list[Run]) -> None:
    one = runs[0]
    one.give_back_pages()
    pages = MappedPages(one.size // 2)
    often = pa.array([key(0, row) for row in range(0, ROWS, 100)])
    for block in range(BLOCKS):
        one.find(often)
        one.find(pa.array([key(block, 5)]))
        pages.used(one)
    given_back = pages.given_back
    assert given_back
    kept = one.mapped_bytes
    one.find(often)
    assert one.mapped_bytes == kept
