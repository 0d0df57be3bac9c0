"""Many seeds, one after the other or in parallel with a word about the progress; what to say of failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from typing import Final, TextIO, TypeAlias

from tests.simulation.world.drawn import drawn
from tests.simulation.world.report import describe
from tests.simulation.world.script import Script
from tests.simulation.world.shrink import shrink
from tests.simulation.world.world import run_script
from tidemark.stream_runtime.clock import Clock

Write: TypeAlias = Callable[[int], Script]
"""Seed -> script."""

CHUNK: Final = 50
_TASKS_A_WORKER: Final = 40
_SAY_EVERY_S: Final = 10.0


def without_folders(write: Write, seed: int) -> Script:
    """The script of the seed, in a world whose storage has no folders."""
    script = write(seed)
    return Script(replace(script.setup, store="objects"), script.events, seed)


def run_seeds(first: int, count: int, write: Write = drawn) -> list[int]:
    """The seeds that fail, of the given ones."""
    failed = []
    for seed in range(first, first + count):
        try:
            if run_script(write(seed)).violations:
                failed.append(seed)
        except Exception:
            # The harness itself broke: that is found by running the seed again, alone.
            failed.append(seed)
    return failed


def run_range(
    first: int, count: int, jobs: int, stop_after: int, out: TextIO, clock: Clock, write: Write = drawn
) -> list[int]:
    """As `run_seeds`, in parallel; says how far it is, and stops after so many failures."""
    started_s, said_s, failed, done = clock.monotonic_s(), clock.monotonic_s(), list[int](), 0
    chunks = ((start, min(CHUNK, first + count - start)) for start in range(first, first + count, CHUNK))
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, max_tasks_per_child=_TASKS_A_WORKER) as pool:
        waiting = [(s, n, pool.submit(run_seeds, s, n, write)) for s, n in islice(chunks, 4 * jobs)]
        while waiting:
            start, size, future = waiting.pop(0)
            failed += future.result()
            done += size
            now_s = clock.monotonic_s()
            if now_s - said_s >= _SAY_EVERY_S or not waiting:
                said_s = now_s
                rate = done / max(now_s - started_s, 1e-9)
                left_s = (count - done) / rate if rate else 0.0
                print(
                    f"seeds {first}..{start + size - 1}: {done} of {count}, {rate:.1f}/s, "
                    f"{left_s:.0f} s left, failed: {failed or 'none'}",
                    file=out,
                    flush=True,
                )
            if len(failed) >= stop_after:
                for _, _, each in waiting:
                    each.cancel()
                break
            waiting += [(s, n, pool.submit(run_seeds, s, n, write)) for s, n in islice(chunks, 1)]
    return failed


def report(seeds: Sequence[int], shrinks: bool, write: Write = drawn) -> Iterator[str]:
    """What to say of failed seeds."""
    for seed in seeds:
        script = write(seed)
        events = len(script.events)
        if shrinks:
            short, outcome = shrink(script)
            yield describe(short, outcome, events)
        else:
            yield describe(script, run_script(script))
