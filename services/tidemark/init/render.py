"""Writes a draft as a commented YAML file. Keys that the draft does not set are written as comments with
their defaults. They come from the configuration's model, so a new key appears without a change here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import yaml

from tidemark.config.reference import KnownKey, known_keys
from tidemark.console.output import printable
from tidemark.init.draft import Draft

_ABOUT: Final = {
    "table": "The Hudi table, made at the first start; key, partition, ordering and type never change then.",
    "input": "Where records come from, and how they are written.",
    "kafka": "Settings of the Kafka client as they are (sasl.*, ssl.*, …); ${NAME} reads the environment.",
    "state": "Caches of the assigners, and an embedded Kafka's data; on a local disk.",
    "services": "Other ports than the usual ones: another configuration in this folder has those.",
    "hoodie": "Options of Hudi that the table was made with.",
}


def render(draft: Draft, schema_file: str, config_file: str) -> str:
    """The text of the whole file. `schema_file` and `config_file` are the names of the two files."""
    decided = _decided(draft, schema_file)
    lines = [
        f"# Made by `tidemark init` from {printable(draft.origin)}. Look it through: proposals have their",
        "# reasons beside them. Relative paths start at this file's folder; ${NAME} reads the environment.",
        f"#   tidemark config check -c {config_file}     does it hold together?",
        f"#   tidemark doctor -c {config_file}           is everything there that it needs?",
        "",
    ]
    for section, content in decided.items():
        lines.append(f"# {_ABOUT[section]}")
        lines += [f"# {printable(note)}" for note in draft.notes.get(section, [])]
        lines.append(f"{section}:")
        for key, value in content.items():
            lines += [f"  # {printable(note)}" for note in draft.notes.get(f"{section}.{key}", [])]
            lines.append(f"  {_scalar(key)}: {_inline(value)}")
        lines += [f"  # {line}" for line in _undecided(section, content)]
        lines.append("")
    lines.append("# The rest may stay as it is: these are the defaults.")
    for section, keys in groupby(known_keys(), key=lambda key: key.section):
        written = [key for key in keys if section not in decided and _has_default(key)]
        if written:
            lines += [f"# {section}:", *(f"#   {line}" for line in _lines(written))]
    lines.append(
        '# spark: {spark.master: "local[2]", spark.driver.memory: 512m}    # settings of Spark as they are'
    )
    return "\n".join(lines) + "\n"


def _decided(draft: Draft, schema_file: str) -> dict[str, dict[str, Any]]:
    table: dict[str, Any] = {"name": draft.name, "path": draft.path, "type": draft.type}
    table |= {"record_key": list(draft.record_key), "partition": list(draft.partition)}
    if draft.ordering is not None:
        table["ordering"] = draft.ordering
    table["schema"] = schema_file
    index: dict[str, Any] = {"kind": "partitioned"} if draft.is_partitioned else {}
    if draft.shards is not None:
        index["shards"] = draft.shards
    if index:
        table["index"] = index
    read: dict[str, Any] = {"topics": list(draft.topics), "format": draft.format}
    if draft.framed:
        read["framing"] = "confluent"
    if draft.registry:
        read["schema_registry"] = dict(draft.registry)
    if draft.protobuf:
        read["protobuf"] = dict(draft.protobuf)
    if draft.position is not None:
        read["debezium"] = {"ordering": draft.position}
    if draft.delete_field is not None:
        read["delete_field"] = draft.delete_field
    # Every table needs a state folder of its own, for its caches and its addresses (run.json).
    state = {"path": f"./state/{draft.name}"}
    sections = {"table": table, "input": read, "kafka": dict(draft.kafka), "state": state}
    if draft.services:
        sections["services"] = dict(draft.services)
    return sections | ({"hoodie": dict(draft.hoodie)} if draft.hoodie else {})


def _undecided(section: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Lines for the keys of a section that the draft does not set."""
    keys = [key for key in known_keys() if key.section == section and _has_default(key)]
    return _lines(key for key in keys if _head(key) not in content)


def _lines(keys: Iterable[KnownKey]) -> Iterator[str]:
    for head, group in groupby(keys, key=_head):
        yield _commented(head, list(group))


def _head(key: KnownKey) -> str:
    return key.key.partition(".")[0]


def _has_default(key: KnownKey) -> bool:
    """Whether the key is shown with its default. Nested keys are not, except those of `index` and of table
    services: alone, without the part that they belong to, they make no sense.
    """
    is_whole = key.section == "table_services" or "." not in key.key.removeprefix("index.")
    return key.default is not None and is_whole


def _commented(head: str, keys: list[KnownKey]) -> str:
    """One line with `key: default` and the key's description; nested keys are in braces, and have none."""
    nested = {key.key.partition(".")[2]: key.default for key in keys}
    text = f"{head}: {_inline(keys[0].default if '' in nested else nested)}"
    comments: list[str] = []
    for key in keys:
        others = ", ".join(choice for choice in key.choices if choice != key.default)
        about = "" if "." in key.key else key.text.replace("None", "Left out")
        parts = (f"or {others}" if others else "", about)
        comments += [part for part in parts if part]
    return f"{text}    # {'; '.join(comments)}" if comments else text


def _scalar(text: str) -> str:
    return _inline(text)


def _inline(value: Any) -> str:
    """A value in YAML's flow style on one line."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...").strip()
