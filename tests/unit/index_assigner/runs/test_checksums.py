"""Checksums of run files are the same by either library, so a file outlives a change of it."""

from __future__ import annotations

import random
import sys
import zlib

import pytest

from tidemark.index_assigner.runs import checksums


@pytest.mark.parametrize("length", [0, 1, 7, 64, 4_095, 100_000])
def test_it_is_zlibs(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert checksums.crc32(data) == zlib.crc32(data)


def test_without_isal_it_is_zlib_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert checksums._fastest() is zlib.crc32
