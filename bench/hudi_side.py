"""Hudi's side of the benchmark: `bench.hudi_baseline` in processes of its own, with a Kafka of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.process_memory import MemorySampler, merged_peaks
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform import child

_COMPACTING_BATCHES: Final = 10
_ROLE: Final = "Hudi on Spark"

Say = Callable[[str], None]


def measure(options: Any, folder: Path, say: Say) -> dict[str, Any]:
    """Without compaction what Tidemark is measured with; then one kind of batch at its default pace."""
    shares = ",".join(map(str, options.moves))
    lookups = str(options.lookups) if "lookups" in options.parts else "0"
    main = ["--batches", _list(options.batches), "--moves", shares, "--repeat", str(options.repeat)]
    report = run_baseline(options, folder, [*main, "--lookups", lookups], say)
    if not options.quick:
        compacting = ["--batches", "10000", "--moves", "0", "--compaction", "on"]
        compacting += ["--repeat", str(_COMPACTING_BATCHES), "--lookups", "0"]
        other = run_baseline(options, folder, compacting, say)
        report["cases"] += other["cases"]
        report["peak_mib"] = merged_peaks([report["peak_mib"], other["peak_mib"]])
    return report


def run_baseline(options: Any, folder: Path, arguments: Sequence[str], say: Say) -> dict[str, Any]:
    """One `bench.hudi_baseline` with these arguments; returns its report."""
    folder.mkdir(exist_ok=True)
    out, log = folder / "hudi.json", folder / "hudi.log"
    common = ["--keys", str(options.keys), "--seed", str(options.seed), "--kafka", "embedded"]
    command = [sys.executable, "-m", "bench.hudi_baseline", *common, "--work", str(folder), "--out", str(out)]
    process = child.spawn([*command, *arguments], log)
    try:
        with MemorySampler(lambda: {_ROLE: [process.pid]}) as memory:
            shown = log.stat().st_size
            while not child.wait_for_exit(process, SystemClock(), 1.0):
                shown = _show_new(log, shown, say)
        if process.returncode != 0:
            raise RuntimeError(f"bench.hudi_baseline failed:\n{log.read_text(errors='replace')[-4000:]}")
    finally:
        child.kill(process, SystemClock())
    report: dict[str, Any] = json.loads(out.read_bytes())
    return {**report, "peak_mib": memory.peaks_mib()}


def _show_new(log: Path, shown: int, say: Say) -> int:
    """Hands the log's new whole lines of progress on; returns up to where it was read."""
    with log.open("rb") as file:
        file.seek(shown)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    for line in whole.decode(errors="replace").splitlines():
        if line.startswith("hudi: "):
            say(line)
    return shown + len(whole)


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
