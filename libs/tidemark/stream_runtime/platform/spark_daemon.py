"""Starts PySpark's worker daemon without archives on its import path.

Spark puts `pyspark.zip`, `py4j-….zip` and its own core jar on the workers' path, and every task makes Python
read the directories of all three again (`importlib.invalidate_caches`). What the workers need is installed
as plain files. Named to Spark by `spark.python.daemon.module`; figures: docs/adr/0002-dependencies.md.
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
    """Removes the archives from the import path, together with the importers that were made for them.

    An interpreter without PySpark as plain files (an executor of a cluster) keeps those that hold it.
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
    # run_module and not an import: the daemon's work stands under its own `__main__`.
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
