"""Starts PySpark's worker daemon without archives on its import path.

Spark puts `pyspark.zip`, `py4j-….zip` and its core jar on the workers' path, and each task makes Python read
the directories of all three again (`importlib.invalidate_caches`). The workers do not need them, because
PySpark is installed as plain files. `spark.python.daemon.module` names this module to Spark. Measurements:
docs/adr/0002-dependencies.md.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from typing import Final

_ARCHIVES: Final = (".zip", ".jar")
_NEEDED: Final = ("pyspark", "py4j")


def drop_archives() -> None:
    """Removes the archives from the import path, and their importers from Python's cache.

    If this interpreter has PySpark or py4j only as an archive (an executor of a cluster), that archive stays.
    """
    dropped = [entry for entry in sys.path if Path(entry).suffix in _ARCHIVES]
    for entry in dropped:
        sys.path.remove(entry)
    for entry in [entry for entry in sys.path_importer_cache if Path(entry).suffix in _ARCHIVES]:
        del sys.path_importer_cache[entry]
    for package in _NEEDED:
        if importlib.util.find_spec(package) is None:
            sys.path += [entry for entry in dropped if Path(entry).name.startswith(package)]


if __name__ == "__main__":
    drop_archives()
    # run_module and not an import: the daemon does its work under `if __name__ == "__main__"`.
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
