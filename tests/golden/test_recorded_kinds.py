"""Every kind of what is stored is in some recording: entries and the fold with all their fields, headers,
columns, caches, documents of the table's folder. A kind that the code has and no recording holds fails here,
so a stored format changes together with a new recording (CONTRIBUTING.md, "When a stored format changes").
"""

from __future__ import annotations

import ast
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest

from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tests.golden.recipes.recorded_state import read_lines
from tests.recorded_table import SERVICE_RECORDINGS, Recording, recordings, service_recordings, unpack
from tidemark.commit_coordinator.calls.reader_death_record import READER_DEATHS, ReaderDeaths
from tidemark.commit_coordinator.commit import commit_metadata
from tidemark.commit_coordinator.input.starts import INPUT_EARLIEST, record_input_starts
from tidemark.commit_coordinator.opening.configured_columns import CONFIGURED_COLUMNS
from tidemark.commit_coordinator.opening.ledger_record import LEDGER_RECORD, LedgerRecord
from tidemark.commit_coordinator.opening.table_creation import CREATION, Creation, create_or_finish
from tidemark.config import InputStart
from tidemark.epoch_protocol import batches, dead_letter_headers
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    Decision,
    EpochPlanned,
    LedgerEntry,
    decode_decision,
    encode_entry,
)
from tidemark.epoch_protocol.input_topics import INPUT_TOPICS_PATH, InputTopics
from tidemark.epoch_protocol.kept_indexes import KeptPartitioned, KeptSecondary, KeptStats
from tidemark.epoch_protocol.state import FoldState, VoidedAttempt
from tidemark.hudi_format.index_definitions import read_index_definitions, record_index_kind
from tidemark.hudi_format.metadata_table.checked_index import (
    CHECKED_INDEX,
    checked_replacecommits,
    keep_checked,
)
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.storage.documents import ROOT
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH, read_table_config
from tidemark.hudi_format.table_services.rebuilding.documents import (
    REBUILD_PATH,
    Rebuild,
    begun_rebuild,
    encode,
)
from tidemark.index_assigner.index import rocks_layout
from tidemark.index_assigner.input.positions import recorded_starts
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import SystemClock

REPOSITORY = Path(__file__).parents[2]
TOPICS = TopicNames("accounts")
"""What no recording holds, as today's code writes it: it ends by itself."""
SHORT_LIVED = {
    "attempt_voided": b'{"type":"attempt_voided","term":7,"epoch":3,"attempt":1,"reason":"r","undecides":""}',
    "voided": b'{"epoch":3,"attempt":1,"instant":"20261123000000000"}',
}
"""An epoch of a table with column stats: recordings are older. As the version wrote it that brought them."""
PLANNED_WITH_STATS = (
    b'{"type":"epoch_planned","term":7,"epoch":3,"attempt":1,"generation":0,"through":42,'
    b'"instant":"20261128000000000","as_of":"0","schema":"{}","planned_ms":1,'
    b'"column_stats":{"columns":["_hoodie_record_key","ts"],"groups":2}}'
)
"""The same of a table with a secondary index, too."""
PLANNED_WITH_INDEXES = PLANNED_WITH_STATS[:-1] + (
    b',"secondary":[{"name":"secondary_index_city","column":"city","groups":4}]}'
)
"""The same of a version that tells builds of a secondary index apart."""
PLANNED_WITH_BUILDS = PLANNED_WITH_INDEXES.replace(b'"groups":4}', b'"groups":4,"build":"43-1796101564714"}')
"""The same of a table with a partitioned record index."""
PLANNED_PARTITIONED = PLANNED_WITH_BUILDS[:-1] + (b',"partitioned":{"begun":2,"build":"20261127000000001"}}')
"""The creation of a table with column stats; it exists for moments."""
BEGUN_WITH_STATS = (
    b'{"definition":{"name":"t","table_type":"MERGE_ON_READ","record_key_fields":["id"],"partition_fie'
    b'lds":[],"ordering_fields":[],"hive_style_partitioning":false,"url_encode_partitioning":false,"da'
    b'tabase":"","schema":null},"shards":1,"completions":["20250615150640000","20250615150640001","202'
    b'50615150640002"],"stats":["id"]}'
)
"""The creation of a table with a partitioned record index; it exists for moments, too."""
BEGUN_PARTITIONED = BEGUN_WITH_STATS[:-1] + b',"kind":"partitioned"}'
PASSING = {"freed-lock", "left-lock", "adopt-", "command-", "terms", "ended", "store", "schemas"}
PASSING |= {"index-rebuild.json", "index-at-rest"}
"""Below `ROOT`: folders, and what is there for moments: a lock on its way out, a command at its work."""
YOUNGER = {"input-earliest.json", "rewind-owed"}
"""What tables have since the recordings were made; a table without it is served as before."""
PARTITIONED = {"lane-function"}
"""Of a table with a partitioned record index: recordings are older."""
CACHE_KINDS = {
    "LOCATION_PREFIX": "entries",
    "TOMBSTONE_PREFIX": "tombstones",
    "STATE_PREFIX": "shards",
    "COVERAGE_PREFIX": "covered blocks",
    "POSITION_PREFIX": "positions",
    # A note that is looked at after the next promotion: gone before any recording ends.
    "FOREIGN_PREFIX": None,
    # A shard with a change run: recordings are older.
    "CHANGED_PREFIX": None,
    # A group of a partitioned record index: recordings are older.
    "UNIT_PREFIX": None,
}


