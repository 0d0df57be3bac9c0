"""Parses and prints the names of base and log files (FORMAT.md, sections 4.1 and 5.1; METADATA_TABLE.md,
section 4.1). No other module does that.

    base file   <fileId>_<writeToken>_<instant>.<extension>
    log file    .<fileId>_<instant>.log.<version>_<writeToken>
                (.cdc at the end: change log, not part of a slice)

Since table version 8 the instant of a log file is that of its own deltacommit, its version starts at 1, and
no commit appends to a file of another one. A write token is three integers `partition-stage-attempt`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tidemark.hudi_format.errors import HudiFormatError

_BASE: Final = re.compile(
    r"^(?P<file_id>[^_.][^_]*)_(?P<token>\d+-\d+-\d+)_(?P<instant>\d+)\.(?P<extension>\w+)$", re.ASCII
)
_LOG: Final = re.compile(
    r"^\.(?P<file_id>[^._]+)_(?P<instant>[^.]*)\.(?P<kind>log|archive)\.(?P<version>\d+)"
    r"(?:_(?P<token>\d+-\d+-\d+)(?P<cdc>\.cdc)?)?$"
)
_FILE_ID: Final = re.compile(r"^[^._/\0]+$")
# As many files as an action of 64 file groups has, each near three times its trigger.
_PARSED_KEPT: Final = 8_192


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """The parts of a base file's name; `extension` is 'parquet' or 'hfile'."""

    file_id: str
    write_token: str
    instant: str
    extension: str

    def __str__(self) -> str:
        return f"{checked_file_id(self.file_id)}_{self.write_token}_{self.instant}.{self.extension}"

    @classmethod
    def parse(cls, name: str) -> BaseFileName | None:
        """The parts of `name`; None when it is not the name of a base file."""
        match = _BASE.match(name)
        return None if match is None else cls(*match.groups())


@dataclass(frozen=True, slots=True)
class LogFileName:
    """The parts of a log file's name. `write_token` is '' in a name without one."""

    file_id: str
    instant: str
    version: int
    write_token: str
    is_cdc: bool = False
    is_archive: bool = False

    def __str__(self) -> str:
        token = f"_{self.write_token}" if self.write_token else ""
        kind = "archive" if self.is_archive else "log"
        name = f".{checked_file_id(self.file_id)}_{self.instant}.{kind}.{self.version}{token}"
        return name + (".cdc" if self.is_cdc else "")

    @property
    def order(self) -> tuple[str, int, str]:
        """The sort key in which readers merge the log files of a slice: instant, version, write token as
        text.
        """
        return self.instant, self.version, self.write_token

    @classmethod
    def parse(cls, name: str) -> LogFileName | None:
        """The parts of `name`; None when it is not the name of a log file."""
        match = _LOG.match(name)
        if match is None:
            return None
        file_id, instant, kind, version, token, cdc = match.groups()
        return cls(file_id, instant, int(version), token or "", cdc is not None, kind == "archive")


def checked_file_id(file_id: str) -> str:
    """Returns `file_id` if Hudi can parse names with it. Raises HudiFormatError when it is empty, or has '.',
    '_' or '/' in it.
    """
    if not _FILE_ID.match(file_id):
        raise HudiFormatError(
            f"file id {file_id!r} must not be empty nor hold '.', '_' or '/': file names could not be parsed"
        )
    return file_id


@lru_cache(_PARSED_KEPT)
def parse_data_file(name: str) -> BaseFileName | LogFileName | None:
    """The parts of a base or log file's name; None for all others (markers, partition metadata, side
    files).

    A step looks at the same names several times, the last time under the table's lock: the newest ones are
    kept.
    """
    return LogFileName.parse(name) if name.startswith(".") else BaseFileName.parse(name)
