"""`tidemark init --format protobuf`: columns and rows of messages, and what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.record_formats.test_decode_protobuf import Field, descriptor_set, field, order_file
from tidemark.cli.main import main
from tidemark.init.protobuf_sample import message_columns, message_rows
from tidemark.record_formats.protobuf_message import message_class


def test_messages_become_columns_of_every_kind_that_fits(tmp_path: Path):
    file = order_file()
    recursive = file.message_type.add(name="Tree")
    recursive.field.append(field("id", 1, Field.TYPE_INT64))
    recursive.field.append(field("child", 2, Field.TYPE_MESSAGE, ".shop.Tree"))
    (tmp_path / "shop.desc").write_bytes(descriptor_set(file))
    order_class = message_class(tmp_path / "shop.desc", "shop.Order")
    columns = message_columns(order_class.DESCRIPTOR)
    assert columns.types["i"] == "int"
    assert columns.types["u"] == "long"
    assert "2^63" in columns.notes["u"]
    assert columns.types["raw"] == "bytes"
    assert columns.types["state"] == "string"
    assert columns.types["note"] == "string"
    assert columns.types["at"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert columns.types["lines"]["items"][1]["fields"][0]["name"] == "n"
    assert columns.types["sums"] == {"type": "map", "values": ["null", "long"]}
    rows = message_rows(
        order_class, columns, [order_class(id="a", state=1).SerializeToString(), b"\xff", b"\x18\x01"]
    )
    assert rows[0] is not None
    assert (rows[0]["id"], rows[0]["state"], rows[0]["maybe"]) == ("a", "PAID", None)
    assert rows[1] is None
    tree = message_columns(message_class(tmp_path / "shop.desc", "shop.Tree").DESCRIPTOR)
    assert tree.types.keys() == {"id"}
    assert tree.notes["child"] == "left out: shop.Tree cannot be a column"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--format", "protobuf"], "--descriptor FILE"),
        (["--descriptor", "none.desc"], "there is no file none.desc"),
        (["--descriptor", "shop.desc"], "shop.Other, shop.Order: say which with --message"),
        (["--descriptor", "shop.desc", "--message", "Order"], "--message: shop.desc has no message Order"),
        (["--descriptor", "shop.desc", "--format", "avro"], "no meaning with --format avro"),
        (["--descriptor", "README", "--message", "x.Y"], "--descriptor: README is no FileDescriptorSet"),
    ],
)
def test_protobuf_without_what_it_needs_says_what(
    options: list[str],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.desc").write_bytes(descriptor_set(order_file()))
    (tmp_path / "README").write_bytes(b"\xff\xff")
    assert main(["init", "--topic", "t", "--bootstrap-servers", "k:1", *options]) == 2
    assert says in capsys.readouterr().err
