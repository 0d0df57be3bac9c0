"""What commands print: nothing from outside is obeyed by a terminal."""

from __future__ import annotations

import io
import json

import pytest

from tidemark.console.output import Output

HOSTILE = "k\x1b[2J\x9b31m\u202e\x07\r\nforged line\x7f\U000e0001"


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_of_keys_are_shown_as_escapes(as_json: bool) -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(as_json, out, err)
    output.answer({"key": HOSTILE}, [f"key {HOSTILE}", "Zürich \u2014 \U0001f4a5"])
    output.say(f"first {HOSTILE}\nsecond")
    for text in (out.getvalue(), err.getvalue()):
        assert all(line.isprintable() for line in text.split("\n"))
    assert "forged line" in out.getvalue()
    assert len(out.getvalue().splitlines()) == (1 if as_json else 2)
    if as_json:
        assert json.loads(out.getvalue()) == {"key": HOSTILE}
    else:
        assert "Zürich \u2014 \U0001f4a5" in out.getvalue()
