"""Shows the demo's progress on stderr: a live panel on a terminal, else a plain line every few seconds.

The caller fills ``DemoStats`` and calls ``update``, which alone draws. Nothing here calls a service, reads a
clock or starts a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidemark.demo.text import duration, grouped, share, sparkline

PLAIN_INTERVAL_S: Final = 2.0
PLAIN_WIDTH: Final = 110
_HISTORY: Final = 32


@dataclass(frozen=True)
class CacheTierStats:
    """One tier of the index: the number of look-ups that it answered, and of keys that it holds (None:
    unknown).
    """

    name: str
    answered: int
    entries: int | None = None


@dataclass(frozen=True)
class DemoStats:
    """The numbers of one moment. Counts are totals since the start, rates are those of the last seconds.

    ``records_total``: records of the whole stream; ``lag_records``: records sent and not committed;
    latencies: from the plan of an epoch to its commit, in milliseconds, None before the first commit.
    """

    phase: str
    elapsed_s: float
    records_total: int = 0
    sent: int = 0
    sent_per_s: float = 0.0
    committed: int = 0
    committed_per_s: float = 0.0
    lag_records: int = 0
    epochs_committed: int = 0
    epochs_in_flight: int = 0
    last_instant: str | None = None
    commit_latency_ms_last: float | None = None
    commit_latency_ms_p50: float | None = None
    commit_latency_ms_p99: float | None = None
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    dead_letters: int = 0
    tiers: tuple[CacheTierStats, ...] = ()


class DemoView:
    """Shows ``DemoStats`` while the demo runs, as a context manager. ``live``: draw a panel, else print
    lines.
    """

    def __init__(self, console: Console, live: bool) -> None:
        self.console = console
        # The panel must not redirect stdout, where the caller may print a JSON document.
        self._live = (
            Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False) if live else None
        )
        self._sent: deque[float] = deque(maxlen=_HISTORY)
        self._committed: deque[float] = deque(maxlen=_HISTORY)
        self._latencies: deque[float] = deque(maxlen=_HISTORY)
        self._epochs_seen = 0
        self._phase_shown = ""
        self._next_line_s = 0.0

    def __enter__(self) -> DemoView:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Prints a line, above the panel if there is one."""
        self.console.print(Text(text))

    def update(self, stats: DemoStats) -> None:
        """Draws the panel again; without one, prints a line if the phase changed or
        ``PLAIN_INTERVAL_S`` passed.
        """
        self._remember(stats)
        if self._live:
            self._live.update(self._panel(stats), refresh=True)
        elif stats.phase != self._phase_shown or stats.elapsed_s >= self._next_line_s:
            self._phase_shown, self._next_line_s = stats.phase, stats.elapsed_s + PLAIN_INTERVAL_S
            self.console.print(Text(plain_line(stats)), soft_wrap=True)

    def _remember(self, stats: DemoStats) -> None:
        self._sent.append(stats.sent_per_s)
        self._committed.append(stats.committed_per_s)
        if stats.epochs_committed > self._epochs_seen and stats.commit_latency_ms_last is not None:
            self._latencies.append(stats.commit_latency_ms_last)
        self._epochs_seen = stats.epochs_committed

    def _panel(self, stats: DemoStats) -> Panel:
        flow = Table.grid(padding=(0, 2))
        flow.add_column(style="bold", width=9)
        for justify in ("left", "right", "right", "left"):
            flow.add_column(justify=justify)
        total = stats.records_total
        flow.add_row(*_flow_row("sent", stats.sent, total, stats.sent_per_s, self._sent))
        flow.add_row(*_flow_row("committed", stats.committed, total, stats.committed_per_s, self._committed))
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="bold", width=9)
        facts.add_column()
        facts.add_row("lag", _lag(stats))
        facts.add_row("epochs", Text.assemble(_epochs(stats), "  ", (sparkline(self._latencies), "cyan")))
        facts.add_row("rows", _rows(stats))
        facts.add_row("index", _tiers(stats) or "–")
        facts.add_row("instant", stats.last_instant or "–")
        title = f"Tidemark · {stats.phase} · {duration(stats.elapsed_s * 1000)}"
        return Panel(Group(flow, Text(), facts), title=title, title_align="left", border_style="blue")


def open_view(stream: TextIO, environment: Mapping[str, str]) -> DemoView:
    """The view for ``stream``: a live panel on a terminal, else plain lines.

    ``NO_COLOR`` (any text) and ``TERM=dumb`` in ``environment`` ask for plain lines.
    """
    live = stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    if live:
        return DemoView(Console(file=stream, highlight=False), live=True)
    console = Console(file=stream, highlight=False, no_color=True, force_terminal=False, width=PLAIN_WIDTH)
    return DemoView(console, live=False)


def plain_line(stats: DemoStats) -> str:
    """All of ``stats`` in one line."""
    parts = [
        f"{stats.elapsed_s:6.1f} s  {stats.phase}",
        f"sent {grouped(stats.sent)} of {grouped(stats.records_total)} ({grouped(stats.sent_per_s)}/s)",
        f"committed {grouped(stats.committed)} ({grouped(stats.committed_per_s)}/s)",
        f"lag {_lag(stats)}",
        f"epochs {_epochs(stats)}",
        f"rows {_rows(stats)}",
    ]
    if tiers := _tiers(stats):
        parts.append(f"index {tiers}")
    return " | ".join(parts)


def _flow_row(
    name: str, count: int, total: int, per_s: float, history: deque[float]
) -> tuple[str, ProgressBar, str, str, Text]:
    whole = max(total, 1)
    bar = ProgressBar(total=whole, completed=min(count, whole), width=24)
    amount, rate = f"{grouped(count)} / {grouped(total)}", f"{grouped(per_s)}/s"
    return name, bar, amount, rate, Text(sparkline(history), "cyan")


def _lag(stats: DemoStats) -> str:
    """The records sent and not committed, and how long they take at the current rate."""
    if stats.committed_per_s <= 0:
        return f"{grouped(stats.lag_records)} records"
    behind = duration(1000 * stats.lag_records / stats.committed_per_s)
    return f"{grouped(stats.lag_records)} records, {behind}"


def _epochs(stats: DemoStats) -> str:
    text = f"{grouped(stats.epochs_committed)} committed, {stats.epochs_in_flight} in flight"
    if stats.commit_latency_ms_p50 is None:
        return text
    slow = duration(stats.commit_latency_ms_p99)
    return f"{text}, latency p50 {duration(stats.commit_latency_ms_p50)} p99 {slow}"


def _rows(stats: DemoStats) -> str:
    return (
        f"{grouped(stats.inserts)} inserts, {grouped(stats.updates)} updates, "
        f"{grouped(stats.deletes)} deletes, {grouped(stats.dead_letters)} dead letters"
    )


def _tiers(stats: DemoStats) -> str:
    whole = sum(tier.answered for tier in stats.tiers)
    parts = []
    for tier in stats.tiers:
        held = "" if tier.entries is None else f" ({grouped(tier.entries)} keys)"
        parts.append(f"{tier.name} {share(tier.answered, whole)}{held}")
    return ", ".join(parts)
