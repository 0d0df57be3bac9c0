"""Makes fastavro refuse negative indexes of unions and enums.

An Avro union's value begins with the number of its branch, and an enum's value is the number of its symbol.
fastavro indexes a Python list with that number, and -1 is the list's last item: bytes that no Avro writer
produces, and every other reader refuses, would be read as a value of another branch.

fastavro's compiled reader adds `len()` to a negative index, and uses `len()` for nothing else. So we replace
the lists of branches and symbols in a parsed schema by lists whose `len()` raises. That costs nothing per
value, while a check of our own would. `tests/unit/hudi_format/test_avro_indexes.py` fails when a newer
fastavro behaves differently.
"""

from __future__ import annotations

from typing import Any


class _Numbered(list[Any]):
    """Branches or symbols that only indexes from 0 on can reach."""

    __slots__ = ()

    def __len__(self) -> int:
        raise IndexError("a union or an enum with a negative index")


def without_negative_indexes(parsed: Any) -> Any:
    """The result of `fastavro.parse_schema` with such lists. It is changed in place where possible; use the
    returned value.

    Reading a record with a negative index then raises IndexError. A union that is the whole schema stays as
    it is, because fastavro parses it anew at every reading.
    """
    if isinstance(parsed, dict):
        for named in parsed.get("__named_schemas", {}).values():
            _number(named)
    return _number(parsed)


def _number(node: Any) -> Any:
    if isinstance(node, _Numbered):
        return node
    if isinstance(node, list):
        return _Numbered(_number(member) for member in node)
    if isinstance(node, dict):
        for field in node.get("fields", ()):
            field["type"] = _number(field["type"])
        for name in ("items", "values", "type"):
            if name in node:
                node[name] = _number(node[name])
        if node.get("type") == "enum" and not isinstance(node["symbols"], _Numbered):
            node["symbols"] = _Numbered(node["symbols"])
    return node
