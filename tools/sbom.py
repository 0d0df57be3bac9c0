"""`make sbom`: what Tidemark is made of, as CycloneDX JSON: the Python packages of .venv, and the jars.

The Python side is cyclonedx-py's; the jars are added from `jars.lock`, with the checksums that they are
fetched by. Which set a jar belongs to (kafka, spark-kafka, hudi-spark) is a property of it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

_JAR: Final = re.compile(r"(?P<name>.+)-(?P<version>\d+\.\d[\w.]*(?:-\d+)?)\.jar")


def main(arguments: list[str] | None = None) -> int:
    """Writes the bill of materials."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tool", type=Path, help="the cyclonedx-py to run")
    parser.add_argument("python", type=Path, help="the interpreter of the environment to list")
    parser.add_argument("jars", type=Path, help="jars.lock")
    parser.add_argument("out", type=Path, help="the file to write")
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    command = [str(options.tool), "environment", str(options.python), "--output-reproducible"]
    command += ["--pyproject", "pyproject.toml", "--output-format", "JSON"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"sbom: {done.stderr}\n")
        return 1
    document = json.loads(done.stdout)
    python = len(document["components"])
    jars = jar_components(options.jars.read_text("utf-8"))
    document["components"] += jars
    options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.stderr.write(f"sbom: {options.out}: {python} Python packages, {len(jars)} jars\n")
    return 0


def jar_components(lock: str) -> list[dict[str, Any]]:
    """One component a jar; one that several sets have stands once, with all their names."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lock.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        jar_set, file, sha256 = line.split()
        component = found.setdefault((file, sha256), _component(file, sha256))
        component["properties"].append({"name": "tidemark:jar-set", "value": jar_set})
    return list(found.values())


def _component(file: str, sha256: str) -> dict[str, Any]:
    named = _JAR.fullmatch(file)
    name, version = (named["name"], named["version"]) if named else (file.removesuffix(".jar"), "")
    return {
        "type": "library",
        "bom-ref": f"jar:{file}:{sha256[:12]}",
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
        "properties": [],
    }


if __name__ == "__main__":
    sys.exit(main())
