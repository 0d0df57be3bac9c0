"""The benchmark's outcome as one table: for the terminal, for docs/benchmarks.md, and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Document = Mapping[str, Any]

MISSING = "–"


class Line(NamedTuple):
    """One line of the table: what was measured, ours, theirs, and how many times faster ours is."""

    what: str
    tidemark: str
    hudi: str
    ratio: str


HEAD = Line("", "Tidemark", "Hudi 1.2.0 on Spark", "ratio")


def lines(report: Document) -> list[Line]:
    """Every figure of the report, in the order of docs/benchmarks.md."""
    ours, theirs = report.get("tidemark", {}), report.get("hudi", {})
    found = list(_batch_lines(ours, theirs))
    found += _compacting_lines(theirs)
    found += _rate_lines(ours, theirs)
    found += _lookup_lines(ours.get("lookups", {}), theirs.get("lookups", {}))
    found += _memory_lines(ours.get("peak_mib", {}), theirs.get("peak_mib", {}))
    found += [
        Line(f"peak memory without mapped files, {role}", f"{size:,} MiB", MISSING, MISSING)
        for role, size in ours.get("anonymous_mib", {}).items()
    ]
    return found


def _batch_lines(ours: Document, theirs: Document) -> Iterator[Line]:
    mine = {(case["rows"], case["move_share"]): case for case in ours.get("cases", [])}
    other = {(c["rows"], c["move_share"]): c for c in theirs.get("cases", []) if not c["compaction"]}
    for rows, share in sorted(mine.keys() | other.keys(), key=lambda each: (each[1], each[0])):
        moved = f", {share:.0%} of the updates move" if share else ""
        left, right = mine.get((rows, share)), other.get((rows, share))
        yield Line(
            f"{rows:,} rows in Kafka → committed{moved}",
            _seconds(left["median_s"]) if left else MISSING,
            _seconds(right["median_s"]) if right else MISSING,
            f"{right['median_s'] / left['median_s']:.1f} ×" if left and right else MISSING,
        )


def _compacting_lines(theirs: Document) -> Iterator[Line]:
    for case in theirs.get("cases", []):
        if case["compaction"]:
            spread = f"{_seconds(case['median_s'])} (longest {_seconds(max(case['seconds']))})"
            yield Line(f"{case['rows']:,} rows, Hudi's default compactions", MISSING, spread, MISSING)


def _rate_lines(ours: Document, theirs: Document) -> Iterator[Line]:
    rates = [c["rows_per_s"] for c in theirs.get("cases", []) if not c["compaction"] and not c["move_share"]]
    if "sustained" in ours:
        mine, other = ours["sustained"]["records_per_s"], max(rates, default=0)
        yield Line(
            f"sustained over {ours['sustained']['seconds']:.0f} s (Hudi: its largest batches back to back)",
            f"{mine:,} records/s",
            f"{other:,} records/s" if other else MISSING,
            f"{mine / other:.1f} ×" if other else MISSING,
        )
    if "latency" in ours:
        measured = ours["latency"]
        yield Line(
            f"produce → committed at {measured['rate']:,.0f} records/s",
            f"p50 {_seconds(measured['p50_s'])}, p99 {_seconds(measured['p99_s'])}",
            MISSING,
            MISSING,
        )
    if "load" in ours:
        load = ours["load"]
        text = f"{load['rows_per_s']:,} records/s"
        yield Line(f"first {load['rows']:,} keys through Kafka into the empty table", text, MISSING, MISSING)


def _lookup_lines(ours: Document, theirs: Document) -> Iterator[Line]:
    if ours:
        what = f"{ours['keys']:,} random keys looked up in RocksDB, in process"
        yield Line(what, _times(ours["rocksdb_s"]), MISSING, MISSING)
    theirs_s = statistics.median(theirs["index_s"]) if theirs else None
    if ours or theirs:
        yield Line(
            f"{(ours or theirs)['keys']:,} random keys, nothing cached, metadata table compacted",
            f"{ours['compacted_s']:.2f} s" if ours else MISSING,
            f"{theirs_s:.2f} s" if theirs_s is not None else MISSING,
            f"{theirs_s / ours['compacted_s']:.1f} ×" if ours and theirs_s is not None else MISSING,
        )
    if ours:
        what = f"the same, metadata table all log files ({ours['mdt_open_s']:.1f} s of it to take them over)"
        yield Line(what, f"{ours['mdt_open_s'] + ours['mdt_s'][0]:.2f} s", MISSING, MISSING)
    if theirs:
        what = f"{theirs['sql_keys']:,} random keys by a SQL query"
        yield Line(what, MISSING, _times(theirs["sql_s"]), MISSING)


def _memory_lines(ours: Mapping[str, int], theirs: Mapping[str, int]) -> Iterator[Line]:
    for role, size in ours.items():
        yield Line(f"peak memory, {role}", f"{size:,} MiB", MISSING, MISSING)
    for role, size in theirs.items():
        yield Line(f"peak memory, {role}", MISSING, f"{size:,} MiB", MISSING)


def step_lines(ours: Document) -> list[str]:
    """Per kind of batch the medians of the steps that the coordinator and the writer timed, in ms."""
    by_number = {each["epoch"]: each for each in ours.get("epochs", {}).get("epochs", [])}
    found = []
    for case in ours.get("cases", []):
        steps: dict[str, list[float]] = {}
        for number in (number for epochs in case["epochs"] for number in epochs):
            for attempt in by_number.get(number, {"attempts": []})["attempts"]:
                for step, took_ms in attempt["timings_ms"].items():
                    steps.setdefault(step, []).append(took_ms)
        medians = ", ".join(f"{step} {statistics.median(each):.0f}" for step, each in sorted(steps.items()))
        found.append(f"{case['rows']:,} rows, {case['move_share']:.0%} moved: {medians}")
    return found


def as_text(found: Sequence[Line]) -> str:
    """The table in columns."""
    table = [HEAD, *found]
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    rows = []
    for line in table:
        cells = [line.what.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        rows.append("  ".join(cells).rstrip())
    return "\n".join(rows)


def as_markdown(found: Sequence[Line]) -> str:
    """The table for docs/benchmarks.md."""
    rows = [HEAD, Line("---", "---:", "---:", "---:"), *found]
    return "\n".join(f"| {' | '.join(line)} |" for line in rows)


def conditions_text(report: Document) -> str:
    """What the figures depend on, in a few lines."""
    machine, settings = report["conditions"], report.get("settings", {})
    versions = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    found = [
        f"{machine['cpus']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, {machine['system']}, "
        f"Python {machine['python']}, Java {machine['java']}, {versions}; commit {machine['commit']}",
        f"load average before {machine['load_average']}, after {report['load_after']}",
        f"{report['keys']:,} keys in 16 partitions, about 250 bytes a row; MERGE_ON_READ; batches of 90 % "
        f"updates of random keys and 10 % inserts, as JSON in Kafka; medians of {report['repeat']}",
        "memory: resident, processes of one role added up, pages that forked workers share counted in each",
    ]
    found += [f"{name}: {_pairs(values)}" for name, values in settings.items()]
    return "\n".join(found)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def _times(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.3f} s"
