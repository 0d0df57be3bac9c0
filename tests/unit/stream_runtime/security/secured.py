"""A table's configuration with a `security:` section, for tests of who gets in."""

from __future__ import annotations

import json
from pathlib import Path

from tidemark.config import TableConfigFile, load_config

SCHEMA = {"type": "record", "name": "orders", "fields": [{"name": "id", "type": "string"}]}
TABLE = """
table: {name: orders, path: ./table, record_key: [id], schema: orders.avsc}
input: {topics: [orders]}
kafka: {bootstrap.servers: "localhost:9092"}
state: {path: ./state}
"""


def secured(folder: Path, security: str, more: str = "") -> TableConfigFile:
    """`security`: the section's content, in one line."""
    (folder / "orders.avsc").write_text(json.dumps(SCHEMA))
    (folder / "state").mkdir(mode=0o700, exist_ok=True)
    file = folder / "orders.yaml"
    file.write_text(f"{TABLE}security: {security}\n{more}\n")
    return load_config(file, {})


def secret_file(path: Path, content: str) -> Path:
    """A file that nobody else can read, replaced in one step."""
    partial = path.with_suffix(".partial")
    partial.touch(mode=0o600)
    partial.write_text(content)
    return partial.replace(path)
