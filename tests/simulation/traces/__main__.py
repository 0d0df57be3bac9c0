"""Records the traces anew: `python -m tests.simulation.traces [NAME …]`; without a name all of them."""

from __future__ import annotations

import sys

from tests.simulation.traces.trace_file import FOLDER, recorded_anew, trace_files

for file in [FOLDER / f"{name}.txt" for name in sys.argv[1:]] or trace_files():
    file.write_text(recorded_anew(file.read_text("utf-8")), "utf-8")
