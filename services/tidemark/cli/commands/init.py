"""`tidemark init`: writes a commented configuration from a sample of records, or from an existing table."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidemark.console.arguments import Commands, add_command, whole_number
from tidemark.console.output import Output, printable

if TYPE_CHECKING:
    from tidemark.init.session import InitOptions, Written

_RECORDS: Final = 1_000
_FORMATS: Final = ("json", "avro", "protobuf", "debezium-json", "debezium-avro")
_EXAMPLES: Final = """\
  tidemark init --topic orders --bootstrap-servers localhost:9092
  tidemark init --sample orders.jsonl                 JSON records from a file; with an embedded Kafka
  tidemark init --table /warehouse/orders --topic orders --bootstrap-servers localhost:9092
  tidemark init --topic db.public.orders --bootstrap-servers k:9093 --kafka security.protocol=SASL_SSL \\
      --kafka 'sasl.password=${KAFKA_PASSWORD}' --schema-registry https://registry:8081
  tidemark init --topic orders --bootstrap-servers localhost:9092 --format protobuf \\
      --descriptor orders.desc --message shop.Order

Writes NAME.yaml and NAME.avsc; it overwrites existing files only with --force. On a terminal it asks where
there is a choice; options and --yes answer beforehand. References like ${KAFKA_PASSWORD} are written into
the file as they are and read from the environment, so no secret is in the file or on the command line.
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "init",
        run_init,
        "write a commented configuration from a topic's records, a file of records, or a Hudi table",
        _EXAMPLES,
        config=False,
    )
    source = parser.add_argument_group("the source of the sample")
    source.add_argument("--topic", metavar="T", help="the input topic; its newest records are the sample")
    source.add_argument(
        "--sample", type=Path, metavar="F", help="a file of records: JSON lines or one JSON array"
    )
    source.add_argument(
        "--table", type=Path, metavar="PATH", help="a Hudi table: take its schema, keys and shards"
    )
    source.add_argument(
        "--records",
        type=whole_number(1, 100_000),
        default=_RECORDS,
        metavar="N",
        help=f"size of the sample (default: {_RECORDS})",
    )
    reach = parser.add_argument_group("how to connect")
    reach.add_argument("--bootstrap-servers", metavar="S", help="Kafka's host:port; several with commas")
    reach.add_argument(
        "--kafka", action="append", default=[], metavar="K=V", help="another setting of the Kafka client"
    )
    reach.add_argument("--schema-registry", metavar="URL", help="for values in Confluent's wire format")
    reach.add_argument(
        "--registry",
        action="append",
        default=[],
        metavar="K=V",
        help="another setting of the registry's client",
    )
    _add_format(parser)
    _add_decisions(parser)


def _add_format(parser: argparse.ArgumentParser) -> None:
    read = parser.add_argument_group("the records' format (found from the sample, except for Protobuf)")
    read.add_argument("--format", choices=_FORMATS, help="input.format of the configuration")
    read.add_argument(
        "--descriptor",
        type=Path,
        metavar="F",
        help="for Protobuf: the file of protoc --include_imports --descriptor_set_out=F …",
    )
    read.add_argument(
        "--message", metavar="NAME", help="for Protobuf: package.Name (default: the descriptor's only one)"
    )
    read.add_argument(
        "--delete-field",
        metavar="COLUMN",
        help="a record with true in this field deletes its key (default: a field like _deleted); or none",
    )


def _add_decisions(parser: argparse.ArgumentParser) -> None:
    decided = parser.add_argument_group("what to write")
    decided.add_argument("--name", metavar="N", help="the table's name (default: from topic, file or table)")
    decided.add_argument("--path", metavar="P", help="the table's folder (default: ./warehouse/NAME)")
    decided.add_argument("--type", choices=("merge_on_read", "copy_on_write"), help="the table's type")
    for option, what in (("key", "record key"), ("partition", "partition"), ("ordering", "ordering")):
        decided.add_argument(
            f"--{option}",
            metavar="COLUMNS",
            help=f"the {what}: columns, separated by commas" + (", or none" if option != "key" else ""),
        )
    decided.add_argument("--out", type=Path, metavar="F", help="the file to write (default: ./NAME.yaml)")
    decided.add_argument("--force", action="store_true", help="overwrite files that exist")
    decided.add_argument("--yes", action="store_true", help="take every proposal, ask nothing")


