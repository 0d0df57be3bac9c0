"""What a configuration is going to say, and why: filled by a sample or a table, written by `render`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark.init.candidates import Candidate
from tidemark.init.columns import Columns


@dataclass
class Draft:
    """`kafka`, `hoodie`, `registry`: as they go into the file, references to the environment unresolved.

    `origin`: a sentence on what the file was made from. `notes`: comments by the key's path, line by line.
    """

    name: str
    path: str
    origin: str
    type: str = "merge_on_read"
    record_key: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    ordering: str | None = None
    schema: Mapping[str, Any] = field(default_factory=dict)
    shards: int | None = None
    topics: tuple[str, ...] = ()
    format: str = "json"
    framed: bool = False
    delete_field: str | None = None
    services: dict[str, str] = field(default_factory=dict)
    position: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    hoodie: Mapping[str, str] = field(default_factory=dict)
    registry: Mapping[str, str] = field(default_factory=dict)
    protobuf: Mapping[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def note(self, key: str, *lines: str) -> None:
        """Adds comments above a key."""
        self.notes.setdefault(key, []).extend(lines)

    @property
    def schema_text(self) -> str:
        """The Avro file: one field a line."""
        rest = {key: value for key, value in self.schema.items() if key != "fields"}
        head = json.dumps(rest, ensure_ascii=False)[:-1]
        fields = ",\n".join(f"    {json.dumps(each, ensure_ascii=False)}" for each in self.schema["fields"])
        return f'{head}, "fields": [\n{fields}\n]}}\n'


def record_schema(name: str, columns: Columns, required: tuple[str, ...]) -> dict[str, Any]:
    """The Avro record of a table's columns."""
    record = "".join(each if each.isascii() and each.isalnum() else "_" for each in name)
    record = record if not record[:1].isdigit() else f"_{record}"
    return {"type": "record", "name": record, "fields": columns.avro_fields(required)}


def candidate_lines(candidates: list[Candidate], chosen: tuple[str, ...], shown: int = 4) -> list[str]:
    """Comments: why the chosen one, and what else there is."""
    lines = [f"{', '.join(each.fields)}: {each.reason}" for each in candidates if each.fields == chosen]
    others = [each for each in candidates if each.fields != chosen][:shown]
    lines += [f"or [{', '.join(each.fields)}]: {each.reason}" for each in others]
    return lines
