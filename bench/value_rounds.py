"""Ways to look values up, asked in rounds; each answer is compared with the rows that the bench wrote."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.value_rows import COLUMN, ValueWorkload, value_text
from bench.whole_run import say
from tidemark.hudi_format.value_lookup import ROWS_MAX, ValuePage

Ask = Callable[[str, Sequence[str], str, int], ValuePage]
"""(column, values, page token, limit) -> a page."""
Found = tuple[list[str], int | None]
"""The keys of all rows that have one of the values, and how many files were read, where that is known."""


class Rounds:
    """What each way took: name -> number of values -> figures."""

    def __init__(self, workload: ValueWorkload, counts: Sequence[int], repeat: int) -> None:
        """`counts`: of values. `repeat`: rounds that are counted, after one that is not."""
        self._workload, self._repeat = workload, repeat
        self.values = {count: workload.sample_values(count) for count in counts}
        self.found: dict[str, dict[int, dict[str, Any]]] = {}

    def ask(self, way: str, find: Callable[[Sequence[str]], Found]) -> None:
        """Has a way find the rows of all values at once."""
        for count, values in self.values.items():
            texts, expected = value_text(values).to_pylist(), self._workload.keys_of(values)
            seconds: list[float] = []
            for _ in range(self._repeat + 1):
                started_s = time.perf_counter()
                keys, files = find(texts)
                seconds.append(round(time.perf_counter() - started_s, 4))
                if sorted(keys) != expected:
                    raise RuntimeError(f"{way} found {len(keys)} rows of {count} values, of {len(expected)}")
            del seconds[0]
            one = {"rows": len(keys), "median_s": statistics.median(seconds), "seconds": seconds}
            self.found.setdefault(way, {})[count] = one if files is None else {**one, "files": files}
            say(f"{way}, {count} values: {seconds} s")


def all_keys(ask: Ask, values: Sequence[str]) -> list[str]:
    """The keys of all rows that have one of the values, page by page."""
    found: list[str] = []
    token = ""
    while True:
        page = ask(COLUMN, values, token, ROWS_MAX)
        found += page.keys
        token = page.next_token
        if not token:
            return found
