"""Mutated files of every kind that we read, from fixed seeds: typed errors that name the file, no silent
miscount.

`make fuzz` does the same for as long as one likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from testing.memory_storage import InMemoryStorage
from tests.fuzz.run import MEMORY_MAX, Outcome, campaign, read_bytes, summary
from tests.fuzz.target import Target
from tests.fuzz.targets import targets
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError

SEEDS = range(120)


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_a_mutated_file_is_read_right_or_refused_by_name(target: Target) -> None:
    whole = read_bytes(target, target.content)
    assert whole.violation is None
    assert whole.kind.startswith("read"), whole
    outcomes = list(campaign((target,), SEEDS))
    wrong = [f"seed {each.seed}: {each.violation}" for each in outcomes if each.violation is not None]
    assert not wrong, "\n".join([f"{target.name}: {len(wrong)} of {len(outcomes)}", *wrong[:5]])
    # A campaign in which nothing is refused would damage nothing that anybody reads.
    assert any(not each.kind.startswith("read") for each in outcomes) or not target.counted, summary(outcomes)


def test_every_name_is_used_once() -> None:
    names = [each.name for each in targets()]
    assert len(set(names)) == len(names)


# Far more than the bound: what other threads give back meanwhile makes room for as much again.
GREEDY = 2 * MEMORY_MAX


def _python(_: InMemoryStorage, __: str) -> None:
    bytearray(GREEDY)


def _arrow(_: InMemoryStorage, __: str) -> None:
    pa.allocate_buffer(GREEDY)


def _hidden(storage: InMemoryStorage, path: str) -> None:
    try:
        _arrow(storage, path)
    except MemoryError:
        raise CorruptFileError(path, "cannot be read") from None


def _in_pieces(storage: InMemoryStorage, path: str) -> None:
    kept = [bytearray(1 << 20) for _ in range(4 * MEMORY_MAX >> 20)]
    assert not kept


@pytest.mark.parametrize("read", [_python, _arrow, _hidden, _in_pieces])
def test_a_reader_that_takes_too_much_memory_is_found(read: Callable[[InMemoryStorage, str], None]) -> None:
    """Each time, whatever a reader before it took."""
    for _ in range(2):
        found = read_bytes(Target("greedy", "p/f", b"small", read, False), b"small")
        assert found.violation is not None
        assert "took more than 256 MiB for 5 bytes" in found.violation


def test_the_limit_ends_with_the_reading_and_leaves_room_for_small_ones() -> None:
    def modest(_: InMemoryStorage, __: str) -> None:
        threads = [threading.Thread(target=bytearray, args=(1 << 20,)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    assert read_bytes(Target("modest", "p/f", b"small", modest, False), b"small").violation is None
    assert len(bytearray(MEMORY_MAX + (64 << 20))) > MEMORY_MAX


class OtherPackageError(Exception):
    """As errors of packages that have their own base and their own kinds."""

    def __init__(self, text: str, kind: ErrorKind) -> None:
        super().__init__(text)
        self.kind = kind


RIGHT = [CorruptFileError("p/f", "is cut"), OtherPackageError("p/f is cut", ErrorKind.CORRUPT)]
WRONG = [
    (CorruptFileError("is cut"), "does not name the file"),
    (OtherPackageError("is cut", ErrorKind.CORRUPT), "does not name the file"),
    (OtherPackageError("p/f is cut", ErrorKind.RETRYABLE), "asks to try again"),
    (FileMissingError("p/f"), "asks to try again"),
    (FileMissingError("p/g"), "does not name the file"),
    (ValueError("p/f is cut"), "untyped"),
]


def _raises(error: Exception) -> Outcome:
    def read(_: InMemoryStorage, __: str) -> int:
        raise error

    return read_bytes(Target("raises", "p/f", b"x", read, False), b"x")


@pytest.mark.parametrize("error", RIGHT, ids=repr)
def test_an_error_that_names_the_file_and_says_that_it_stays_damaged_is_right(error: Exception) -> None:
    assert _raises(error).violation is None


@pytest.mark.parametrize(("error", "says"), WRONG, ids=repr)
def test_an_error_that_misleads_is_found_whatever_package_it_is_of(error: Exception, says: str) -> None:
    violation = _raises(error).violation
    assert violation is not None
    assert says in violation
