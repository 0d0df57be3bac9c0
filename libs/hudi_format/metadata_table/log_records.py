"""Reads the log files of one slice of the metadata table: which blocks count, and in which order they are
merged.

Invariants (Hudi format notes, index part, 2.6 and 5): blocks count by their own INSTANT_TIME; blocks of an
instant that a rollback command names do not; blocks that log compaction folded are replaced, once, by the
folded block, at the place of the newest of them. A folded block is used only if everything in it counts;
otherwise its originals are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hudi_format.errors import CorruptFileError, FileMissingError
from hudi_format.log_file import BlockType, LogBlock, read_blocks
from hudi_format.storage.base import Storage, join_path

_DATA_TYPES = frozenset({BlockType.HFILE_DATA, BlockType.DELETE})


@dataclass(frozen=True, slots=True)
class SourcedBlock:
    """A block and the path of its file, for messages."""

    block: LogBlock
    path: str


def read_log_blocks(storage: Storage, folder: str, names: Sequence[str]) -> list[SourcedBlock]:
    """All blocks of the log files, in the order of the names. Raises FileMissingError, CorruptFileError."""
    blocks: list[SourcedBlock] = []
    for name in names:
        path = join_path(folder, name)
        blocks.extend(SourcedBlock(block, path) for block in read_blocks(storage.read(path), path))
    return blocks


def merge_order(blocks: Sequence[SourcedBlock], is_valid: Callable[[str], bool]) -> list[SourcedBlock]:
    """The data and delete blocks that count, oldest first. Raises CorruptFileError for a block of another
    kind.
    """
    valid = [each for each in blocks if is_valid(each.block.instant_time)]
    rolled_back = {each.block.rolled_back_instant for each in valid} - {None}
    counting: list[SourcedBlock] = []
    for each in valid:
        if each.block.block_type is BlockType.COMMAND or each.block.instant_time in rolled_back:
            continue
        if each.block.block_type not in _DATA_TYPES:
            raise CorruptFileError(
                f"{each.path}: a {each.block.block_type.name} block at offset {each.block.offset} "
                "does not belong in the metadata table"
            )
        counting.append(each)
    if not any(each.block.compacted_block_times for each in counting):
        return counting
    return _with_folded(counting, is_valid)


def _with_folded(blocks: list[SourcedBlock], is_valid: Callable[[str], bool]) -> list[SourcedBlock]:
    by_instant: dict[str, list[SourcedBlock]] = {}
    for each in blocks:
        by_instant.setdefault(each.block.instant_time, []).append(each)
    covered = {
        instant: frozenset(time for each in group for time in each.block.compacted_block_times)
        for instant, group in by_instant.items()
    }
    usable = {
        instant
        for instant, times in covered.items()
        if times and all(is_valid(time) for time in _transitive(instant, covered))
    }
    stands_for: dict[str, str] = {}
    for folded in sorted(usable):  # a later folding, which may hold earlier ones, overrides them
        for time in _transitive(folded, covered):
            stands_for[time] = folded
    result: list[SourcedBlock] = []
    used: set[str] = set()
    for instant in sorted(by_instant, reverse=True):
        final = stands_for.get(instant, instant)
        if covered[instant] and instant not in usable:
            _require_originals({time for time in covered[instant] if is_valid(time)}, by_instant)
            continue
        if covered[instant] and final == instant and any(time in by_instant for time in covered[instant]):
            continue  # it is taken at the place of the newest instant that it holds
        if final not in used:
            used.add(final)
            result.extend(reversed(by_instant[final]))
    result.reverse()
    return result


def _transitive(instant: str, covered: dict[str, frozenset[str]]) -> set[str]:
    """All instants that a folded block holds, through earlier foldings too."""
    found: set[str] = set()
    open_times = list(covered.get(instant, ()))
    while open_times:
        time = open_times.pop()
        if time not in found:
            found.add(time)
            open_times.extend(covered.get(time, ()))
    return found


def _require_originals(times: set[str], by_instant: dict[str, list[SourcedBlock]]) -> None:
    missing = sorted(time for time in times if time not in by_instant)
    if missing:
        raise FileMissingError(
            f"log blocks of {', '.join(missing)} are folded into one that does not count yet, "
            "and are gone themselves: reload the timelines"
        )
