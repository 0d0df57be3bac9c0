"""An archive of a timeline, made of files of the timeline, without the product's code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
    ]
)


def archive(timeline: Path, files: Iterable[Path], version: int = 1, *, names_it: bool = True) -> None:
    """The completed ``files`` go to the archive, and no other instant is in it; they stay where they are.
    ``names_it``: `_version_` is written, too.
    """
    rows = []
    for file in files:
        times, _, action = file.name.partition(".")
        requested, _, completion = times.partition("_")
        rows.append((requested, completion, action, file.read_bytes()))
    history = timeline / "history"
    history.mkdir(exist_ok=True)
    name = f"{rows[0][0]}_{rows[-1][0]}_{version}.parquet"
    columns = dict(zip(_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns, schema=_SCHEMA), history / name)
    (history / f"manifest_{version}").write_text(json.dumps({"files": [{"fileName": name, "fileLen": 1}]}))
    (history / "_version_").unlink(missing_ok=True)
    if names_it:
        (history / "_version_").write_text(str(version))


def leave(files: Iterable[Path]) -> None:
    """The files' instants leave the timeline."""
    for file in files:
        for each in file.parent.glob(f"{file.name.partition('_')[0]}*"):
            each.unlink()
