"""Commands that delete something: named first, asked for, and nothing is changed until the right answer."""

from __future__ import annotations

import io
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli import tables
from tidemark.cli.main import main
from tidemark.commit_coordinator.opening.topics_setup import ensure_topics
from tidemark.config import load_config
from tidemark.console.errors import CliError
from tidemark.demo import session
from tidemark.demo.folder import prepare_folder
from tidemark.ledger_client.topics import TopicNames

PARTITIONS = "hoodie.table.metadata.partitions="
NAMES = TopicNames("orders")
OWN = (NAMES.keyed, NAMES.data, NAMES.index, NAMES.tombstones, NAMES.ledger, NAMES.epochs)
LETTERS = NAMES.dead_letter


class Terminal(io.StringIO):
    """Somebody who types this."""

    def isatty(self) -> bool:
        return True


class Asked:
    """A table with stats that Spark made, and its topics on a Kafka in memory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.cluster = folder, MemoryCluster()
        self.config = write_config(folder)
        new_table(folder / "table").commit(orders(("k1", "2026-01-01", 1)))
        properties = folder / "table" / ".hoodie" / "hoodie.properties"
        text = properties.read_text().replace("timezone=UTC", "timezone=LOCAL")
        properties.write_text(text.replace(PARTITIONS, f"{PARTITIONS}column_stats,"))
        (folder / "table/.hoodie/metadata/column_stats").mkdir()
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(tables, "reachable_kafka", lambda config, *_: nullcontext(config))
        monkeypatch.setattr(
            "tidemark.cli.tables.ConfluentKafkaClient.from_config", lambda *_, **__: self.cluster.client
        )

    def make_topics(self) -> None:
        ensure_topics(load_config(self.config), self.cluster.admin)

    def everything(self) -> tuple[dict[Path, bytes], dict[str, str]]:
        """All files with their content, all topics with their ids."""
        files = {each: each.read_bytes() for each in self.folder.rglob("*") if each.is_file()}
        states = self.cluster.admin.topic_states([*OWN, LETTERS])
        return files, {name: state.id for name, state in states.items()}

    def adopt(self, *more: str, typed: str | None = None) -> int:
        """`typed` None: nobody can be asked."""
        stdin = io.StringIO("orders\n") if typed is None else Terminal(typed)
        self._monkeypatch.setattr("sys.stdin", stdin)
        return main(["table", "adopt", "-c", str(self.config), *more])

    def has_stats(self) -> bool:
        text = (self.folder / "table/.hoodie/hoodie.properties").read_text()
        return "column_stats" in text


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(tmp_path, monkeypatch)


WAYS = [
    (("--drop-stats",), False),
    (("--drop-stats", "--new-ledger"), True),
    (("--drop-stats", "--copied"), True),
]


@pytest.mark.parametrize(("way", "topics"), WAYS)
@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (None, 2, "add --yes if that is meant"),
        ("", 1, "not confirmed: nothing was changed"),
        ("\n", 1, "not confirmed: nothing was changed"),
        ("yes\n", 1, "not confirmed: nothing was changed"),
        ("order\n", 1, "not confirmed: nothing was changed"),
        ("ORDERS\n", 1, "not confirmed: nothing was changed"),
    ],
)
def test_nothing_is_changed_until_somebody_agrees(
    asked: Asked,
    capsys: pytest.CaptureFixture[str],
    way: tuple[str, ...],
    topics: bool,
    typed: str | None,
    code: int,
    said: str,
) -> None:
    asked.make_topics()
    before = asked.everything()
    assert asked.adopt(*way, typed=typed) == code
    assert asked.everything() == before
    told = capsys.readouterr().err
    assert said in told
    assert f"column and partition stats of {asked.folder / 'table'}" in told
    assert [name in told for name in OWN] == [topics] * len(OWN)
    assert LETTERS not in told, "they stay"
    assert ("Type the table's name (orders) to go on" in told) == (typed is not None)


@pytest.mark.parametrize(("typed", "yes"), [("orders\n", ()), (None, ("--yes",))])
@pytest.mark.parametrize(("way", "topics"), WAYS)
def test_with_the_tables_name_or_yes_it_goes_on(
    asked: Asked, way: tuple[str, ...], topics: bool, typed: str | None, yes: tuple[str, ...]
) -> None:
    copied = "--copied" in way
    if not copied:
        asked.make_topics()
    _, before = asked.everything()
    assert asked.has_stats()
    assert asked.adopt(*way, *yes, typed=typed) == 0
    assert not asked.has_stats()
    _, after = asked.everything()
    changed = {name for name in OWN if before.get(name) != after.get(name)}
    assert changed == (set(OWN) if topics else set())
    if not copied:
        assert before[LETTERS] == after[LETTERS]


def test_what_deletes_nothing_asks_nothing(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.make_topics()
    _, before = asked.everything()
    assert asked.adopt("--drop-stats", "--yes") == 0
    assert asked.adopt() == 0
    monkeypatch.setattr(tables, "move_ledger", lambda *_: ["moved"])
    assert asked.adopt("--moved") == 0
    assert asked.everything()[1] == before


def _begins() -> None:
    raise CliError("the demo begins")


@pytest.mark.parametrize(
    ("typed", "yes", "begins", "said"),
    [
        (None, (), False, "add --yes if that is meant"),
        ("demo\n", (), False, "not confirmed: nothing was changed"),
        ("flights\n", (), True, "the demo begins"),
        (None, ("--yes",), True, "the demo begins"),
    ],
)
def test_a_former_demo_is_deleted_when_somebody_agrees(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str | None,
    yes: tuple[str, ...],
    begins: bool,
    said: str,
) -> None:
    folder = tmp_path / "demo"
    prepare_folder(folder, "merge_on_read", Random(1), lambda _: None)
    notes = folder / "warehouse.txt"
    notes.write_text("rows")
    monkeypatch.setattr(session, "find_java", _begins)
    monkeypatch.setattr("sys.stdin", io.StringIO("flights\n") if typed is None else Terminal(typed))
    assert main(["demo", "--dir", str(folder), *yes]) in (1, 2)
    assert notes.exists() is not begins
    told = capsys.readouterr().err
    assert said in told
    assert (f"the former demo in {folder}" in told) == (not yes)
