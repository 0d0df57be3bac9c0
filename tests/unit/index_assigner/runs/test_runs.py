"""A run answers as the base file that it was made from, or says that it is damaged."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.index_assigner.index_world import memory_folder
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.runs import run as run_module
from tidemark.index_assigner.runs.directory import RunIdentity
from tidemark.index_assigner.runs.errors import RunDamagedError
from tidemark.index_assigner.runs.files import RUN_SUFFIX, RunFolder
from tidemark.index_assigner.runs.run import Run
from tidemark.index_assigner.runs.writing import RunWriter

IDENTITY = RunIdentity(3, "ab" * 16, "record-index-0003-0_1-0-0_2.hfile", "mark", ordered=True)
NAME = "00003-life"
KEYS = st.text("aé\uff41\U0001f600\0", max_size=4)
Entries = dict[str, tuple[int, int]]
ENTRIES = st.dictionaries(KEYS, st.tuples(st.integers(-1, 5), st.integers(-9, 9)), max_size=20)


def utf8(key: str) -> bytes:
    return key.encode()


def utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def written(
    folder: RunFolder,
    entries: Entries,
    order=utf8,
    keys_per_block: int = 3,
    left_out: frozenset[int] = frozenset(),
) -> Locations:
    locations = Locations(8)
    for number in range(6):
        locations.intern("p", f"f{number}")
    file = folder.create(NAME)
    writer = RunWriter(file, IDENTITY, locations)
    ordered = sorted(entries, key=order)
    for block, at in enumerate(range(0, len(ordered), keys_per_block)):
        keys = ordered[at : at + keys_per_block]
        if block in left_out:
            writer.leave_out([utf8(keys[0])])
            continue
        places = np.array([entries[key][0] for key in keys], np.int32)
        values = np.array([entries[key][1] for key in keys], np.int64)
        writer.add([utf8(keys[0])], pa.array(keys, pa.string()), places, values, [len(keys)])
    writer.finish()
    folder.finish(file)
    folder.publish(NAME)
    return locations


def answers(run: Run, keys: list[str], locations: Locations) -> dict[str, int]:
    """The number of the location of each key that the run knows, -1 where it is absent."""
    found = run.find(pa.array(keys, pa.string()))
    return {
        key: int(locations.file_ids[place][1:]) if place >= 0 else -1
        for key, place, known in zip(keys, found.locations, found.known.tolist(), strict=True)
        if known
    }


def places(entries: Entries) -> dict[str, int]:
    return {key: place for key, (place, _) in entries.items()}


@settings(deadline=None, max_examples=40)
@given(
    ENTRIES,
    st.lists(KEYS, unique=True, max_size=6),
    st.sampled_from([utf8, utf16]),
    st.integers(1, 4),
    st.sampled_from([0, 100, 1 << 20]),
)
def test_every_key_of_a_file_sorted_in_either_order_is_answered(
    entries: Entries, others: list[str], order, per_block: int, at_once: int
) -> None:
    with TemporaryDirectory(dir=memory_folder()) as path:
        answered(RunFolder(Path(path)), entries, others, order, per_block, at_once)


class Portions:
    """Whatever a look-up has mapped goes before it maps more."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once

    def used(self, run: Run) -> None:
        run.give_back_pages()


def answered(
    folder: RunFolder, entries: Entries, others: list[str], order, per_block: int, at_once: int
) -> None:
    written(folder, entries, order, per_block)
    # Another process gives other ids: what is stored are names.
    locations = Locations(8)
    locations.intern("p", "f5")
    run = Run(folder, NAME, locations, Portions(at_once))
    asked = list(dict.fromkeys([*entries, *others]))
    assert answers(run, asked, locations) == {key: places(entries).get(key, -1) for key in asked}
    assert run.directory.identity == IDENTITY
    assert run.directory.entries == sum(place >= 0 for place, _ in entries.values())
    run.close()


