"""A run of `make interop` does a few cases of `make services-interop`: drawn, alike in all its processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import commit_seed
from tests.interop.drawn_cases import DRAWN, MARK, drawn, seed_of_run, skip_all_but_the_drawn, told

NAMES = [f"tests/interop/test_{module}.py::test_it[{n}]" for module in "abcde" for n in range(1, 9)]


def modules(names: set[str]) -> set[str]:
    return {name.partition("::")[0] for name in names}


class Case:
    """As much of a pytest.Item as is asked."""

    def __init__(self, nodeid: str, marks: tuple[str, ...]) -> None:
        self.nodeid, self.marks, self.added = nodeid, marks, list[str]()

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        self.added.append(mark.name)


def collected(cases: list[Case]) -> list[pytest.Item]:
    return cast(list[pytest.Item], cases)


def test_processes_that_collect_in_another_order_draw_the_same_cases() -> None:
    assert drawn(NAMES, 5) == drawn(reversed(NAMES), 5)
    assert any(drawn(NAMES, 5) != drawn(NAMES, seed) for seed in range(6, 9))


def test_cases_come_from_different_modules_and_every_case_comes_some_time() -> None:
    runs = [drawn(NAMES, seed) for seed in range(400)]
    assert {(len(names), len(modules(names))) for names in runs} == {(DRAWN, DRAWN)}
    assert {name for names in runs for name in names} == set(NAMES)
    of_two = drawn([name for name in NAMES if "_a." in name or "_b." in name], 1)
    assert (len(of_two), len(modules(of_two))) == (DRAWN, 2)
    assert drawn(NAMES[:2], 1) == set(NAMES[:2])


def test_all_but_the_drawn_cases_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_SERVICES", raising=False)
    monkeypatch.setenv("TIDEMARK_SEED", "7")
    cases = [Case(name, (MARK,)) for name in NAMES]
    other = Case("tests/interop/test_f.py::test_it", ("spark",))
    skip_all_but_the_drawn(collected([*cases, other]))
    assert {case.nodeid for case in cases if not case.added} == drawn(NAMES, 7)
    assert other.added == []
    named = [Case(name, (MARK,)) for name in NAMES[:DRAWN]]
    skip_all_but_the_drawn(collected(named))
    assert [case.added for case in named] == [[]] * DRAWN, "whoever names cases gets them"


def test_services_interop_skips_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_SERVICES", "all")
    cases = [Case(name, (MARK,)) for name in NAMES]
    skip_all_but_the_drawn(collected(cases))
    assert not any(case.added for case in cases)
    assert list(told([SimpleNamespace(nodeid=NAMES[0], keywords={MARK: 1})])) == []


def test_a_run_names_what_it_drew_and_by_which_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_SERVICES", raising=False)
    monkeypatch.delenv("TIDEMARK_SEED", raising=False)
    monkeypatch.setattr(commit_seed, "content_of", lambda _: "1" * 40)
    seed = seed_of_run()
    monkeypatch.setattr(commit_seed, "content_of", lambda _: "2" * 40)
    assert seed_of_run() != seed
    ran = SimpleNamespace(nodeid=NAMES[0], keywords={MARK: 1, "spark": 1})
    head, line = told([ran, ran, SimpleNamespace(nodeid=NAMES[1], keywords={}), SimpleNamespace()])
    assert f"TIDEMARK_SEED={seed_of_run()} draws them again" in head
    assert line == f"  {NAMES[0]}"
