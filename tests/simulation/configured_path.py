"""The configuration file of a `CommitPath`'s table, for what is done with a file and no coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_tagger import SCHEMA, TABLE
from tidemark.config import TableConfigFile, load_config

_CONFIG: Final = f"""\
table:
  name: {TABLE}
  path: TABLE
  record_key: [id]
  partition: [day]
  ordering: ts
  schema: t.avsc
  index: {{shards: 2, lanes: 1}}
input: {{topics: [in], partitions: 1}}
kafka: {{bootstrap.servers: "127.0.0.1:1"}}
state: {{path: ./state}}
"""


def config_of(path: CommitPath, folder: Path) -> TableConfigFile:
    """Written into the folder, with the schema beside it, and loaded."""
    (folder / "t.avsc").write_text(SCHEMA.avro_json)
    file = folder / "t.yaml"
    file.write_text(_CONFIG.replace("TABLE", path.storage.base_uri))
    return load_config(file)
