"""The numbers of a partitioned index's units in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.errors import CacheDiskError
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.units import Unit, Units


def test_numbers_of_units_are_kept_and_the_least_used_is_recycled(tmp_path: Path) -> None:
    rocks = RocksTier(tmp_path / "cache", "t", 16 << 20)
    forgotten: list[int] = []
    units = Units(rocks, forgotten.append, 2)
    eu, us, asia = (Unit(0, path, 0, 1) for path in ("eu", "us", "asia"))  # type: ignore[arg-type]
    assert [units.number(unit, ()) for unit in (eu, us, eu)] == [0, 1, 0]
    rocks.close()
    rocks = RocksTier(tmp_path / "cache", "t", 16 << 20)
    try:
        units = Units(rocks, forgotten.append, 2)
        assert (units.known(eu), units.known(us), units.known(asia)) == (0, 1, None)
        units.number(eu, ())
        assert (units.number(asia, ()), forgotten, units.known(us)) == (1, [1], None)
        assert units.unit(units.number(us, {ShardId(1)})) == us
        assert forgotten == [1, 0]
    finally:
        rocks.close()


@pytest.mark.parametrize("numbers_max", [1, 8])
def test_a_number_whose_unit_could_not_be_written_is_given_to_one_unit_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers_max: int
) -> None:
    """With one number it is the former unit's, which is recycled."""

    def refuse(*_: object) -> None:
        raise CacheDiskError("full")

    rocks = RocksTier(tmp_path / "cache", "t", 16 << 20)
    units = Units(rocks, lambda _: None, numbers_max)
    eu, us, asia = (Unit(0, path, ShardId(0), 1) for path in ("eu", "us", "asia"))
    units.number(eu, ())
    with monkeypatch.context() as full:
        full.setattr(rocks, "write", refuse)
        with pytest.raises(CacheDiskError):
            units.number(us, ())
    assert (units.known(eu), units.known(us)) == (0, None)
    given = [units.number(unit, ()) for unit in (us, asia)]
    assert given == ([0, 0] if numbers_max == 1 else [1, 2])
    assert [unit for unit in (eu, us, asia) if units.known(unit) == 0] == [asia if numbers_max == 1 else eu]
    rocks.close()
