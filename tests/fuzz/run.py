"""Reads mutated files and says what a reader did that it must not do. Used by the unit test and `make
fuzz`."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from testing.memory_storage import InMemoryStorage
from tests.fuzz.memory_bound import memory_bound, out_of_memory
from tests.fuzz.mutations import mutated
from tests.fuzz.target import Target
from tidemark.errors import ErrorKind
from tidemark.hudi_format.storage.base import name_of

# Generous: a slow, loaded machine. What must not be is a reading that takes minutes, or has no end.
READING_S_MAX: Final = 20.0
# The files are a few hundred KiB at most. What one of them says of lengths and counts may not be believed.
MEMORY_MAX: Final = 256 << 20
# Each package has its own enum of kinds; their names are the same.
RETRYABLE: Final = ErrorKind.RETRYABLE.name


@dataclass(frozen=True)
class Outcome:
    """`violation` is None where all is well; `kind` is the error's name, or how many were found."""

    target: str
    seed: int
    kind: str
    violation: str | None


def read_mutated(target: Target, seed: int) -> Outcome:
    """One mutation of one file. The same seed is the same mutation."""
    return read_bytes(target, mutated(target.content, Random(f"{target.name} {seed}")), seed)


def read_bytes(target: Target, content: bytes, seed: int = -1) -> Outcome:
    """What the target's reader makes of these bytes."""
    storage = InMemoryStorage()
    storage.create(target.path, content)
    started, violation = time.thread_time(), None
    try:
        with memory_bound(MEMORY_MAX):
            found = target.read(storage, target.path)
        kind = f"read {found}"
        if target.counted and found != _undamaged(target):
            violation = f"found {found} in silence, the undamaged file has {_undamaged(target)}"
    except Exception as error:
        kind = type(error).__name__
        if out_of_memory(error):
            violation = f"took more than {MEMORY_MAX >> 20} MiB for {len(content)} bytes: {error!r}"
        else:
            violation = _wrong_error(error, target)
    took_s = time.thread_time() - started
    if took_s > READING_S_MAX:
        violation = f"took {took_s:.1f} s: {violation or kind}"
    return Outcome(target.name, seed, kind, violation)


def campaign(chosen: tuple[Target, ...], seeds: range) -> Iterator[Outcome]:
    """Every seed of every target."""
    for seed in seeds:
        for target in chosen:
            yield read_mutated(target, seed)


def summary(outcomes: list[Outcome]) -> str:
    """Per target how often it ended in which way."""
    lines = []
    for name in dict.fromkeys(each.target for each in outcomes):
        kinds = Counter(
            "read" if each.kind.startswith("read") else each.kind for each in outcomes if each.target == name
        )
        lines.append(f"{name}: {', '.join(f'{kind} {count}' for kind, count in kinds.most_common())}")
    return "\n".join(lines)


_counts: dict[str, int | None] = {}


def _undamaged(target: Target) -> int | None:
    if target.name not in _counts:
        storage = InMemoryStorage()
        storage.create(target.path, target.content)
        _counts[target.name] = target.read(storage, target.path)
    return _counts[target.name]


def _wrong_error(error: Exception, target: Target) -> str | None:
    kind = getattr(getattr(error, "kind", None), "name", None)
    if kind is None:
        return f"untyped {error!r}\n{''.join(traceback.format_tb(error.__traceback__)[-4:])}"
    if name_of(target.path) not in str(error):
        return f"does not name the file: {error!r}"
    if kind == RETRYABLE:
        return f"asks to try again, and the file stays damaged: {error!r}"
    return None