def run_init(options: argparse.Namespace) -> int:
    """Writes the two files. Raises CliError: exit code 2 for wrong use, 1 when there is no sample to read."""
    from tidemark.init.ask import Asker
    from tidemark.init.session import initialise
    from tidemark.stream_runtime.clock import SystemClock

    output = Output(options.json)
    asker = Asker.of_terminal(output.say, wanted=not options.yes and not options.json)
    written = initialise(_understood(options), SystemClock(), asker, os.environ)
    output.answer(_document(written), _lines(written))
    return 0


def _understood(options: argparse.Namespace) -> InitOptions:
    from tidemark.config.model import InputFormat
    from tidemark.console.errors import WRONG_USE, CliError
    from tidemark.init.session import InitOptions

    given = [name for name in ("sample", "table") if getattr(options, name) is not None]
    if len(given) > 1:
        raise CliError("--sample and --table exclude each other: give one of them", WRONG_USE)
    kafka = _pairs("--kafka", options.kafka)
    if options.bootstrap_servers:
        kafka = {"bootstrap.servers": options.bootstrap_servers, **kafka}
    registry = _pairs("--registry", options.registry)
    if options.schema_registry:
        registry = {"url": options.schema_registry, **registry}
    return InitOptions(
        out=options.out,
        topic=options.topic,
        sample=options.sample,
        table=options.table,
        name=options.name,
        path=options.path,
        type=options.type,
        record_key=_columns(options.key),
        partition=_columns(options.partition),
        ordering=_columns(options.ordering),
        kafka=kafka or None,
        registry=registry or None,
        format=InputFormat(options.format) if options.format else None,
        descriptor=options.descriptor,
        message=options.message,
        delete_field="" if (options.delete_field or "").lower() == "none" else options.delete_field,
        records=options.records,
        force=options.force,
    )


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    from tidemark.console.errors import WRONG_USE, CliError

    pairs = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise CliError(f"{option} takes KEY=VALUE", WRONG_USE)
        pairs[key.strip()] = value
    return pairs


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return () if text.lower() == "none" else tuple(name.strip() for name in text.split(",") if name.strip())


def _document(written: Written) -> dict[str, Any]:
    draft = written.draft
    return {
        "config": str(written.config),
        "schema": str(written.schema),
        "record_key": list(draft.record_key),
        "partition": list(draft.partition),
        "ordering": draft.ordering,
        "format": draft.format,
        "sampled": written.sampled,
        "taken": written.taken,
        "refused": list(written.refused),
        "warnings": list(written.warnings),
        "notes": draft.notes,
    }


def _lines(written: Written) -> Iterator[str]:
    draft = written.draft
    file = shlex.quote(os.path.relpath(written.config))
    yield f"wrote {file} and {os.path.relpath(written.schema)}"
    yield f"  record key  {', '.join(draft.record_key)}"
    yield f"  partition   {', '.join(draft.partition) or 'none'}"
    yield f"  ordering    {draft.ordering or 'none: the later arrival wins'}"
    yield f"  columns     {len(draft.schema['fields'])}"
    for warning in written.warnings:
        yield f"warning: {warning}"
    if written.sampled:
        yield f"{written.taken:,} of {written.sampled:,} sampled records can be taken with it"
    for reason in written.refused:
        yield f"  refused: {printable(reason)}"
    yield "next:"
    yield f"  {'$EDITOR ' + file:40}  look through the comments"
    yield f"  {'tidemark doctor -c ' + file:40}  is everything there that it needs?"
    if written.adopts:
        yield f"  {'tidemark table adopt -c ' + file:40}  take the table over"
        yield f"  {'tidemark run -c ' + file:40}  start; Ctrl-C stops"
    else:
        yield f"  {'tidemark run -c ' + file:40}  make the table and start; Ctrl-C stops"
    yield f"  {'tidemark status -c ' + file:40}  in another terminal: what it does"
