"""The demo's report: its checks, the stories of two flights, and how to query the table.

The demo command fills ``DemoReport``; ``print_report`` writes it. Only the verdict is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from tidemark.demo.comparison import TableDifference
from tidemark.demo.flights import StreamCounts
from tidemark.demo.model import LifeEvent
from tidemark.demo.text import duration, grouped, instant

COUNTED: Final = {
    "compact-index": "file groups",
    "compact-data": "file groups",
    "clean-data": "files",
    "clean-index": "files",
}
"""What the actions of a kind of service count; those of others count instants."""


@dataclass(frozen=True)
class Check:
    """One comparison: the expected value, the value that was found, and whether they agree."""

    name: str
    expected: str
    found: str
    passed: bool

    @classmethod
    def of_counts(cls, name: str, expected: int, found: int) -> Check:
        return cls(name, grouped(expected), grouped(found), expected == found)


@dataclass(frozen=True)
class KeyStory:
    """The events of one key, and a sentence (``now``) that says where the key is according to the index."""

    title: str
    key: str
    events: tuple[LifeEvent, ...]
    now: str


@dataclass(frozen=True)
class Query:
    """A way to read the table: ``command`` starts an interpreter, and ``text`` is what to type there."""

    title: str
    command: str
    text: str


@dataclass(frozen=True)
class UpkeepAction:
    """What one kind of service did last: `count` file groups, files or instants."""

    kind: str
    count: int
    seconds: float


@dataclass(frozen=True)
class UpkeepSetting:
    """A key of `table_services`, its value in the demo, and its default, both as texts of the file."""

    key: str
    here: str
    default: str


@dataclass(frozen=True)
class DemoReport:
    """What the demo did and proved. ``seconds``: from the first record sent to the last one committed."""

    table_path: str
    config_path: str
    months: int
    flights: int
    stream: StreamCounts
    seconds: float
    epochs: int
    commit_latency_ms_p50: float | None
    commit_latency_ms_p99: float | None
    checks: tuple[Check, ...]
    stories: tuple[KeyStory, ...]
    queries: tuple[Query, ...]
    upkeep: tuple[UpkeepAction, ...]
    settings: tuple[UpkeepSetting, ...]

    @property
    def proved(self) -> bool:
        """Whether there were checks, and all of them passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)


def table_checks(
    difference: TableDifference, dead_letters_expected: int, dead_letters: int
) -> tuple[Check, ...]:
    """The checks of the table as read back against the model, and of the dead letters."""
    checks = [
        Check.of_counts("rows in the table", difference.expected, difference.found),
        Check.of_counts("flights missing from the table", 0, difference.missing),
        Check.of_counts("flights in the table that should not be", 0, difference.unexpected),
        Check.of_counts("flights that are there twice", 0, difference.doubled),
        Check.of_counts("rows that differ in any column", 0, difference.different),
        Check.of_counts("dead letters", dead_letters_expected, dead_letters),
    ]
    return tuple(checks)


def query_examples(table_path: str, key: str) -> tuple[Query, ...]:
    """Three ways to read the table at ``table_path`` (absolute); ``key`` is a record key to look up.

    The Spark query filters by the key's fields: Hudi 1.2.0 finds no row by ``_hoodie_record_key`` when a key
    has several fields and the reader uses the record index, also in tables that Hudi wrote itself.
    """
    by_fields = " AND ".join("{} = '{}'".format(*field.split(":", 1)) for field in key.split(","))
    read = (
        "import pyarrow as pa\n"
        "from hudi import HudiReadOptions, HudiTableBuilder\n"
        f"table = HudiTableBuilder.from_base_uri({table_path!r}).build()\n"
        "flights = pa.Table.from_batches(table.read(HudiReadOptions()))\n"
    )
    delays = "SELECT carrier, count(*), avg(dep_delay) FROM flights GROUP BY ALL ORDER BY ALL"
    spark = (
        "import os\n"
        "from pyspark.sql import SparkSession\n"
        "from tidemark.stream_runtime.platform.jars import ensure_jars\n"
        "from tidemark.stream_runtime.platform.java import java_home\n"
        'os.environ["JAVA_HOME"] = str(java_home())\n'
        'bundle = ensure_jars("hudi-spark")  # 80 MB the first time\n'
        "spark = (SparkSession.builder\n"
        '    .config("spark.jars", ",".join(map(str, bundle)))\n'
        '    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")\n'
        '    .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")\n'
        '    .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")\n'
        "    .getOrCreate())\n"
        'flights = (spark.read.format("hudi").option("hoodie.metadata.enable", "true")\n'
        f'    .option("hoodie.enable.data.skipping", "true").load({table_path!r}))\n'
        f'flights.where("{by_fields}").show(vertical=True)\n'
    )
    count = 'flights.group_by("day").aggregate([([], "count_all")]).to_pandas()\n'
    duckdb = "import duckdb\n" + read + f'duckdb.sql("{delays}").show()\n'
    return (
        Query("hudi-rs, to Arrow", ".venv/bin/python", read + count),
        Query("DuckDB, over hudi-rs's Arrow", ".venv/bin/python", duckdb),
        Query("Hudi on Spark, through the record index", ".venv/bin/python", spark),
    )


