"""Whether Hudi's data skipping leaves out rows, and whether it leaves out files: asked of Hudi on Spark for
many filters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.interop.filters import LIKE_PREFIX, NOT_A_NUMBER, Filter
from tests.interop.judge import HudiJudge

_log: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 64


@dataclass
class Skipping:
    """What was found. `files_read`: with data skipping, over all filters; `files_listed`: without.

    `lost`: the filters of which rows are missing, by what Hudi is known to get wrong in them.
    """

    filters: int = 0
    found: int = 0
    files_read: int = 0
    files_listed: int = 0
    lost: dict[str, list[str]] = field(default_factory=dict)


def judge_skipping(
    judge: HudiJudge,
    table: Path,
    filters: Sequence[Filter],
    key: str = "id",
    *,
    fewer: bool = True,
) -> Skipping:
    """Asserts that no filter loses a row by data skipping, but for the known faults of Hudi in it, and that
    over all filters fewer files are read (``fewer``: whether any can be left out).

    The truth is one scan without skipping for 64 filters at a time, each a column of the answer.
    """
    judge.spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        return _judged(judge, table, filters, key, fewer)
    finally:
        judge.spark.conf.unset("spark.sql.adaptive.enabled")


def _judged(judge: HudiJudge, table: Path, filters: Sequence[Filter], key: str, fewer: bool) -> Skipping:
    with_skipping, whole = _frame(judge, table, skipping=True), _frame(judge, table, skipping=False)
    _, files = _read(whole.select(key), key)
    assert files, f"{table} has no files"
    found, wrong = Skipping(), []
    for each, expected in zip(filters, _truth(whole, filters, key), strict=True):
        keys, read = _read(with_skipping.where(each.sql).select(key), key)
        found.filters += 1
        found.found += bool(expected)
        if read is not None:
            found.files_read += read
            found.files_listed += files
        if keys == expected:
            continue
        if keys < expected and each.faults and expected - keys <= _excused(whole, each, key, expected):
            for fault in each.faults:
                found.lost.setdefault(fault, []).append(each.sql)
            continue
        plain = {row[key] for row in whole.where(each.sql).select(key).collect()}
        if keys != plain:
            wrong.append(
                f"{each.sql}: lost {sorted(expected - keys)[:5]}, too many {sorted(keys - expected)[:5]}"
            )
    assert not wrong, f"{len(wrong)} of {len(filters)} filters: " + "; ".join(wrong[:10])
    assert (found.files_read < found.files_listed) is fewer, found
    lost = {fault: len(filters) for fault, filters in found.lost.items()}
    _log.info(
        "%s: %d filters, %d found rows; %d of %d files read; lost by known faults: %s",
        *(table.name, found.filters, found.found, found.files_read, found.files_listed, lost or "none"),
    )
    return found


def _excused(whole: Any, asked: Filter, key: str, expected: set[Any]) -> set[Any]:
    """The keys of the rows that the filter's known faults may lose: those without a number of the column, and
    those of a file in which the column's least value is above the prefix, or its greatest below it. (What is
    in a file now lies within the file's range.) A fault that a test names itself may lose all.
    """
    found: set[Any] = set(expected) if asked.faults - {NOT_A_NUMBER, LIKE_PREFIX} else set()
    if NOT_A_NUMBER in asked.faults:
        found |= {row[key] for row in whole.where(f"isnan({asked.column})").select(key).collect()}
    if LIKE_PREFIX in asked.faults:
        of_files: dict[str, dict[Any, str]] = {}
        for row in whole.select(key, "_hoodie_file_name", asked.column).dropna().collect():
            file_id = row["_hoodie_file_name"].partition("_")[0]
            of_files.setdefault(file_id, {})[row[key]] = row[asked.column]
        for texts in of_files.values():
            values = [text.encode() for text in texts.values()]
            if not min(values) <= asked.prefix.encode() <= max(values):
                found |= texts.keys()
    return found


def _read(frame: Any, key: str) -> tuple[set[Any], int | None]:
    """The keys, and how many files were opened; None where Spark knows without a look that no row fits."""
    keys = {row[key] for row in frame.collect()}
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    metrics = [leaves.apply(number).metrics() for number in range(leaves.size())]
    if not all(each.contains("numFiles") for each in metrics):
        return keys, None
    return keys, sum(each.apply("numFiles").value() for each in metrics)


def _frame(judge: HudiJudge, table: Path, *, skipping: bool) -> Any:
    settings = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": str(skipping).lower()}
    return judge._frame(table, settings)


def _truth(whole: Any, filters: Sequence[Filter], key: str) -> Iterable[set[Any]]:
    for begin in range(0, len(filters), _AT_ONCE):
        some = filters[begin : begin + _AT_ONCE]
        rows = whole.selectExpr(
            key, *(f"({each.sql}) as filter_{number}" for number, each in enumerate(some))
        ).collect()
        for number in range(len(some)):
            yield {row[key] for row in rows if row[f"filter_{number}"]}
