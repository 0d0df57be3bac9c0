"""The identity of a completed instant: the name of its completed file, `<requested>_<completion>.<action>`.

The archive stores all three parts in the same words, so an instant keeps its identity when it is archived. (A
compaction is a `commit` in both.)
"""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.timeline.instant import Action, Instant
from tidemark.hudi_format.timeline.timeline import Timeline

# These actions neither change rows nor undo a change, so nobody has to know whether they were seen.
_PASSED_OVER: Final = frozenset({Action.CLEAN, Action.SAVEPOINT})
_PASSED_OVER_WORDS: Final = frozenset(action.completed_word for action in _PASSED_OVER)


def judged_instants(timeline: Timeline) -> dict[str, Instant]:
    """Identity -> instant, for all completed instants of the active timeline except cleans and savepoints."""
    return {
        instant.file_name: instant for instant in timeline.completed() if instant.action not in _PASSED_OVER
    }


def completions(timeline: Timeline) -> dict[str, str]:
    """Identity -> completion time, for the instants of `judged_instants`."""
    return {name: str(instant.completion) for name, instant in judged_instants(timeline).items()}


def is_judged(identity: str) -> bool:
    """Whether the identity's action is one that `judged_instants` includes."""
    return identity.rpartition(".")[2] not in _PASSED_OVER_WORDS
