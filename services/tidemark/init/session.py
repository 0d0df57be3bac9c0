"""Runs `tidemark init`: from its options to the two files, which the code that will read them has checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.config import SchemaRegistryConfig, TableConfigFile, values
from tidemark.config.environment import fill_references, hide_references
from tidemark.config.errors import Problems
from tidemark.config.model import EMBEDDED, InputFormat
from tidemark.console.errors import WRONG_USE, CliError
from tidemark.doctor.config_check import check_config_file
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.init.ask import Asker
from tidemark.init.candidates import is_millis, key_candidates, ordering_candidates, partition_candidates
from tidemark.init.columns import Columns
from tidemark.init.draft import Draft, candidate_lines, record_schema
from tidemark.init.existing_table import draft_of_table
from tidemark.init.neighbours import free_services
from tidemark.init.protobuf_sample import chosen_message
from tidemark.init.reading import read_file, read_topic
from tidemark.init.render import render
from tidemark.init.sample import POSITION_COLUMN, Said, Sample, understand
from tidemark.record_formats.choose import record_decoder
from tidemark.record_formats.decoder import DecodedRecords, RecordDecoder
from tidemark.record_formats.errors import InputWaitsError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.retry import Deadline
from tidemark.stream_runtime.schema_registry.confluent import ConfluentSchemaSource

_EMBEDDED: Final = {"bootstrap.servers": EMBEDDED}
_ORDERING_BY_ARRIVAL: Final = "without table.ordering: of two records of a key the later arrival wins"
_REFUSED_SHOWN: Final = 5
_DECODING_TIMEOUT_S: Final = 30.0
_DECODING_PAUSE_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The options of the command. Columns and `delete_field`: None asks for a proposal, () and "" mean none.
    `kafka` and `registry` are written into the file as they are. `descriptor` and `message` are for Protobuf;
    `message` None means the descriptor's only message.
    """

    out: Path | None
    topic: str | None = None
    sample: Path | None = None
    table: Path | None = None
    name: str | None = None
    path: str | None = None
    type: str | None = None
    record_key: tuple[str, ...] | None = None
    partition: tuple[str, ...] | None = None
    ordering: tuple[str, ...] | None = None
    kafka: Mapping[str, str] | None = None
    registry: Mapping[str, str] | None = None
    format: InputFormat | None = None
    descriptor: Path | None = None
    message: str | None = None
    delete_field: str | None = None
    records: int = 1_000
    force: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The result: the two files, and how many of the `sampled` records were `taken` with this configuration.
    `refused` has the reasons for some of the others.
    """

    draft: Draft
    config: Path
    schema: Path
    sampled: int
    taken: int
    refused: tuple[str, ...]
    warnings: tuple[str, ...]
    adopts: bool = False
    """Whether the table exists, so that `tidemark table adopt` has to take it over first."""


def initialise(options: InitOptions, clock: Clock, asker: Asker, env: Mapping[str, str]) -> Written:
    """Writes `<out>` and the schema beside it. After an error (CliError, KafkaError, ConfigError) both files
    are as they were before.
    """
    kafka = {**_EMBEDDED, **(options.kafka or {})}
    said = _said(options)
    messages: list[Message] = []
    if options.table is not None:
        draft = draft_of_table(options.table.expanduser().resolve(), options.topic, kafka)
        draft.format = (said.format or InputFormat.JSON).value
        draft.registry = dict(options.registry or {})
        draft.delete_field = said.delete_field or None
    else:
        messages = _messages(options, kafka, clock, env)
        draft = _draft_of_sample(options, said, messages, kafka, asker, env)
    out = (options.out or Path(f"{draft.name}.yaml")).expanduser().absolute()
    if said.message is not None and options.descriptor is not None:
        draft.protobuf = {
            "descriptor": _as_written(options.descriptor, out.parent),
            "message": str(said.message.DESCRIPTOR.full_name),
        }
    draft.services = free_services(out.parent, out)
    schema = out.with_suffix(".avsc")
    _refuse_overwriting(options.force, out, schema)
    out.parent.mkdir(parents=True, exist_ok=True)
    before = {file: file.read_bytes() if file.exists() else None for file in (out, schema)}
    try:
        schema.write_text(draft.schema_text, encoding="utf-8")
        out.write_text(render(draft, schema.name, out.name), encoding="utf-8")
        config, warnings, _ = check_config_file(out, env)
        taken, refused = _tried(config, messages, clock)
    except BaseException:
        _put_back(before)
        raise
    return Written(
        draft,
        out,
        schema,
        len(messages),
        taken,
        tuple(refused),
        tuple(warnings),
        adopts=options.table is not None,
    )


def _said(options: InitOptions) -> Said:
    given, wanted = options.format, options.format
    if options.descriptor is not None or options.message is not None:
        wanted = InputFormat.PROTOBUF
    if given not in (None, wanted):
        raise CliError(f"--descriptor and --message have no meaning with --format {given.value}", WRONG_USE)
    if options.sample is not None and wanted not in (None, InputFormat.JSON, InputFormat.DEBEZIUM_JSON):
        raise CliError(
            f"--sample is a file of JSON: a sample of {wanted.value} comes from --topic", WRONG_USE
        )
    if wanted is not InputFormat.PROTOBUF:
        return Said(wanted, None, options.delete_field)
    descriptor = options.descriptor.expanduser() if options.descriptor is not None else None
    return Said(wanted, chosen_message(descriptor, options.message), options.delete_field)


def _as_written(file: Path, folder: Path) -> str:
    """The path for the configuration: relative if the file is below its folder, so that both can be moved
    together, else absolute.
    """
    whole = file.expanduser().resolve()
    beside = whole.is_relative_to(folder.resolve())
    return str(whole.relative_to(folder.resolve())) if beside else str(whole)


def _messages(
    options: InitOptions, kafka: Mapping[str, str], clock: Clock, env: Mapping[str, str]
) -> list[Message]:
    if options.sample is not None:
        return read_file(options.sample.expanduser(), options.records)
    if options.topic is None:
        raise CliError("name the source: --topic T, --sample FILE or --table PATH", WRONG_USE)
    if kafka["bootstrap.servers"] == EMBEDDED:
        raise CliError("name Kafka's address: --bootstrap-servers HOST:PORT", WRONG_USE)
    client = ConfluentKafkaClient(resolved(kafka, env), clock)
    return read_topic(client, options.topic, options.records, clock)


def resolved(given: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The settings with their references to the environment filled in. Raises ConfigError."""
    filled, problems = {}, Problems("the command line")
    for key, value in given.items():
        hidden, references = hide_references(value)
        filled[key] = str(fill_references(problems, hidden, references, env, "the command line", key))
    problems.raise_if_any()
    return filled