_IN_THE_FOLD = {"batch_shuffled": "shuffled", "transaction_tagged": "tagged"}


class Kinds:
    """What all recordings together hold."""

    def __init__(self, found: list[Recording]) -> None:
        self.recordings = found
        self.paths: dict[str, set[str]] = {}
        self.headers: set[str] = set()
        self.cache: list[dict[str, list[Any]]] = []
        self.documents: dict[str, Path] = {}
        for recording in found:
            self._take(recording)

    def take_services(self, expected: Path) -> None:
        """Takes note of a table that lived with all table services."""
        for message in read_lines(expected / "topics.jsonl"):
            if message.topic.endswith(".epochs"):
                entry = json.loads(message.value or b"")
                self.hold(entry["type"], entry)
        self.hold("fold", json.loads((expected / "fold.json").read_bytes()))

    def _take(self, recording: Recording) -> None:
        for message in read_lines(recording.expected / "topics.jsonl"):
            self.headers |= {name for name, _ in message.headers}
            if message.topic in (TOPICS.ledger, TOPICS.epochs):
                entry = json.loads(message.value or b"")
                self.hold(entry["type"], entry)
                if entry["type"] in _IN_THE_FOLD:
                    # The fold keeps it as it is until it is committed.
                    self.hold("fold", {_IN_THE_FOLD[entry["type"]]: [{"entry": entry}]})
        self.hold("fold", json.loads((recording.expected / "fold.json").read_bytes()))
        self.cache.append(json.loads((recording.expected / "cache.json").read_text()))
        for row in self.cache[-1]["shards"]:
            self.hold("shard", row[1])
        for base in (recording.table, recording.half_made):
            for each in (base / ROOT).glob("*"):
                self.documents[each.name] = each

    def hold(self, kind: str, document: Any) -> None:
        """Takes note of the fields of a document."""
        self.paths.setdefault(kind, set()).update(fields_of(document))


