"""`make sbom`: what Tidemark is made of, as CycloneDX JSON: the Python packages of .venv, and the jars.

The Python side is cyclonedx-py's; jars are added from `jars.lock`, with the checksums that they are fetched
by, and from inside the installed pyspark, with the checksums that they have. Where a jar comes from (kafka,
spark-kafka, hudi-spark, pyspark) is a property of it. Names of group and licence are what the jar itself says
(its Maven descriptors, its manifest); a jar that says nothing of its licence is listed without.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import zipfile
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
    bundled = bundled_jars(pyspark_jars(options.python))
    document["components"] += bundled
    options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    licensed = sum("licenses" in each for each in bundled)
    sys.stderr.write(
        f"sbom: {options.out}: {python} Python packages, {len(jars)} jars that are fetched, {len(bundled)} "
        f"inside pyspark ({licensed} say their licence)\n"
    )
    return 0


def pyspark_jars(python: Path) -> Path:
    """The folder of the jars that the environment's pyspark contains."""
    ask = "import importlib.util as u; print(u.find_spec('pyspark').submodule_search_locations[0])"
    done = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()) / "jars"


def bundled_jars(folder: Path) -> list[dict[str, Any]]:
    """One component for each jar of the folder."""
    return [_bundled(jar) for jar in sorted(folder.glob("*.jar"))]


def _bundled(jar: Path) -> dict[str, Any]:
    component = _component(jar.name, hashlib.sha256(jar.read_bytes()).hexdigest())
    component["properties"].append({"name": "tidemark:jar-set", "value": "pyspark"})
    with zipfile.ZipFile(jar) as archive:
        group, licences = _said_by(archive, component["name"])
    if group:
        component["group"] = group
        component["purl"] = f"pkg:maven/{group}/{component['name']}@{component['version']}"
    if licences:
        component["licenses"] = [{"license": {"name": name}} for name in licences]
    return component


def _said_by(archive: zipfile.ZipFile, name: str) -> tuple[str, list[str]]:
    """Group and licences by the jar's own Maven descriptor, else by its manifest."""
    manifest = _read(archive, "META-INF/MANIFEST.MF").replace("\r\n", "\n").replace("\n ", "")
    in_manifest = re.findall(r"^Bundle-License: *(.+)$", manifest, re.MULTILINE)
    poms = [
        each
        for each in archive.namelist()
        if re.fullmatch(rf"META-INF/maven/[^/]+/{re.escape(name)}/pom.xml", each)
    ]
    if not poms:
        return "", in_manifest
    pom = _read(archive, poms[0])
    block = re.search(r"<licenses>(.*?)</licenses>", pom, re.DOTALL)
    named = re.findall(r"<name>\s*(.*?)\s*</name>", block[1], re.DOTALL) if block else []
    return poms[0].split("/")[2], named or in_manifest


def _read(archive: zipfile.ZipFile, name: str) -> str:
    try:
        return archive.read(name).decode("utf-8", "replace")
    except KeyError:
        return ""


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
