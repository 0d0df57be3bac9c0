"""Avro whose unions and enums take no negative index.

A union's value begins with the number of its branch, an enum's is the number of its symbol. fastavro asks a
Python list for it, and -1 is the last one there: bytes that no Avro writer makes would be read as a value of
another branch, where every other reader refuses them.

fastavro's compiled reader adds `len()` to a negative index, and asks for `len()` at nothing else. So the
lists of branches and symbols in a parsed schema become lists whose length cannot be asked. That costs nothing
for each value, which a check of our own would. `tests/unit/hudi_format/test_avro_indexes.py` says whether a
newer fastavro still does so.
"""

from __future__ import annotations

from typing import Any


class _Numbered(list[Any]):
    """Branches or symbols, by numbers from 0 on."""

    __slots__ = ()

    def __len__(self) -> int:
        raise IndexError("a union or an enum with a negative index")


def without_negative_indexes(parsed: Any) -> Any:
    """What `fastavro.parse_schema` made, changed in place where it can be; use what is returned.

    A record with such an index then raises IndexError. A union that is the whole schema, and no part of one,
    is parsed anew by fastavro whenever it reads, and stays as it is.
    """
    if isinstance(parsed, dict):
        for named in parsed.get("__named_schemas", {}).values():
            _number(named)
    return _number(parsed)


def _number(node: Any) -> Any:
    if isinstance(node, _Numbered):
        return node
    if isinstance(node, list):
        return _Numbered(_number(each) for each in node)
    if isinstance(node, dict):
        for each in node.get("fields", ()):
            each["type"] = _number(each["type"])
        for name in ("items", "values", "type"):
            if name in node:
                node[name] = _number(node[name])
        if node.get("type") == "enum" and not isinstance(node["symbols"], _Numbered):
            node["symbols"] = _Numbered(node["symbols"])
    return node
