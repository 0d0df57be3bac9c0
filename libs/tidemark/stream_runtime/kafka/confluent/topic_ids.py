"""The id of a topic that confluent-kafka described, without the leak that comes with it.

confluent-kafka (2.16.1, `Admin_c_TopicDescription_to_py`) takes two references to each id and returns one, so
no id is ever freed: 96 bytes for each topic at each call. An assigner asks before each transaction, and so
grew by 100 MiB a day. A version that is mended has no reference too many, and then nothing is given back.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's zero UUID, which a broker without topic ids returns."""
_HOLDERS: Final = 3
"""The description, our variable, and the argument of `getrefcount` while it counts."""


def id_of(described: Any) -> str:
    """The id of the topic; "" where it has none. Call it once for each description."""
    topic_id = described.topic_id
    if topic_id is None:
        return ""
    if sys.getrefcount(topic_id) == _HOLDERS + 1:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(topic_id))
    text = str(topic_id)
    return "" if text == _NO_ID else text
