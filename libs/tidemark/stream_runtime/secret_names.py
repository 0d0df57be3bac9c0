"""Which settings hold secrets, told by their names: one pattern for logs, JVM arguments and Spark's pages.

Its syntax is what Python's `re` and Java's `Pattern` read alike: Spark gets it as `spark.redaction.regex`. A
name too many costs little: its value is not shown, and goes by a file instead of an argument.
"""

from __future__ import annotations

import re
from typing import Final

SECRET_NAME: Final = (
    r"(?i:pass(word|wd|phrase)?$|password|secret|token|credential|user\.info|sasl\.jaas|key\.pem|\.pem$|"
    r"(api|private|access|account)[._-]?key|(^|[._-])pwd$|encryption\.key$|azure\.sas\.)"
)
_SECRET_NAME: Final = re.compile(SECRET_NAME)


def names_a_secret(key: str) -> bool:
    """Whether a setting of this name is to be kept from everybody's eyes."""
    return _SECRET_NAME.search(key) is not None
