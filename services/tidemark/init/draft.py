"""The draft of a configuration with the reasons for its values. A sample or a table fills it, `render`
writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark.init.candidates import Candidate
from tidemark.init.columns import Columns


@dataclass
class Draft:
    """The values of a configuration. `kafka`, `hoodie` and `registry` are written as they are, with
    references to the environment unresolved. `origin` says what the file was made from. `notes` are lines of
    comment by the key's path (`table.ordering`).
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
    is_partitioned: bool = False
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
        """The text of the Avro file, with one field per line."""
        rest = {key: value for key, value in self.schema.items() if key != "fields"}
        head = json.dumps(rest, ensure_ascii=False)[:-1]
        fields = ",\n".join(f"    {json.dumps(field, ensure_ascii=False)}" for field in self.schema["fields"])
        return f'{head}, "fields": [\n{fields}\n]}}\n'


def record_schema(name: str, columns: Columns, required: tuple[str, ...]) -> dict[str, Any]:
    """The Avro record of a table's columns."""
    record = "".join(char if char.isascii() and char.isalnum() else "_" for char in name)
    record = record if not record[:1].isdigit() else f"_{record}"
    return {"type": "record", "name": record, "fields": columns.avro_fields(required)}


def candidate_lines(candidates: list[Candidate], chosen: tuple[str, ...], shown: int = 4) -> list[str]:
    """Lines of comment: the reason for the chosen candidate, then up to `shown` other candidates."""
    lines = [f"{', '.join(one.fields)}: {one.reason}" for one in candidates if one.fields == chosen]
    others = [one for one in candidates if one.fields != chosen][:shown]
    lines += [f"or [{', '.join(other.fields)}]: {other.reason}" for other in others]
    return lines
