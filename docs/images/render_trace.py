#!/usr/bin/env python3
"""Draws part of a trace as an SVG for the documentation: one row per track, nested spans below their parents.

usage: render_trace.py TRACE.json OUTPUT.svg [--from MICROSECONDS] [--to MICROSECONDS] [--tracks PATTERN] [--title TEXT]

Times count from the first event of the trace. Draws the tracks whose whole names match the regular expression, all of
them by default. To explore a trace, open it in Perfetto.
"""

import argparse
import collections
import html
import json
import re

WIDTH, LEFT, RIGHT, TOP = 1200, 170, 16, 64
LINE, GAP, GROUP_GAP = 15, 4, 12
COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#86bcb6", "#d37295"]
FIXED = {"wait": "#e15759", "idle": "#d4d4d4"}

Span = collections.namedtuple("Span", "name begin end depth arguments")


def read(path):
    """The tracks that are not empty, as (process, name) -> spans, in the order of the trace."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    processes, threads, orders, tracks = {}, {}, {}, collections.defaultdict(list)
    stacks = collections.defaultdict(list)
    for event in events:
        key = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                threads[key] = event["args"]["name"]
            elif event["name"] == "thread_sort_index":
                orders[key] = event["args"]["sort_index"]
        elif event["ph"] == "B":
            stacks[key].append(event)
        elif event["ph"] == "E" and stacks[key]:
            begin = stacks[key].pop()
            arguments = {**begin.get("args", {}), **event.get("args", {})}
            tracks[key].append(Span(begin["name"], begin["ts"], event["ts"], len(stacks[key]), arguments))
    keys = sorted(tracks, key=lambda key: (key[0], orders.get(key, 0)))
    return {(processes.get(key[0], str(key[0])), threads.get(key, str(key[1]))): tracks[key] for key in keys}


def tick(length):
    """The distance of the axis ticks: a round number that gives about ten of them."""
    step = 1.0
    while length / step > 10:
        step *= 2.5 if f"{step:g}"[0] == "2" else 2
    return step


def draw(tracks, begin, end, title):
    zero = min(span.begin for spans in tracks.values() for span in spans)
    if end is None:
        end = max(span.end for spans in tracks.values() for span in spans) - zero
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)

    def x(time):
        return LEFT + (min(max(time - zero, begin), end) - begin) * scale

    colours, shapes, y, process = dict(FIXED), [], TOP, None
    for (owner, name), spans in tracks.items():
        shown = [s for s in spans if s.end - zero > begin and s.begin - zero < end]
        if not shown:
            continue
        if owner != process:
            y += GROUP_GAP if process is not None else 0
            shapes.append(f'<text class="owner" x="8" y="{y + 11}">{html.escape(owner)}</text>')
            y += LINE + 2
            process = owner
        height = LINE * (1 + max(span.depth for span in shown))
        shapes.append(f'<rect class="row" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{height}"/>')
        shapes.append(f'<text x="20" y="{y + 11}">{html.escape(name)}</text>')
        for span in sorted(shown, key=lambda s: (s.depth, s.begin)):
            colour = colours.setdefault(span.name, COLOURS[(len(colours) - len(FIXED)) % len(COLOURS)])
            left, width, top = x(span.begin), max(x(span.end) - x(span.begin), 0.6), y + span.depth * LINE
            details = ", ".join(f"{k} {v}" for k, v in span.arguments.items())
            text = f"{span.name}: {span.end - span.begin:.2f} us" + (f" ({details})" if details else "")
            shapes.append(
                f'<rect x="{left:.1f}" y="{top + 1}" width="{width:.1f}" height="{LINE - 2}" fill="{colour}">'
                f"<title>{html.escape(text)}</title></rect>"
            )
            if width > 7 * len(span.name):
                shapes.append(f'<text class="in" x="{left + 3:.1f}" y="{top + 11}">{html.escape(span.name)}</text>')
        y += height + GAP
    bottom = y + 6

    axis, step, at = [], tick(end - begin), 0
    while at * step <= end - begin:
        position = LEFT + at * step * scale
        axis.append(f'<line x1="{position:.1f}" y1="{TOP - 6}" x2="{position:.1f}" y2="{bottom}"/>')
        axis.append(f'<text class="tick" x="{position:.1f}" y="{TOP - 10}">{at * step:g} us</text>')
        at += 1
    legend, left = [], LEFT
    for name, colour in colours.items():
        matching = (span for spans in tracks.values() for span in spans if span.name == name)
        if any(span.end - zero > begin and span.begin - zero < end for span in matching):
            legend.append(f'<rect x="{left}" y="{bottom + 8}" width="10" height="10" fill="{colour}"/>')
            legend.append(f'<text x="{left + 14}" y="{bottom + 17}">{html.escape(name)}</text>')
            left += 30 + 7 * len(name)
    style = (
        "text{font:11px sans-serif;fill:#333}.owner{font-weight:bold}.in{fill:#fff;pointer-events:none}"
        ".tick{text-anchor:middle;fill:#777}.title{font-size:14px}.row{fill:#f4f4f4}line{stroke:#ddd}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" role="img">',
            f"<style>{style}</style>",
            f'<rect width="{WIDTH}" height="{bottom + 30}" fill="#fff"/>',
            f'<text class="title" x="8" y="20">{html.escape(title)}</text>',
            *axis,
            *shapes,
            *legend,
            "</svg>\n",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("output")
    parser.add_argument("--from", type=float, default=0, dest="begin")
    parser.add_argument("--to", type=float, default=None, dest="end")
    parser.add_argument("--tracks", default=".*", metavar="PATTERN")
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    tracks = {key: spans for key, spans in read(options.trace).items() if re.fullmatch(options.tracks, key[1])}
    picture = draw(tracks, options.begin, options.end, options.title)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
