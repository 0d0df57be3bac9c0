"""The content of another engine's replacecommit that writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.hudi_format.timeline.avro_container import encode_container


def replace_commit(replaced: Mapping[str, Sequence[str]], operation: str = "DELETE_PARTITION") -> bytes:
    """`replaced`: partition path -> ids of the file groups that are gone."""
    record = {
        "partitionToWriteStats": {},
        "compacted": False,
        "extraMetadata": {},
        "version": 1,
        "operationType": operation,
        "partitionToReplaceFileIds": {path: list(groups) for path, groups in replaced.items()},
    }
    return encode_container("replace-commit-metadata", record)