def fields_of(document: Any, at: str = "") -> Iterator[str]:
    """Paths of all fields; what a list holds is at the list's own path, and below a mapping at `*` too."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield f"{at}.{name}"
            yield from fields_of(value, f"{at}.{name}")
            yield from fields_of(value, f"{at}.*")
    elif isinstance(document, list):
        for value in document:
            yield from fields_of(value, at)


def fields_in(kind: msgspec.inspect.Type, at: str = "") -> Iterator[str]:
    """Paths of all fields that documents of the type may have, as `fields_of` names them."""
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield f"{at}.{field.encode_name}"
            yield from fields_in(field.type, f"{at}.{field.encode_name}")
    elif isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from fields_in(each, at)
    elif isinstance(kind, msgspec.inspect.ListType):
        yield from fields_in(kind.item_type, at)
    elif isinstance(kind, msgspec.inspect.DictType):
        yield from fields_in(kind.value_type, f"{at}.*")


def lacking(kinds: Kinds, name: str, made_by: Any) -> set[str]:
    """Fields of a type that no recording has."""
    return set(fields_in(msgspec.inspect.type_info(made_by))) - kinds.paths.get(name, set())


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    found = Kinds([unpack(name, tmp_path_factory.mktemp("recorded")) for name in recordings()])
    for name in service_recordings():
        place = tmp_path_factory.mktemp("services")
        with tarfile.open(SERVICE_RECORDINGS / name / "recording.tar.xz") as archive:
            archive.extractall(place, filter="tar")
        found.take_services(place / "expected")
    planned = json.loads(PLANNED_PARTITIONED)
    found.hold(planned["type"], planned)
    found.hold("fold", {"planned": planned})
    return found


ENTRIES = [*get_args(LedgerEntry), *get_args(Decision)]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__)
def test_every_field_of_every_entry_is_recorded(kinds: Kinds, entry: Any):
    tag = str(entry.__struct_config__.tag)
    if tag in SHORT_LIVED:
        kinds.hold(tag, json.loads(SHORT_LIVED[tag]))
    assert lacking(kinds, tag, entry) == set(), f"record an entry {tag} that has these"


def test_every_field_of_the_fold_is_recorded(kinds: Kinds):
    kinds.hold("fold", {"voided": [json.loads(SHORT_LIVED["voided"])]})
    assert lacking(kinds, "fold", FoldState) == set()


def test_what_is_too_short_lived_to_be_recorded_is_read():
    assert decode_decision(SHORT_LIVED["attempt_voided"]) == AttemptVoided(7, 3, 1, "r")
    voided = msgspec.json.decode(SHORT_LIVED["voided"], type=VoidedAttempt)
    assert voided == VoidedAttempt(3, 1, "20261123000000000")


def test_an_epoch_of_a_table_with_further_indexes_is_read():
    stats, city = KeptStats(["_hoodie_record_key", "ts"], 2), KeptSecondary("secondary_index_city", "city", 4)
    planned = EpochPlanned(7, 3, 1, 0, 42, "20261128000000000", "0", "{}", 1, stats)
    assert decode_decision(PLANNED_WITH_STATS) == planned
    planned = msgspec.structs.replace(planned, secondary=[city])
    assert decode_decision(PLANNED_WITH_INDEXES) == planned
    city = msgspec.structs.replace(city, build="43-1796101564714")
    planned = msgspec.structs.replace(planned, secondary=[city])
    assert decode_decision(PLANNED_WITH_BUILDS) == planned
    planned = msgspec.structs.replace(planned, partitioned=KeptPartitioned(2, "20261127000000001"))
    assert decode_decision(PLANNED_PARTITIONED) == planned
    assert encode_entry(planned) == PLANNED_PARTITIONED


def constants(module: Any, prefix: str) -> dict[str, str]:
    return {name: value for name, value in vars(module).items() if name.startswith(prefix)}


def test_every_header_is_recorded(kinds: Kinds):
    written = {*constants(batches, "HEADER_").values(), *constants(dead_letter_headers, "HEADER_").values()}
    assert written - kinds.headers == set()
    prefix = dead_letter_headers.ORIGINAL_PREFIX
    assert any(name.startswith(prefix) for name in kinds.headers)


def test_every_kind_of_record_in_a_cache_is_recorded(kinds: Kinds):
    prefixes = {name for name in vars(rocks_layout) if name.endswith("_PREFIX")}
    assert prefixes == set(CACHE_KINDS), "say what a recording has of it"
    for kind in filter(None, CACHE_KINDS.values()):
        assert any(each[kind] for each in kinds.cache), kind
    # Recordings are older than lives, whose run files are of no use to another process, and than `index`,
    # which a copy of the table does not keep.
    kinds.hold("shard", {"life": "0", "change": "0", "written": 0, "index": "0"})
    assert lacking(kinds, "shard", rocks_layout.ShardRecord) == set()


def documents_of_the_code() -> set[str]:
    """The first name below `ROOT` in every path that the product has."""
    found = set()
    for file in [*REPOSITORY.glob("libs/**/*.py"), *REPOSITORY.glob("services/**/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            found |= set(_below_root(node))
    return found


def _below_root(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.startswith(f"{ROOT}/") and "\n" not in node.value:
            yield node.value.removeprefix(f"{ROOT}/").partition("/")[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "join_path":
        if isinstance(node.args[0], ast.Name) and node.args[0].id == "ROOT":
            yield _text(node.args[1]).partition("/")[0]
    elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.FormattedValue):
        root = node.values[0].value
        if isinstance(root, ast.Name) and root.id == "ROOT":
            yield _text(node.values[1]).removeprefix("/").partition("/")[0]


def _text(node: ast.AST) -> str:
    """A constant, or the constant that a formatted text begins with."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    assert isinstance(first, ast.Constant), ast.dump(node)
    return str(first.value)


def test_every_document_in_the_tables_folder_is_recorded(kinds: Kinds):
    named = documents_of_the_code()
    assert {"table-id", "sign-of-life", "store", "schemas", "verified.json"} <= named, "the search finds none"
    assert named - PASSING - PARTITIONED - YOUNGER - set(kinds.documents) == set(), (
        "record a table that has these"
    )


