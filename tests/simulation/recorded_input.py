"""The record of an input topic in the table's folder, as a coordinator writes it."""

from __future__ import annotations

from tests.simulation.commit_path import CommitPath
from tidemark.epoch_protocol.input_topics import InputTopic, InputTopics, encode_input_topics


def recorded_input(path: CommitPath, name: str) -> bytes:
    state = path.client.admin().topic_states([name])[name]
    return encode_input_topics(InputTopics({name: InputTopic(state.partitions, state.partitions, state.id)}))
