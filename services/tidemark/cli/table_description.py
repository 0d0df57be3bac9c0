"""The text that `tidemark table describe` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def description_lines(document: dict[str, Any]) -> Iterator[str]:
    """The lines of the text, made from the document of `commit_coordinator.offline.table.describe`."""
    yield f"table       {document['name']}  {document['path']}"
    yield f"type        {document['type']}, version {document['version']}, {document['merge_mode']}"
    yield f"record key  {', '.join(document['record_key'])}"
    yield f"partition   {', '.join(document['partition']) or 'none'}"
    yield f"ordering    {', '.join(document['ordering']) or 'order of arrival'}"
    indexes = ", ".join(document["metadata_partitions"])
    yield f"index       {document['shards']} shards; metadata table: {indexes}"
    yield (
        f"files       {document['partitions']} partitions, {document['file_groups']} file groups, "
        f"{document['base_files']} base and {document['log_files']} log files in use; "
        f"{document['bytes']} bytes in all"
    )
    newest = document["newest_commit"]
    yield (
        f"newest      instant {newest['instant']}, epoch {newest['epoch'] or '- (another writer)'}"
        if newest
        else "newest      no commit yet"
    )
    for pending in document["pending"]:
        yield f"pending     {pending}"
    if document["lock"] is not None:
        term = document["lock"]["term"]
        yield "lock        " + (
            "held by another writer" if term is None else f"held by coordinator term {term}"
        )
    yield f"servable    {'yes' if document['servable'] else 'no: ' + document['not_servable']}"
    yield "other writers (Hudi on Spark) need these options while Tidemark runs:"
    for key, value in document["foreign_writer_options"].items():
        yield f"  {key}={value}"
    yield "Hudi's procedures need these, or they drop the record index (docs/hudi-beside.md):"
    yield f"  options => '{document['procedure_options']}'"
