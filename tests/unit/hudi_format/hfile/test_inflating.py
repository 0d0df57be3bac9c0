"""Both libraries that inflate blocks give the same bytes and refuse the same damage."""

from __future__ import annotations

import gzip
import sys
import zlib

import pytest

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.hfile import inflating
from tidemark.hudi_format.hfile.inflating import INFLATERS, gunzip

PAYLOAD = b"".join(b"order-%012d" % (number * 7919) for number in range(300))
MEMBER = gzip.compress(PAYLOAD, mtime=0)

libraries = pytest.mark.parametrize("library", list(INFLATERS))


def test_the_faster_library_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(INFLATERS) == ["isal", "zlib"]
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert inflating._libraries() == {"zlib": zlib}


@libraries
def test_members_one_after_the_other_are_one_payload(library: str) -> None:
    assert gunzip(MEMBER, len(PAYLOAD), "f", 0, library) == PAYLOAD
    assert gunzip(MEMBER * 3, 3 * len(PAYLOAD), "f", 0, library) == PAYLOAD * 3
    assert gunzip(gzip.compress(b""), 0, "f", 0, library) == b""


@libraries
@pytest.mark.parametrize(
    "stored",
    [MEMBER[:-1], MEMBER[: len(MEMBER) // 2], MEMBER[:5], MEMBER + MEMBER, MEMBER + b"\0", b"\0" * 40],
    ids=["cut", "half", "head", "twice", "more", "zeros"],
)
def test_what_is_not_whole_members_of_the_expected_size_is_damage(library: str, stored: bytes) -> None:
    with pytest.raises(CorruptFileError, match="f: block at offset 7"):
        gunzip(stored, len(PAYLOAD), "f", 7, library)


@libraries
def test_a_changed_bit_is_found_or_changes_nothing(library: str) -> None:
    for bit in range(0, 8 * len(MEMBER), 13):
        changed = bytearray(MEMBER)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            payload = gunzip(bytes(changed), len(PAYLOAD), "f", 0, library)
        except CorruptFileError:
            continue
        assert payload == PAYLOAD, bit
