"""Pictures of simulated launches: Chrome's trace events (Perfetto, chrome://tracing open them), and SVG.

One lane a task and one an engine, CTA by CTA; waits are shaded. Takes the events of `mimw.sim.tile.timeline`, knows nothing of how they came.
"""

from __future__ import annotations

import json
import linecache
from html import escape
from pathlib import Path
from typing import Any

from mimw.diagnostics import CompilationError
from mimw.sim.agents import Event
from mimw.sim.tile.timeline import Timeline, details, lane_name, lanes

_LANE, _LEFT, _WIDTH, _TOP = 22, 170, 1400, 24
_COLOURS = {"run": "#4c78a8", "wait": "url(#waits)", "engine": "#f58518"}
_ENGINES = {"tensor core": "#54a24b", "TMA load": "#f58518", "TMA store": "#b279a2", "cp.async": "#e45756"}
_SHOWN = 4  # CTAs of a launch in a picture


class Launch:
    """A launch that was timed."""

    __slots__ = ("kernel", "timeline")

    def __init__(self, kernel: str, timeline: Timeline) -> None:
        self.kernel = kernel
        self.timeline = timeline


def write(path: str, launches: list[Launch]) -> None:
    """Write a picture: ``.json`` or ``.svg`` by the file's name."""
    text = svg(launches) if check(path) == ".svg" else json.dumps(chrome_trace(launches)) + "\n"
    Path(path).write_text(text)


def check(path: str) -> str:
    """The kind of picture that a file's name asks for; `CompilationError` for one that there is not."""
    kind = Path(path).suffix
    if kind not in (".json", ".svg"):
        raise CompilationError("sim-timeline", f"a timeline is written as .json or .svg, not {path!r}")
    return kind


def chrome_trace(launches: list[Launch]) -> dict[str, Any]:
    """The trace-event format: a process a CTA, a thread a lane, complete events ("X") in microseconds; cycles and lines in `args`."""
    out: list[dict[str, Any]] = []
    process = 0
    for number, launch in enumerate(launches):
        by_group = lanes(launch.timeline.events)
        per_us = launch.timeline.speeds.ghz * 1e3
        threads: dict[tuple[str, str], tuple[int, int]] = {}
        for group, names in by_group.items():
            process += 1
            out.append(_named("process_name", process, 0, f"{launch.kernel}, launch {number}, {group}"))
            for lane, name in enumerate(names):
                threads[group, name] = (process, lane)
                out.append(_named("thread_name", process, lane, lane_name(name, group)))
                out.append(
                    {"name": "thread_sort_index", "ph": "M", "pid": process, "tid": lane, "args": {"sort_index": lane}}
                )
        for e in launch.timeline.events:
            pid, tid = threads[e.group, e.agent]
            out.append(
                {
                    "name": _label(e),
                    "cat": e.kind,
                    "ph": "X",
                    "ts": e.start / per_us,
                    "dur": (e.end - e.start) / per_us,
                    "pid": pid,
                    "tid": tid,
                    "args": {**details(e), "what": e.what, "source": _source(e)},
                    **({"cname": "grey"} if e.kind == "wait" else {}),
                }
            )
    return {"traceEvents": out, "displayTimeUnit": "ns"}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _label(e: Event) -> str:
    """What an event is called in few words: a task's work by its line's text, the rest by what it is."""
    if e.kind == "run":
        return _source(e) or e.what
    return e.what.split(":")[0].removesuffix(f" of {e.group}")


def _source(e: Event) -> str:
    return linecache.getline(e.loc.file, e.loc.line).strip()


# -- SVG ----------------------------------------------------------------------------------------------------------------


def svg(launches: list[Launch]) -> str:
    """A picture of the first CTAs of every launch, one below the other, on one scale."""
    end = max((e.end for launch in launches for e in launch.timeline.events), default=1.0) or 1.0
    body: list[str] = []
    y = _TOP
    for number, launch in enumerate(launches):
        for group, names in list(lanes(launch.timeline.events).items())[:_SHOWN]:
            speeds = launch.timeline.speeds
            title = f"{launch.kernel}, launch {number}, {group}, {speeds.name}"
            body.append(f'<text x="4" y="{y + 14}" class="title">{escape(title)}</text>')
            y += _LANE
            events = [e for e in launch.timeline.events if e.group == group]
            for name in names:
                body.append(f'<text x="4" y="{y + 15}">{escape(lane_name(name, group))}</text>')
                body.append(f'<rect x="{_LEFT}" y="{y + 2}" width="{_WIDTH}" height="{_LANE - 4}" class="lane"/>')
                body += [_box(e, y, end) for e in events if e.agent == name]
                y += _LANE
            y += _axis(body, y, end)
    return _page(body, y)


def _box(e: Event, y: int, end: float) -> str:
    x, width = _LEFT + e.start / end * _WIDTH, max(0.4, (e.end - e.start) / end * _WIDTH)
    colour = _ENGINES.get(e.agent, _COLOURS[e.kind])
    style = (
        "box late" if e.agent in _ENGINES and e.agent != "tensor core" else "box"
    )  # jobs under way together show through
    told = f"{e.what}\nline {e.loc.line}: {_source(e)}\n{e.start:.0f} to {e.end:.0f}: {e.end - e.start:.0f} cycles"
    shape = f'<rect x="{x:.2f}" y="{y + 3}" width="{width:.2f}" height="{_LANE - 6}" fill="{colour}" class="{style}">'
    return f"{shape}<title>{escape(told)}</title></rect>"


def _axis(body: list[str], y: int, end: float) -> int:
    """Ticks below a CTA's lanes; the height that they take."""
    step = 10.0 ** (len(str(int(end))) - 1)
    while end / step < 6:
        step /= 2
    for i in range(int(end / step) + 1):
        x = _LEFT + i * step / end * _WIDTH
        body.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}" stroke="#666"/>')
        body.append(f'<text x="{x:.1f}" y="{y + 16}" class="tick">{i * step:.0f}</text>')
    body.append(f'<text x="4" y="{y + 16}" class="tick0">cycles</text>')
    return _LANE + 12


def _page(body: list[str], height: int) -> str:
    width = _LEFT + _WIDTH + 30
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
            "<style>text{font:12px sans-serif}.title{font-weight:bold}.tick{text-anchor:middle;fill:#666}.tick0{fill:#666}"
            ".lane{fill:#f4f4f4}.box{stroke:#fff;stroke-width:.3}.late{opacity:.6}</style>",
            '<defs><pattern id="waits" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            '<rect width="6" height="6" fill="#e2e2e2"/><rect width="2" height="6" fill="#bbb"/></pattern></defs>',
            '<rect width="100%" height="100%" fill="#fff"/>',
            *body,
            "</svg>\n",
        ]
    )
