"""The result of a verification as text, or as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemark.table_verification.findings import MEANING, Kind
from tidemark.table_verification.verify import Verification


def document(result: Verification) -> dict[str, Any]:
    """The result as a JSON document; ``differences``: by kind, with their number and the first examples."""
    return {
        "agrees": result.agrees,
        "path": result.path,
        "as_of": result.as_of,
        "since": result.since,
        "rows": result.rows,
        "index_entries": result.entries,
        "shards": result.shards,
        "partitions": result.partitions,
        "file_groups": result.file_groups,
        "files": result.files,
        "ignored_files": result.ignored_files,
        "to_be_deleted": result.to_be_deleted,
        "warnings": list(result.warnings),
        "read": {"file_groups": result.compared.file_groups, "shards": result.compared.shards},
        "commits": {
            "ours": result.commits.ours,
            "foreign": result.commits.foreign,
            "epochs_without_rows": result.commits.without_rows,
            "new_ledgers": result.commits.ledgers,
            "first_epoch": result.commits.first_epoch,
            "last_epoch": result.commits.last_epoch,
        },
        "differences": {
            kind.value: {"count": count, "examples": result.findings.examples[kind]}
            for kind, count in result.findings.counts.items()
        },
    }


def lines(result: Verification) -> Iterator[str]:
    """The result as lines of text."""
    yield f"table     {result.path}, as of {result.as_of or 'no commit'}"
    yield (
        f"compared  {result.rows} rows with {result.entries} index entries; {result.shards} shards, "
        f"{result.partitions} partitions, {result.file_groups} file groups, {result.files} files"
    )
    if result.since is not None:
        yield (
            f"          only what changed since {result.since} was read: {result.compared.file_groups} file "
            f"groups, {result.compared.shards or 'new log files of the'} shards; --full reads everything"
        )
    commits = result.commits
    epochs = f"epochs {commits.first_epoch} to {commits.last_epoch}" if commits.ours else "none of ours"
    looked_at = "in the active timeline" if result.since is None else "looked at"
    yield f"commits   {commits.ours + commits.foreign} {looked_at}: {epochs}" + (
        f", {commits.foreign} of other writers" if commits.foreign else ""
    )
    if result.ignored_files:
        yield f"ignored   {result.ignored_files} files of writes that have not ended"
    if result.to_be_deleted:
        yield f"cleaned   {result.to_be_deleted} files that nobody lists are still to be deleted"
    for warning in result.warnings:
        yield f"WARNING   {warning}"
    for kind in Kind:
        if count := result.findings.counts.get(kind):
            yield f"DIFFERENT {count} {MEANING[kind]}:"
            examples = result.findings.examples[kind]
            for example in examples:
                yield f"            {example}"
            if count > len(examples):
                yield f"            … and {count - len(examples)} more"
    yield "agrees" if result.agrees else f"DOES NOT AGREE: {sum(result.findings.counts.values())} differences"
