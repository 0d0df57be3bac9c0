"""Tables that earlier commits recorded (tests/golden/recorded), unpacked to be carried on or to be read."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.platform import broker_files

RECORDINGS: Final = Path(__file__).parent / "golden" / "recorded"
SERVICE_RECORDINGS: Final = Path(__file__).parent / "golden" / "recorded_services"


def recordings() -> list[str]:
    """The names of all recordings, each that of the commit that made it."""
    return sorted(facts.parent.name for facts in RECORDINGS.glob("*/facts.json"))


def service_recordings() -> list[str]:
    """As `recordings`, of tables that lived with all table services."""
    return sorted(facts.parent.name for facts in SERVICE_RECORDINGS.glob("*/facts.json"))


@dataclass(frozen=True)
class Recording:
    """`folder`: configuration, table and state, as the killed services left them; `expected`: what the
    recorded code read in topics and caches; `facts`: facts.json.
    """

    folder: Path
    expected: Path
    facts: dict[str, Any]

    @property
    def config(self) -> Path:
        return self.folder / "accounts.yaml"

    @property
    def half_made(self) -> Path:
        """The folder of a table whose making was killed; older recordings have none."""
        return self.folder.with_name("half-made")

    @property
    def table(self) -> Path:
        return self.folder / "warehouse" / "accounts"

    def new_ports(self) -> None:
        """The embedded Kafka gets ports that are free here; without it the recorded ones would be tried."""
        kafka = self.folder / "state" / "kafka"
        recorded = broker_files.load_cluster(kafka)
        assert recorded is not None
        cluster = broker_files.new_cluster(len(recorded.nodes), SystemIds(), recorded.cluster_id)
        broker_files.save_cluster(kafka, cluster)


def unpack(name: str, place: Path) -> Recording:
    """Unpacks below `place`."""
    with tarfile.open(RECORDINGS / name / "recording.tar.xz") as archive:
        # Modes are kept: state folders that others can write to are refused.
        archive.extractall(place, filter="tar")
    facts = json.loads((RECORDINGS / name / "facts.json").read_text())
    return Recording(place / "table", place / "expected", facts)
