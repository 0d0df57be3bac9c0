"""Which test begins when, where two processes share a level: the longest first, so that none is alone at the
end; tests of a module that share something costly stay in one process.

A level's `conftest.py` hands `in_this_order` and `Together` on to the hooks of pytest and of xdist; its
target says `--dist loadscope --no-loadscope-reorder`. (The marks of `--dist loadgroup` have no effect with
this pytest.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling


def in_this_order(items: list[pytest.Item], longest_first: Sequence[str]) -> None:
    """Sorts by what node ids contain; the rest comes behind. Every process sorts alike."""

    def place(item: pytest.Item) -> int:
        return next((n for n, part in enumerate(longest_first) if part in item.nodeid), len(longest_first))

    items.sort(key=place)


class Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A process takes the next test, or all tests of the next module where it is one of these."""

    def __init__(self, config: pytest.Config, log: Producer, modules: Collection[str]) -> None:
        super().__init__(config, log)
        self._modules = frozenset(modules)

    def _split_scope(self, nodeid: str) -> str:
        module = PurePosixPath(nodeid.partition("::")[0]).stem
        return module if module in self._modules else nodeid
