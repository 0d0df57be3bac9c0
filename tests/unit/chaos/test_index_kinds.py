"""The kinds of index that tables of the kill campaign have: each meets everything else that takes turns,
options fix one, and a failed round names options that bring it back.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.__main__ import TABLE_TYPES, _settings, options
from tests.chaos.index_kinds import KINDS, PARTITIONED, PLAIN, drawn_kind
from tests.chaos.settings import Settings

WITH_SERVICES = ["--services"]


def rounds(count: int, *arguments: str) -> list[Settings]:
    """The first so many rounds of a campaign."""
    chosen = options([*WITH_SERVICES, *arguments])
    return [_settings(chosen, number) for number in range(1, count + 1)]


def test_each_kind_of_index_meets_both_table_types_all_brokers_and_both_places_of_merges():
    assert {each.index for each in rounds(5)} == set(KINDS)
    types = {(each.index, each.table_type) for each in rounds(10)}
    assert types == {(kind, table_type) for kind in KINDS for table_type in TABLE_TYPES}
    assert {(each.index, each.nodes) for each in rounds(15)} == {(kind, n) for kind in KINDS for n in (1, 3)}
    places = {(each.index, each.separate) for each in rounds(20)}
    assert places == {(kind, separate) for kind in KINDS for separate in (False, True)}
    assert len({(one.index, one.table_type, one.nodes, one.separate) for one in rounds(60)}) == 4 * 2 * 2 * 2


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("--index global", "plain"),
        ("--secondary none", "plain"),
        ("--index partitioned", "partitioned"),
        ("--index partitioned --secondary none", "partitioned"),
        ("--secondary kept", "kept"),
        ("--index global --secondary remade", "remade"),
    ],
)
def test_an_option_fixes_the_kind_of_all_rounds(arguments: str, name: str):
    assert {each.index.name for each in rounds(10, *arguments.split())} == {name}


def test_no_table_has_a_partitioned_record_index_and_a_secondary_index(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        options(["--index", "partitioned", "--secondary", "kept"])
    assert "a table with a partitioned record index can have none" in capsys.readouterr().err
    assert not [kind for kind in KINDS if kind.record_index == PARTITIONED and kind.secondary != "none"]


def test_the_options_that_a_failed_round_names_are_those_of_its_table():
    for number, failed in enumerate(rounds(60, "--seed", "7"), start=1):
        again = _settings(options([*WITH_SERVICES, *failed.options.split()]), 1)
        assert replace(again, folder=failed.folder) == failed
        assert f"index {failed.index.name}" in failed.table
        assert failed.folder == Path("chaos").absolute() / f"round-{number}"


def test_a_seed_draws_a_kind_and_a_name_takes_one():
    drawn = [drawn_kind(None, seed) for seed in range(100)]
    assert drawn == [drawn_kind("", seed) for seed in range(100)]
    assert set(drawn) == set(KINDS)
    assert 35 < drawn.count(PLAIN) < 65, "it takes the least time"
    assert {drawn_kind("plain", seed) for seed in range(20)} == {PLAIN}
    with pytest.raises(KeyError, match="nonsense"):
        drawn_kind("nonsense", 1)
