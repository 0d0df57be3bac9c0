"""The newest dead letters for the page: why each record was refused, where it is, and how its value
begins.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from tidemark.page.plain_values import cut
from tidemark.page.sources import NewestLetters, RefusedRecord

_REASONS_SHOWN: Final = 40
_PREVIEW_BYTES: Final = 300


def dead_letters_document(dead_letters: NewestLetters) -> dict[str, Any]:
    """The document, with dead letters newest first. `by_reason` counts all that were read, not only
    those shown.
    """
    reasons: Counter[str] = Counter()
    for reason, count in dead_letters.reasons.items():
        reasons[cut(reason)] += count
    return {
        "read": reasons.total(),
        "by_reason": [[reason, count] for reason, count in reasons.most_common(_REASONS_SHOWN)],
        "newest": [_letter(letter) for letter in dead_letters.newest],
    }


def _letter(letter: RefusedRecord) -> dict[str, Any]:
    return {
        "id": letter.id,
        "reason": cut(letter.reason),
        "detail": cut(letter.detail),
        "topic": cut(letter.topic),
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "key": _preview(letter.key),
        "value": _preview(letter.value),
    }


def _preview(content: bytes | None) -> str | None:
    """The beginning of the content as text. Bytes that are no UTF-8 become replacement characters."""
    if content is None:
        return None
    text = content[:_PREVIEW_BYTES].decode("utf-8", "replace")
    return text if len(content) <= _PREVIEW_BYTES else f"{text}… ({len(content)} bytes)"
