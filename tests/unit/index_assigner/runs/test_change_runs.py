"""A change run has what was newest of each key: RocksDB's entries over those of the former change run."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.index_assigner.index_world import memory_folder
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import NO_LOCATION, Locations
from tidemark.index_assigner.runs import loading
from tidemark.index_assigner.runs.directory import RunIdentity
from tidemark.index_assigner.runs.entries import ABSENT, EXACT, HAS_ORDERING, Entries, merged
from tidemark.index_assigner.runs.errors import RunDamagedError, RunTooLargeError
from tidemark.index_assigner.runs.files import RUN_SUFFIX, RunFolder, change_name, is_change, run_name
from tidemark.index_assigner.runs.loading import ChangeLoad
from tidemark.index_assigner.runs.run import Run, RunFile

KEYS = st.text("aé\uff41\U0001f600\0", max_size=4)
FLAGS = [0, HAS_ORDERING, HAS_ORDERING | EXACT, ABSENT]
# Key -> (number of its file group, ordering value, flags).
Content = dict[str, tuple[int, int, int]]
CONTENT = st.dictionaries(
    KEYS, st.tuples(st.integers(0, 5), st.integers(-(2**63), 2**63 - 1), st.sampled_from(FLAGS)), max_size=20
)
IDENTITY = RunIdentity(3, "ab" * 16, "", "", True, "cd", 7)


def columns(content: Content, locations: Locations, per_part: int) -> Iterator[Entries]:
    ordered = sorted(content, key=str.encode)
    for at in range(0, len(ordered), per_part):
        rows = [content[key] for key in ordered[at : at + per_part]]
        places = [NO_LOCATION if flags & ABSENT else locations.intern("p", f"f{n}") for n, _, flags in rows]
        yield Entries(
            pa.array(ordered[at : at + per_part], pa.string()),
            np.array(places, np.int32),
            np.array([value for _, value, _ in rows], np.int64),
            np.array([flags for *_, flags in rows], np.uint8),
        )


def content_of(parts: Iterator[Entries], locations: Locations) -> Content:
    found: Content = {}
    for part in parts:
        keys = part.keys.to_pylist()
        assert keys == sorted(keys, key=str.encode)
        assert not found or not keys or max(found, key=str.encode).encode() < keys[0].encode()
        for key, place, value, flags in zip(
            keys, part.locations.tolist(), part.ordering.tolist(), part.flags.tolist(), strict=True
        ):
            found[key] = (int(locations.file_ids[place][1:]) if place >= 0 else 0, value, flags)
    return found


def expected(content: Content) -> Content:
    """An absent key has no file group."""
    return {key: (0 if flags & ABSENT else n, value, flags) for key, (n, value, flags) in content.items()}


def write(
    folder: RunFolder, name: str, content: Content, former: RunFile | None = None, bytes_max: int = 1 << 20
) -> ChangeLoad:
    def newer(locations: Locations) -> Iterator[Entries]:
        yield from columns({}, locations, 1)
        yield from columns(content, locations, 3)

    load = ChangeLoad(folder, name, IDENTITY, newer, former, bytes_max)
    while load.step():
        pass
    if load.error is None:
        folder.publish(name)
    return load


@settings(deadline=None, max_examples=60)
@given(CONTENT, CONTENT, st.integers(1, 4))
def test_merged_has_the_newer_entry_of_each_key_in_order(newer: Content, older: Content, part: int) -> None:
    locations = Locations(1)
    both = merged(columns(newer, locations, part), columns(older, locations, 5 - part))
    assert content_of(both, locations) == expected({**older, **newer})


@settings(deadline=None, max_examples=40)
@given(CONTENT, CONTENT, st.lists(KEYS, unique=True, max_size=6))
def test_what_is_written_over_a_former_run_is_found_and_read_back(
    newer: Content, older: Content, others: list[str]
) -> None:
    with TemporaryDirectory(dir=memory_folder()) as path, pytest.MonkeyPatch.context() as patched:
        patched.setattr(loading, "_ENTRIES_PER_BLOCK", 2)
        folder = RunFolder(Path(path))
        assert write(folder, "one", older).error is None
        former = RunFile(folder, "one")
        assert content_of(former.entries(locations := Locations(1)), locations) == expected(older)
        assert write(folder, "two", newer, former).error is None
        # Another process gives other ids: what is stored are names.
        locations = Locations(1)
        locations.intern("p", "f5")
        run = Run(folder, "two", locations)
        whole = expected({**older, **newer})
        assert content_of(run.entries(locations), locations) == whole
        asked = list(dict.fromkeys([*whole, *others]))
        found = run.find_entries(pa.array(asked, pa.string()))
        assert found.known.tolist() == [key in whole for key in asked]
        for at, key in enumerate(asked):
            if key in whole:
                place, flags = int(found.locations[at]), int(found.flags[at])
                assert (place < 0) == bool(flags & ABSENT)
                number = int(locations.file_ids[place][1:]) if place >= 0 else 0
                assert (number, int(found.ordering[at]), flags) == whole[key]
        assert run.directory.identity == IDENTITY
        run.close()


@pytest.mark.parametrize("per_block", [loading._KEY_BYTES_PER_BLOCK, 1 << 30], ids=["now", "before"])
def test_a_part_of_a_former_run_is_bounded_in_bytes_however_long_its_keys_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_block: int
) -> None:
    """Blocks were not bounded before, so one of them may be larger than all else."""
    folder, width = RunFolder(tmp_path), 8_192
    long = {f"{number:08d}" * (width // 8): (1, number, HAS_ORDERING) for number in range(1_200)}
    keys = [f"{number:04d}" for number in range(3_000)]
    content = {**long, **dict.fromkeys(keys, (2, 5, ABSENT))}
    with monkeypatch.context() as patched:
        patched.setattr(loading, "_KEY_BYTES_PER_BLOCK", per_block)
        write_at_once(folder, "one", content)
    former = RunFile(folder, "one")
    images = former.directory.images
    sizes = np.diff([*images.starts, former.size])[:-1]
    of_block = min(per_block, 512 * width) + 512 * 24 + width
    assert sizes.max() <= of_block
    parts = list(former.entries(locations := Locations(1)))
    assert max(part.keys.nbytes for part in parts) <= max(1 << 21, of_block)
    assert len(parts) < len(images) or per_block > 1 << 21
    assert content_of(iter(parts), locations) == expected(content)


def write_at_once(folder: RunFolder, name: str, content: Content) -> None:
    load = ChangeLoad(
        folder, name, IDENTITY, lambda locations: columns(content, locations, len(content)), None, 1 << 30
    )
    while load.step():
        pass
    assert load.error is None
    folder.publish(name)


def test_a_damaged_former_run_ends_the_load_and_leaves_no_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write(folder, "one", {f"key-{number}": (1, 5, HAS_ORDERING) for number in range(9)})
    path = tmp_path / f"one{RUN_SUFFIX}"
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    load = write(folder, "two", {}, RunFile(folder, "one"))
    assert isinstance(load.error, RunDamagedError)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_change_run_that_grows_too_large_is_given_up(tmp_path: Path) -> None:
    load = write(RunFolder(tmp_path), "one", {f"k{n}": (1, 5, 0) for n in range(99)}, bytes_max=100)
    assert isinstance(load.error, RunTooLargeError)
    assert list(tmp_path.iterdir()) == []


def test_a_load_that_failed_is_freed_without_a_search_for_circles(tmp_path: Path) -> None:
    load = write(RunFolder(tmp_path), "one", {f"k{n}": (1, 5, 0) for n in range(99)}, bytes_max=100)
    assert isinstance(load.error, RunTooLargeError)
    left = weakref.ref(load)
    gc.disable()
    try:
        del load
        assert left() is None
    finally:
        gc.enable()


def test_a_change_run_is_told_by_its_name() -> None:
    name = change_name(ShardId(3), "life", "own")
    assert is_change(name)
    assert not is_change(run_name(ShardId(3), "life"))
    assert name.startswith("00003-life")