def _draft_of_sample(
    options: InitOptions,
    said: Said,
    messages: list[Message],
    kafka: Mapping[str, str],
    asker: Asker,
    env: Mapping[str, str],
) -> Draft:
    registry = dict(options.registry or {})
    source = _registry(resolved(registry, env)) if registry else None
    try:
        sample = understand(messages, source, said)
    finally:
        if source is not None:
            source.close()
    topic = options.topic or options.name or (options.sample.stem if options.sample else "records")
    name = _table_name(options.name or topic)
    origin = f"{len(messages):,} records of " + (
        f"topic {options.topic}" if options.sample is None else f"{options.sample}"
    )
    draft = Draft(name, options.path or f"./warehouse/{name}", origin, kafka=kafka)
    draft.type = options.type or draft.type
    draft.topics = (topic,)
    draft.format = sample.format.value
    draft.registry = registry if sample.framed and said.message is None else {}
    draft.framed = sample.framed and not draft.registry
    draft.delete_field = sample.delete_field
    _choose(draft, sample, options, asker)
    _note(draft, sample, options)
    required = (*draft.record_key, *draft.partition, *filter(None, [draft.ordering]))
    draft.schema = record_schema(name, sample.columns, required)
    return draft


def _registry(settings: Mapping[str, str]) -> ConfluentSchemaSource:
    try:
        return ConfluentSchemaSource(SchemaRegistryConfig(*values.registry_settings(dict(settings))))
    except values.BadValueError as error:
        raise CliError(f"--schema-registry: {error}", WRONG_USE) from None


def _choose(draft: Draft, sample: Sample, options: InitOptions, asker: Asker) -> None:
    rows, columns = sample.rows, sample.columns
    names = list(columns.types)
    keys = key_candidates(rows, sample.keys, columns, draft.name, sample.deletes)
    draft.record_key = _named(options.record_key, columns, "--key")
    if options.record_key is None:
        draft.record_key = asker.choose("Record key: what tells rows apart", keys, names, optional=False)
    if not draft.record_key:
        raise CliError(
            f"no column looks like a record key: name one with --key; there are {', '.join(names)}"
            f"{columns.left_out_text()}",
            WRONG_USE,
        )
    draft.note("table.record_key", *candidate_lines(keys, draft.record_key))
    _choose_ordering(draft, sample, options, asker)
    parts = partition_candidates(rows, columns, draft.record_key, draft.ordering)
    draft.partition = _named(options.partition, columns, "--partition")
    if options.partition is None:
        sound = [part for part in parts if part.score > 0]
        draft.partition = asker.choose("Partition: the folders of the table", sound, names, optional=True)
    draft.note("table.partition", *candidate_lines(parts, draft.partition))
    if not draft.partition:
        draft.note(
            "table.partition", "[] = one folder; a day or another column of few, steady values splits it"
        )


