"""The overlays of deploy/kubernetes as lists of objects: by kustomize if there is one, else by what is here.

`KUSTOMIZE` names the program, else it is looked for on PATH. What is here knows of it what our files use:
resources, namespace, labels, images' names and JSON patches, and refuses everything else. It makes no config
maps but their names, since nothing that is asked here depends on the hashes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

Object = dict[str, Any]
FOLDER: Final = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
OVERLAYS: Final = ("trusted-network", "secured")
_KNOWN: Final = {
    *("apiVersion", "kind", "namespace", "labels", "resources", "configMapGenerator", "images", "patches"),
}


def kustomize() -> str | None:
    """The program, None where there is none."""
    return shutil.which(os.environ.get("KUSTOMIZE", "kustomize"))


def build(overlay: str) -> list[Object]:
    """All objects of the overlay."""
    program = kustomize()
    if program is None:
        return _assemble(FOLDER / "overlays" / overlay)
    command = [program, "build", str(FOLDER / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return list(yaml.safe_load_all(done.stdout))


def config_file(overlay: str, name: str) -> Path:
    """The file that the config map `table` has under that name: the overlay's own, else the base's."""
    own = FOLDER / "overlays" / overlay / name
    return own if own.is_file() else FOLDER / "base" / name


def _assemble(folder: Path) -> list[Object]:
    described: Object = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := described.keys() - _KNOWN:
        raise AssertionError(f"{folder}: {unknown} is more than is known here: set KUSTOMIZE")
    objects: list[Object] = []
    for name in described.get("resources", []):
        path = folder / name
        objects += _assemble(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for patch in described.get("patches", []):
        operations = yaml.safe_load(patch.get("patch") or (folder / patch["path"]).read_text())
        for each in objects:
            if re.fullmatch(patch["target"]["kind"], each["kind"]) and (
                patch["target"].get("name", each["metadata"]["name"]) == each["metadata"]["name"]
            ):
                _apply(each, operations)
    for generator in described.get("configMapGenerator", []):
        if generator.get("behavior") != "merge":
            data = {name: (folder / name).read_text() for name in generator.get("files", [])}
            data |= dict(each.split("=", 1) for each in generator.get("literals", []))
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}}
            objects.append({**made, "data": data})
    for each in objects:
        if "namespace" in described and each["kind"] != "Namespace":
            each["metadata"]["namespace"] = described["namespace"]
        for labels in described.get("labels", []):
            _label(each, labels["pairs"])
    return objects


def _apply(target: Object, operations: list[Object]) -> None:
    for operation in operations:
        *way, last = operation["path"].strip("/").split("/")
        at: Any = target
        for step in way:
            at = at[int(step)] if isinstance(at, list) else at[step]
        if operation["op"] == "add" and isinstance(at, list) and last == "-":
            at.append(deepcopy(operation["value"]))
        elif operation["op"] == "add":
            at[last] = deepcopy(operation["value"])
        elif operation["op"] == "remove":
            # As kustomize: what is not there cannot be removed.
            del at[last]
        else:
            raise AssertionError(f"{operation['op']} is more than is known here: set KUSTOMIZE")


def _label(each: Object, pairs: dict[str, str]) -> None:
    spec = each.get("spec", {})
    holders = [each["metadata"].setdefault("labels", {})]
    if "template" in spec:
        holders += [spec["template"]["metadata"]["labels"], spec["selector"]["matchLabels"]]
    elif each["kind"] == "Service":
        holders.append(spec["selector"])
    elif each["kind"] == "PodDisruptionBudget":
        holders.append(spec["selector"]["matchLabels"])
    elif each["kind"] == "NetworkPolicy":
        holders.append(spec["podSelector"]["matchLabels"])
    for holder in holders:
        holder.update(pairs)