def print_report(console: Console, report: DemoReport) -> None:
    """Writes the whole report. Commands and paths are not wrapped, so that they can be copied."""
    console.print(Rule("What ran", align="left"))
    _print_run(console, report)
    if report.upkeep:
        console.print(Rule("What was kept up", align="left"))
        _print_upkeep(console, report)
    console.print(Rule("What was proved", align="left"))
    console.print(_check_table(report.checks))
    for story in report.stories:
        console.print(Rule(story.title, align="left"))
        _print_story(console, story)
    console.print(Rule("Query it", align="left"))
    for query in report.queries:
        console.print(Text(query.title, style="bold"))
        for line in [f"$ {query.command}", *query.text.splitlines()]:
            console.print(Text("  " + line), soft_wrap=True)
    console.print(_verdict(report))


def _verdict(report: DemoReport) -> Text:
    if report.proved:
        return Text(f"Proved: all {len(report.checks)} checks passed.", style="bold green")
    failed = sum(not check.passed for check in report.checks)
    return Text(f"Not proved: {failed} of {len(report.checks)} checks failed.", style="bold red")


def _print_run(console: Console, report: DemoReport) -> None:
    stream = report.stream
    rate = stream.records / report.seconds if report.seconds > 0 else 0.0
    lines = [
        f"{grouped(report.flights)} flights of {report.months} month(s) of 2013 as "
        f"{grouped(stream.records)} records in {duration(report.seconds * 1000)}: {grouped(rate)} records/s",
        f"{grouped(stream.late)} of them older than what had arrived, {grouped(stream.repeated)} sent twice, "
        f"{grouped(stream.cancelled + stream.removed)} deletes ({grouped(stream.removed)} as null values), "
        f"{grouped(stream.broken)} broken",
        f"{grouped(report.epochs)} epochs, commit latency p50 {duration(report.commit_latency_ms_p50)}, "
        f"p99 {duration(report.commit_latency_ms_p99)}",
        f"table: {report.table_path}",
        f"configuration: {report.config_path}",
        f"to look again, in a browser too: tidemark run -c {report.config_path}",
    ]
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _print_upkeep(console: Console, report: DemoReport) -> None:
    """The last action of each table service, and the settings that differ from the defaults."""
    ran = "Table services ran beside the epochs, and once more after the stream; the last action of each:"
    console.print(Text(ran), soft_wrap=True)
    actions = Table(box=None, padding=(0, 2, 0, 0))
    for name, justify in (("service", "left"), ("last action", "right"), ("took", "right")):
        actions.add_column(name, justify=justify)  # type: ignore[arg-type]
    for action in report.upkeep:
        did = f"{grouped(action.count)} {COUNTED.get(action.kind, 'instants')}"
        actions.add_row(action.kind, did, duration(action.seconds * 1000))
    console.print(actions)
    settings = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("table_services", "in this demo", "default"):
        settings.add_column(name)
    for setting in report.settings:
        settings.add_row(setting.key, setting.here, setting.default)
    console.print(settings)


def _check_table(checks: tuple[Check, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("check")
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    table.add_column("")
    for check in checks:
        verdict = Text("ok", style="green") if check.passed else Text("FAILED", style="bold red")
        table.add_row(check.name, check.expected, check.found, verdict)
    return table


def _print_story(console: Console, story: KeyStory) -> None:
    console.print(Text(story.key, style="bold"), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("record", justify="right")
    table.add_column("event time (UTC)")
    table.add_column("says")
    table.add_column("so the row is")
    for event in story.events:
        style = "dim" if event.effect.startswith(("ignored", "nothing")) else ""
        table.add_row(
            grouped(event.arrival), instant(event.event_time_us), event.status, event.effect, style=style
        )
    console.print(Padding(table, (0, 0, 0, 2)))
    console.print(Text(f"  now: {story.now}"), soft_wrap=True)