def test_where_lanes_began_is_read_by_coordinator_and_assigner():
    storage = InMemoryStorage()
    storage.create(INPUT_EARLIEST, b'{\n  "in:0": 17,\n  "in@2:1": 0\n}')
    begun = {"in:0": 17, "in@2:1": 0}
    assert recorded_starts(storage, InputStart.EARLIEST) == begun
    nobody = cast(Any, None)
    assert record_input_starts(InputStart.EARLIEST, begin_term(storage), nobody, list(begun)) == begun


def test_a_switch_to_a_rebuilt_index_that_did_not_end_is_read():
    content = (
        b'{"instant":"20261128000000000","former":2,"shards":4,"paths":[".hoodie/metadata/x"],'
        b'"requested":"AAE="}'
    )
    storage = InMemoryStorage()
    storage.create(REBUILD_PATH, content)
    rebuild = Rebuild("20261128000000000", 2, 4, (".hoodie/metadata/x",), b"\x00\x01")
    assert begun_rebuild(storage) == rebuild
    assert encode(rebuild) == content


def test_the_replacecommits_that_were_found_right_are_read(kinds: Kinds):
    content = kinds.documents[CHECKED_INDEX.rpartition("/")[2]].read_bytes()
    (name,) = json.loads(content)["replacecommits"]
    storage = InMemoryStorage()
    storage.create(CHECKED_INDEX, content)
    assert checked_replacecommits(storage, {name}) == {name}
    storage.delete(CHECKED_INDEX)
    keep_checked(storage, {name}, {name})
    assert storage.read(CHECKED_INDEX) == content


@pytest.mark.parametrize(
    ("path", "made_by"),
    [
        (CREATION, Creation),
        (LEDGER_RECORD, LedgerRecord),
        (INPUT_TOPICS_PATH, InputTopics),
        (READER_DEATHS, ReaderDeaths),
    ],
    ids=lambda each: str(each).rpartition("/")[2],
)
def test_every_field_of_a_document_is_recorded(kinds: Kinds, path: str, made_by: Any):
    content = kinds.documents[path.rpartition("/")[2]].read_bytes()
    msgspec.json.decode(content, type=made_by)
    kinds.hold(path, json.loads(content))
    if path == CREATION:
        kinds.hold(path, json.loads(BEGUN_PARTITIONED))
    assert lacking(kinds, path, made_by) == set()


def test_the_recorded_deaths_of_readers_are_read(kinds: Kinds):
    content = kinds.documents[READER_DEATHS.rpartition("/")[2]].read_bytes()
    recorded = msgspec.json.decode(content, type=ReaderDeaths)
    assert recorded.serving, "its coordinator was killed"
    assert recorded.deaths.keys() == {"shuffle"}
    counts = recorded.deaths["shuffle"]
    assert counts.keys() == {"accounts-in:0", "accounts-in:1"}
    assert all(each.deaths == 1 and each.position > 0 for each in counts.values())


def test_the_recorded_columns_are_read(kinds: Kinds):
    content = json.loads(kinds.documents[CONFIGURED_COLUMNS.rpartition("/")[2]].read_bytes())
    assert content == {"columns": ["id", "region", "at", "balance"]}


def test_what_a_commit_says_of_its_epoch_is_recorded(kinds: Kinds):
    source = Path(commit_metadata.__file__).read_text()
    keys = {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("tidemark.")
    }
    assert "tidemark.epoch" in keys
    timelines = [each.table / ".hoodie/timeline" for each in kinds.recordings]
    commits = [file.read_bytes() for each in timelines for file in each.glob("*_*.deltacommit")]
    assert [key for key in keys if not any(key.encode() in commit for commit in commits)] == []


@pytest.mark.parametrize("document", [BEGUN_WITH_STATS, BEGUN_PARTITIONED], ids=["global", "partitioned"])
def test_a_begun_table_with_column_stats_is_finished(document: bytes):
    storage = InMemoryStorage()
    storage.create(CREATION, document)
    begun = msgspec.json.decode(document, type=Creation)
    assert msgspec.json.encode(begun) == document
    create_or_finish(storage, begun.definition, begun.shards, SystemClock(), begun.stats, begun.kind)
    assert kept_stats_columns(storage, read_table_config(storage)) == ["id"]
    assert record_index_kind(read_index_definitions(storage)) is begun.kind


def test_a_recorded_half_made_table_is_finished(kinds: Kinds):
    half = [LocalStorage(each.half_made) for each in kinds.recordings if each.half_made.is_dir()]
    assert half
    for storage in half:
        begun = msgspec.json.decode(storage.read(CREATION), type=Creation)
        create_or_finish(storage, begun.definition, begun.shards, SystemClock())
        assert not storage.exists(CREATION)
        assert storage.exists(PROPERTIES_PATH)