@settings(deadline=None, max_examples=40)
@given(
    ENTRIES,
    st.lists(KEYS, unique=True, max_size=6),
    st.sampled_from([utf8, utf16]),
    st.integers(1, 3),
    st.frozensets(st.integers(0, 9)),
    st.frozensets(st.integers(0, 9)),
)
def test_a_run_that_lacks_blocks_says_nothing_of_the_keys_that_may_be_there(
    entries: Entries, others: list[str], order, per_block: int, left_out: frozenset[int], gone: frozenset[int]
) -> None:
    with TemporaryDirectory(dir=memory_folder()) as path:
        folder = RunFolder(Path(path))
        locations = written(folder, entries, order, per_block, left_out)
        run = Run(folder, NAME, locations)
        run.evict(np.isin(np.arange(len(run.held)), list(gone)))
        found = answers(run, list(dict.fromkeys([*entries, *others])), locations)
        ordered = sorted(entries, key=order)
        held = {key for at, key in enumerate(ordered) if at // per_block not in left_out | gone}
        assert found == {key: places(entries).get(key, -1) for key in found}
        # Whatever is in a block that it has is found, though another order may lead to one that it lacks.
        assert {key for key in held if entries[key][0] >= 0} <= set(found)
        if order == utf8 and not any("\uff41" in key or "\U0001f600" in key for key in [*entries, *others]):
            assert set(found).isdisjoint(set(entries) - held)
        run.close()


LONG = {f"{number:03d}" + "x" * 1_500: (number % 6, number) for number in range(60)}


def test_pages_of_evicted_blocks_are_given_back_to_the_disk_and_a_new_process_sees_that(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path)
    locations = written(folder, LONG, keys_per_block=10)
    run, whole = Run(folder, NAME, locations), folder.disk_bytes()
    assert answers(run, list(LONG), locations) == places(LONG)
    assert run.evict(np.array([0, 1, 1, 0, 0, 1], np.bool_))
    kept = {key: place for at, (key, place) in enumerate(places(LONG).items()) if at // 10 in (0, 3, 4)}
    assert answers(run, list(LONG), locations) == kept
    assert run.held_bytes < whole / 2 + 4_096
    assert run.held_entries == 30
    # Three images of 15 kB: whole pages alone go.
    assert whole - 3 * 16_384 <= folder.disk_bytes() <= whole - 9 * 4_096
    assert folder.size(NAME) == run.size
    again = Run(folder, NAME, locations)
    assert again.held.tolist() == [True, False, False, True, True, False]
    assert answers(again, list(LONG), locations) == kept
    run.close()
    again.close()


def test_a_hole_that_a_loss_of_power_left_by_half_is_no_damage(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    locations = written(folder, LONG, keys_per_block=10)
    first = Run(folder, NAME, locations)
    begin, end = int(first.directory.images.starts[1]), int(first.directory.images.starts[3])
    first.close()
    assert folder.punch(NAME, [(begin, begin + 9_000)])
    run = Run(folder, NAME, locations)
    assert run.held.tolist() == [True, False, True, True, True, True]
    assert end > begin + 9_000
    assert len(answers(run, list(LONG), locations)) == 50
    run.close()


def test_a_file_system_that_takes_no_parts_back_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    locations = written(folder, LONG, keys_per_block=10)

    class Refusing(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EOPNOTSUPP, "not supported")

    run = Run(folder, NAME, locations)
    monkeypatch.setattr(mmap, "mmap", Refusing)
    assert not run.evict(np.ones(6, np.bool_))
    assert answers(run, list(LONG), locations) == {}
    run.close()


@pytest.fixture(params=[run_module._POPULATE_READ, -1], ids=["populated", "read"])
def _advice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel maps pages ahead, or it does not know how to."""
    monkeypatch.setattr(run_module, "_POPULATE_READ", request.param)


@pytest.mark.usefixtures("_advice")
def test_of_neighbours_that_are_checked_together_the_damaged_one_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    locations = written(folder, LONG, keys_per_block=10)
    path = tmp_path / f"{NAME}{RUN_SUFFIX}"
    whole = Run(folder, NAME, locations)
    starts = whole.directory.images.starts.tolist()
    assert len(answers(whole, list(LONG), locations)) == len(LONG)
    whole.close()
    data = bytearray(path.read_bytes())
    data[starts[3] + 9] ^= 1
    path.write_bytes(data)
    run = Run(folder, NAME, locations)
    with pytest.raises(RunDamagedError, match="image of block 3 is damaged"):
        run.find(pa.array(sorted(LONG)))
    run.close()


@pytest.mark.usefixtures("_advice")
def test_a_changed_byte_never_changes_an_answer(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    entries = {f"key-{number}": (number % 6, number) for number in range(9)}
    locations = written(folder, entries)
    path = tmp_path / f"{NAME}{RUN_SUFFIX}"
    whole = path.read_bytes()
    refused = 0
    for at in range(16, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            run = Run(folder, NAME, locations)
        except RunDamagedError:
            refused += 1
            continue
        try:
            assert answers(run, list(entries), locations) == places(entries)
        except RunDamagedError:
            refused += 1
        run.close()
    # Only bytes that nobody reads may differ: the zeros of the footer.
    assert len(whole) - 16 - refused <= 12


def test_a_file_that_was_cut_off_is_no_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    locations = written(folder, {"a": (1, 1), "b": (2, 2)})
    path = tmp_path / f"{NAME}{RUN_SUFFIX}"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(RunDamagedError, match=NAME):
            Run(folder, NAME, locations)


def test_images_are_checked_again_after_their_pages_were_given_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    entries = {f"key-{number}": (1, 5) for number in range(3)}
    locations = written(folder, entries)
    run = Run(folder, NAME, locations)
    assert answers(run, list(entries), locations) == places(entries)
    with (tmp_path / f"{NAME}{RUN_SUFFIX}").open("r+b") as file:
        file.seek(20)
        file.write(b"\xff")
    run.give_back_pages()
    with pytest.raises(RunDamagedError, match="image of block 0"):
        run.find(pa.array(list(entries)))
    run.close()


def test_files_are_published_whole_set_aside_and_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.create("half") as file:
        file.write(b"1")
    assert folder.names() == []
    RunFolder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    written(folder, {"a": (1, 1)})
    assert folder.names() == [NAME]
    assert folder.disk_bytes() == folder.size(NAME) == (tmp_path / f"{NAME}{RUN_SUFFIX}").stat().st_size
    folder.set_aside(NAME)
    assert (folder.names(), folder.damaged()) == ([], [NAME])
    with pytest.raises(RunDamagedError, match="is not in"):
        Run(folder, NAME, Locations(8))
    written(folder, {"a": (1, 1)})
    folder.remove(NAME)
    folder.remove_damaged()
    assert list(tmp_path.iterdir()) == []
    assert folder.size(NAME) == 0
