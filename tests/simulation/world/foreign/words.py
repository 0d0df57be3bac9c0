"""What the words of the verb `foreign` mean where a script leaves some out, and how they go together."""

from __future__ import annotations

from typing import Final

WORDS: Final = dict.fromkeys(
    (
        "insert", "insert-into", "overwrite", "drop", "half", "half-begun", "plan-clustering", "cluster",
        "fail-clustering",
    ),
    ("d0",),
)  # fmt: skip
LEAVES_INDEX: Final = frozenset({
    "compact-index", "plan-compact-index", "fail-compact-index", "rollback-service", "plan-compaction",
    "plan-clustering", "plan-clean", "archive", "savepoint", "delete-savepoints", "die", "stats", "build",
    "leave-build",
})  # fmt: skip
"""What begins without a look at what is planned for the metadata table, or does it in a way of its own."""
PLANS: Final = ("compaction", "clustering", "clean")
UNDONE_BY_A_RESTORE: Final = (("insert", "d0"), ("update",), ("move", "d1"), ("delete",), ("insert", "d1"))
