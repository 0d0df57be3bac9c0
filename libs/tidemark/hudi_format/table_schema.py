"""Decides a table's schema: which commits state it, and what else in the table may contradict it.

Rule (Hudi 1.2.0, `TableSchemaResolver`): the schema is the one in the extra metadata of the newest write, by
completion time, that has one and whose operation may change it. Compaction, log compaction and clustering
do not count, because they repeat the schema that was known when they were planned. A replacecommit (insert
overwrite) and the empty commit of ALTER TABLE ADD COLUMNS do count. Where only table services are left on the
active timeline (a restore to a compaction, with all before it archived) the newest of them states it; Hudi
reads it from a data file then. Before any write it is the schema with which the table was created.

Schema on read (`hoodie.schema.on.read.enable`, ALTER TABLE RENAME, DROP and type changes) keeps a second
schema with column ids, in `.hoodie/.schema` and under `latest_schema` of each commit, and readers find
columns by these ids. This library does not know them and would damage such a table, so it refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.schema import SchemaError, TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.timeline import Action, Instant, Timeline
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, decode_commit_metadata

SCHEMA_FOLDER: Final = ".hoodie/.schema"
LATEST_SCHEMA_KEY: Final = "latest_schema"
# A first look searches this many commits for the newest one of another writer.
_COMMITS_MAX: Final = 1_000
_CHANGE_SCHEMA: Final = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_REPEATING: Final = (*_CHANGE_SCHEMA, Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
_REPEAT_SCHEMA: Final = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})


@dataclass(frozen=True)
class CommitSchema:
    """The schema that a commit carries. `is_own`: its extra metadata has the key that only we write."""

    instant: Instant
    schema: TableSchema
    is_own: bool


def table_schema(storage: Storage, config: TableConfig, timeline: Timeline) -> TableSchema | None:
    """The table's schema by the rule in the module's docstring.

    None when neither a write of the active timeline nor a property states it. Raises `SchemaError`,
    `UnsupportedTableError` (schema on read), `CorruptFileError`.
    """
    stated = _first_stated(storage, config.name, _newest_first(timeline))
    if stated is None:
        stated = _first_stated(storage, config.name, _newest_first(timeline, _REPEATING), repeats=True)
    if stated is not None:
        return stated
    text = config.properties.get(keys.CREATE_SCHEMA)
    return TableSchema.from_avro(text, config.name) if text else None


def read_commit_schema(
    storage: Storage, table: str, instant: Instant, own_key: str = "", *, repeats: bool = False
) -> CommitSchema | None:
    """The schema that one completed write states; None when it states none. Raises as `table_schema`.

    ``repeats``: a table service, which only repeats one, counts.
    """
    path = instant_path(instant)
    metadata = decode_commit_metadata(storage.read(path), path)
    extra = metadata.extra_metadata
    is_repeated = metadata.operation_type in _REPEAT_SCHEMA and not repeats
    if is_repeated or not extra.get(SCHEMA_KEY):
        return None
    if extra.get(LATEST_SCHEMA_KEY):
        _refuse_schema_on_read(path)
    try:
        schema = TableSchema.from_avro(extra[SCHEMA_KEY], table)
    except SchemaError as error:
        raise SchemaError(f"{path} changed the table's schema: {error}") from error
    return CommitSchema(instant, schema, bool(own_key) and own_key in extra)


def former_schema(
    storage: Storage, config: TableConfig, timeline: Timeline, unseen: Collection[str], own: str | None
) -> TableSchema | None:
    """A schema that the table had before the commits ``unseen`` (requested times): that of the newest other
    commit of the active timeline that states one, else that of ``own``, our last commit, in the archive, else
    the one with which the table was made. None where nothing tells. Raises as `table_schema`.
    """
    seen = (instant for instant in _newest_first(timeline) if instant.requested not in unseen)
    stated = _first_stated(storage, config.name, seen)
    if stated is not None:
        return stated
    texts = [config.properties.get(keys.CREATE_SCHEMA)]
    if own is not None and timeline.archive is not None:
        archived = timeline.archive.instants_at({own})
        named = f"archived instant {own}"
        texts = [
            *(decode_commit_metadata(row.metadata, named).extra_metadata.get(SCHEMA_KEY) for row in archived),
            *texts,
        ]
    return next((TableSchema.from_avro(text, config.name) for text in texts if text), None)


def _first_stated(
    storage: Storage, table: str, instants: Iterable[Instant], *, repeats: bool = False
) -> TableSchema | None:
    """The schema of the first of these instants that states one."""
    for instant in instants:
        if (commit := read_commit_schema(storage, table, instant, repeats=repeats)) is not None:
            return commit.schema
    return None


class SchemaChanges:
    """Finds the schemas of new commits on a timeline that is loaded again and again. Not thread-safe."""

    def __init__(self, storage: Storage, table: str, own_key: str) -> None:
        self._storage, self._table, self._own_key = storage, table, own_key
        self._seen: Collection[str] | None = None

    def look(self, timeline: Timeline) -> list[CommitSchema]:
        """The schemas of the commits since the last look, in order of completion: the newest comes last.

        The first look returns at most our newest commit and the newest one of another writer: each commit of
        ours has all columns that existed when it was planned, so older commits add nothing. A look that
        raises marks nothing as seen. Raises as `table_schema`.
        """
        instants = _newest_first(timeline)
        commits = list(self._first(instants) if self._seen is None else self._unseen(instants, self._seen))
        self._seen = frozenset(instant.file_name for instant in instants)
        return commits[::-1]

    def _unseen(self, instants: Iterable[Instant], seen: Collection[str]) -> Iterator[CommitSchema]:
        for instant in instants:
            if instant.file_name not in seen and (commit := self._read(instant)) is not None:
                yield commit

    def _first(self, instants: list[Instant]) -> Iterator[CommitSchema]:
        has_own = False
        for instant in instants[:_COMMITS_MAX]:
            commit = self._read(instant)
            if commit is None or (commit.is_own and has_own):
                continue
            yield commit
            if not commit.is_own:
                return
            has_own = True

    def _read(self, instant: Instant) -> CommitSchema | None:
        return read_commit_schema(self._storage, self._table, instant, self._own_key)


def check_no_schema_on_read(storage: Storage) -> None:
    """Raises `UnsupportedTableError` when schema on read has been used on the table. Costs one listing.

    Hudi creates the folder with every table; it stays empty until schema on read is used.
    """
    names = [file.name for file in storage.list(SCHEMA_FOLDER) if not file.name.startswith(".")]
    if names:
        _refuse_schema_on_read(f"{SCHEMA_FOLDER}/{names[0]}")


def _refuse_schema_on_read(where: str) -> None:
    raise UnsupportedTableError(
        f"{where}: the table's schema was changed by schema on read (hoodie.schema.on.read.enable), "
        "which reads columns by ids that Tidemark does not know",
        "Write the rows into a new table, and change columns by ALTER TABLE ADD COLUMNS or a wider write "
        "instead",
    )


def _newest_first(timeline: Timeline, actions: tuple[Action, ...] = _CHANGE_SCHEMA) -> list[Instant]:
    return sorted(timeline.completed(*actions), key=lambda instant: str(instant.completion), reverse=True)
