"""Services start without pandas; who wants it gets it. Likewise what reads certificates. In a process of its
own: imports are for ever.
"""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

use_arrow_alone()
use_arrow_alone()
import tidemark.commit_coordinator.main
import tidemark.index_assigner.main
import tidemark.table_verification.verify
import numpy as np
import pyarrow as pa

made = [pa.array(values) for values in ([1, None], ["a"], [{"a": [1.5]}], np.arange(3))]
assert [array.to_pylist() for array in made] == [[1, None], ["a"], [{"a": [1.5]}], [0, 1, 2]]
assert "pandas" not in sys.modules
frame = pa.table({"a": [1, 2]}).to_pandas()
assert "pandas" in sys.modules
assert list(frame["a"]) == [1, 2]
"""

IMPORTS = """
import sys
import tidemark.commit_coordinator.main
import tidemark.index_assigner.main
import tidemark.index_assigner.shuffle.careful_child
import tidemark.stream_writer.java_kafka
import tidemark.stream_writer.tasks
import tidemark.table_verification.verify

assert not {"pandas", "cryptography"} & sys.modules.keys()
"""


def test_no_module_makes_an_array_when_it_is_imported():
    """A process whose imports stand at the top hides pandas when it begins to work. Nor does one read
    certificates: without TLS a service starts without the library for them.
    """
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_arrow_looks_for_pandas_only_when_it_is_asked_for_it():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
