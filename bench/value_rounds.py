"""Ways to look values up, asked in rounds; each answer is compared with the rows that the bench wrote."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.value_rows import COLUMN, ValueWorkload, value_text
from bench.whole_run import say
from bench.workload import Numbers
from tidemark.hudi_format.value_lookup import ROWS_DEFAULT, ValuePage

Ask = Callable[[str, str, str, int], ValuePage]
"""(column, value, page token, limit) -> a page."""
Found = tuple[int, list[str]]
"""How many values were asked for, and the keys of all rows that have one of them."""


class Rounds:
    """What each way took: name -> number of values -> figures."""

    def __init__(self, workload: ValueWorkload, counts: Sequence[int], repeat: int, limit_s: float) -> None:
        """`counts`: of values. `repeat`: rounds that are counted, after one that is not. `limit_s`: a round
        that has taken so long is the last one, and asks for no further value.
        """
        self._workload, self._repeat, self._limit_s = workload, repeat, limit_s
        self.values = {count: workload.sample_values(count) for count in counts}
        self.found: dict[str, dict[int, dict[str, Any]]] = {}

    def one_by_one(self, way: str, keys_of: Callable[[str], list[str]], counts: Sequence[int]) -> None:
        """A way that takes one value a call."""

        def ask(texts: Sequence[str], until_s: float) -> Found:
            asked, found = 0, list[str]()
            for text in texts:
                found += keys_of(text)
                asked += 1
                if time.perf_counter() > until_s:
                    break
            return asked, found

        for count in counts:
            self._rounds(way, count, ask)

    def at_once(self, way: str, ask: Callable[[Sequence[str]], tuple[list[str], int]]) -> None:
        """A way that takes all values in a call, and says how many files it read."""
        for count in self.values:
            files = 0

            def whole(texts: Sequence[str], _: float) -> Found:
                nonlocal files
                keys, files = ask(texts)
                return len(texts), keys

            self._rounds(way, count, whole)
            self.found[way][count]["files"] = files

    def _rounds(self, way: str, count: int, ask: Callable[[Sequence[str], float], Found]) -> None:
        values, seconds, asked = self.values[count], [], count
        texts = value_text(values).to_pylist()
        for counted in range(-1, self._repeat):
            started_s = time.perf_counter()
            asked, keys = ask(texts, started_s + self._limit_s)
            took_s = time.perf_counter() - started_s
            self._check(way, values[:asked], keys)
            if counted >= 0 or took_s > self._limit_s:
                seconds.append(round(took_s, 4))
            if took_s > self._limit_s:
                break
        self.found.setdefault(way, {})[count] = {
            "asked": asked,
            "rows": len(keys),
            "median_s": statistics.median(seconds),
            "seconds": seconds,
        }
        say(f"{way}, {asked} of {count} values: {seconds} s")

    def _check(self, way: str, values: Numbers, keys: list[str]) -> None:
        expected = self._workload.keys_of(values)
        if sorted(keys) != expected:
            raise RuntimeError(f"{way} found {len(keys)} rows of {values.size} values, of {len(expected)}")


def all_keys(ask: Ask, value: str) -> list[str]:
    """The keys of all rows that have the value, page by page."""
    found: list[str] = []
    token = ""
    while True:
        page = ask(COLUMN, value, token, ROWS_DEFAULT)
        found += page.keys
        token = page.next_token
        if not token:
            return found