def _choose_ordering(draft: Draft, sample: Sample, options: InitOptions, asker: Asker) -> None:
    if sample.position is not None and options.ordering is None:
        draft.position, draft.ordering = sample.position, POSITION_COLUMN
        sample.columns.types[POSITION_COLUMN] = "long"
        draft.note("table.ordering", f"a column of its own, filled from {sample.position} of each event")
        return
    names = list(sample.columns.types)
    candidates = ordering_candidates(sample.rows, sample.columns, draft.record_key)
    named = _named(options.ordering, sample.columns, "--ordering")
    if options.ordering is None:
        question = "Ordering: which of two records of a key is newer"
        named = asker.choose(question, candidates, names, optional=True)
    draft.ordering = named[0] if named else None
    if draft.ordering is not None and is_millis(sample.columns.types.get(draft.ordering)):
        sample.columns.types[draft.ordering] = "long"
        sample.columns.notes[draft.ordering] = (
            "whole numbers, milliseconds since 1970; a long, because Hudi cannot order by timestamp-millis"
        )
    key = "table.ordering" if draft.ordering else "table.schema"
    draft.note(key, *candidate_lines(candidates, named))
    if draft.ordering is None:
        draft.note("table.schema", _ORDERING_BY_ARRIVAL)


def _named(given: tuple[str, ...] | None, columns: Columns, option: str) -> tuple[str, ...]:
    unknown = [name for name in given or () if name.split(".")[0] not in columns.types]
    if unknown:
        raise CliError(
            f"{option}: there is no column {', '.join(unknown)}; there are {', '.join(columns.types)}"
            f"{columns.left_out_text()}",
            WRONG_USE,
        )
    return given or ()


def _note(draft: Draft, sample: Sample, options: InitOptions) -> None:
    for name, text in sample.columns.notes.items():
        draft.note("table.schema", f"{name}: {text}")
    if sample.passed_over:
        draft.note(
            "input.format",
            f"{sample.passed_over} of the sampled records hold no row (deletes, or unreadable)",
        )
    if sample.delete_field:
        draft.note("input.delete_field", "true deletes the key; it is no column")
    if options.topic is None:
        draft.note(
            "input.topics", "`tidemark run` creates what does not exist, with input.partitions partitions"
        )
    if draft.kafka["bootstrap.servers"] == EMBEDDED:
        draft.note("kafka", "embedded: `tidemark run` starts a Kafka of its own; name your brokers instead.")


def _table_name(text: str) -> str:
    """A table name, which also begins the names of topics, from the name of any topic."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)[:100].strip("_") or "records"


def _refuse_overwriting(force: bool, *files: Path) -> None:
    there = [str(file) for file in files if file.exists()]
    if there and not force:
        raise CliError(
            f"{' and '.join(there)} exist: name another file with --out, or overwrite with --force", WRONG_USE
        )


def _put_back(before: Mapping[Path, bytes | None]) -> None:
    for file, content in before.items():
        if content is None:
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(content)


def _tried(config: TableConfigFile, messages: list[Message], clock: Clock) -> tuple[int, list[str]]:
    """Runs the sample through the decoder and the key generator that the assigners use. Returns how many
    records were taken, and some reasons why others were refused.
    """
    valued = [message for message in messages if message.value]
    if not valued:
        return 0, []
    schema = TableSchema.from_avro(config.table.schema.read_text(encoding="utf-8"), config.table.name)
    generator = KeyGenerator.for_table(schema, config.table.record_key, config.table.partition)
    decoder = record_decoder(config, schema, generator, clock)
    decoded = _decoded(decoder, valued, Deadline(clock, _DECODING_TIMEOUT_S))
    reasons = [f"{refused.reason.value}: {refused.detail}" for refused in decoded.refused]
    rows = pa.Table.from_batches([decoded.rows])
    for column in (generator.record_keys(rows).error, generator.partition_paths(rows).error):
        reasons += [text for text in column.to_pylist() if text is not None]
    shown: list[str] = list(dict.fromkeys(reasons))[:_REFUSED_SHOWN]
    return len(messages) - len(reasons), shown


def _decoded(decoder: RecordDecoder, messages: list[Message], deadline: Deadline) -> DecodedRecords:
    """Decodes the messages, and again while the decoder waits for a schema id that the registry does not have
    yet. Raises DeadlineExceededError when that takes too long.
    """
    while True:
        try:
            return decoder.decode(messages, np.arange(len(messages), dtype=np.int64))
        except InputWaitsError as error:
            deadline.check(f"decoding the sample: {error}")
            deadline.sleep(_DECODING_PAUSE_S)
