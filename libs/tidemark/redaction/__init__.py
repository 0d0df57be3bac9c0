"""What must not be shown: settings whose names say that they hold secrets, and texts that look like one.

One pattern of names serves logs, JVM arguments and Spark's pages. Its syntax is what Python's `re` and Java's
`Pattern` read alike: Spark gets it as `spark.redaction.regex`. A name too many costs little: its value is not
shown, and goes by a file instead of an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

REDACTED: Final = "***"


# Not the names of our own settings, nor of files: what follows them is prose.
_SECRET_IN_TEXT: Final = re.compile(
    r"(?i)(?<![\w.\-/])((?!security\.token)[\w.\-]*(?:password|passwd|passphrase|(?<![a-z0-9])pwd|secret|token|credential|user\.info|api[_.\-]?key|access[_.\-]?key|private[_.\-]?key)[\w.\-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;}]+)"
)


_USER_INFO: Final = re.compile(r"(\w+://)[^\s/@:]+:[^\s/@]+@")


_TOKEN: Final = re.compile(r"(?i)tdm_[0-9a-f]{16,}|(?<=bearer )[\w.\-+/=]{16,}|(?<=basic )[\w+/=]{16,}")


_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)


def redact_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for showing: values of secret-sounding keys replaced."""
    return {key: REDACTED if names_a_secret(key) else redact_text(value) for key, value in settings.items()}


def redact_text(text: str) -> str:
    """`password=x`, `api_key=x`, `scheme://user:x@`, `Bearer x` without the x; private keys (PEM) and our own
    tokens wherever they stand.
    """
    text = _PRIVATE_KEY.sub(REDACTED, text)
    named = _SECRET_IN_TEXT.sub(rf"\1{REDACTED}", _TOKEN.sub(REDACTED, text))
    return _USER_INFO.sub(rf"\1{REDACTED}@", named)


SECRET_NAME: Final = (
    r"(?i:pass(word|wd|phrase)?$|password|secret|token|credential|user\.info|sasl\.jaas|key\.pem|\.pem$|"
    r"(api|private|access|account)[._-]?key|(^|[._-])pwd$|encryption\.key$|azure\.sas\.)"
)


_SECRET_NAME: Final = re.compile(SECRET_NAME)


def names_a_secret(key: str) -> bool:
    """Whether a setting of this name is to be kept from everybody's eyes."""
    return _SECRET_NAME.search(key) is not None
