#!/usr/bin/env python3
"""Draws what mscclpp-perf --json measured: for each collective the latency and the bus bandwidth over the size, one
curve for each implementation, as SVG.

usage: plot.py [--output FOLDER] FILE...

A file has lines of JSON; other lines are left out. Where a file has one implementation at one size several times, the
median is drawn. The same input gives the same bytes.
"""

import argparse
import collections
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What has a figure of its own: all curves of a figure are comparable.
FIGURE_KEYS = ("collective", "mode", "ranks", "type", "op", "root", "inPlace")
USUAL = {"mode": "steady", "inPlace": False, "root": 0, "op": "sum"}
OURS = "mscclpp"
KIB = 1024


def read(paths):
    """{figure: {implementation: {bytes: [(us, busbw)]}}}, where a figure is a tuple of its FIGURE_KEYS."""
    figures = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for path in paths:
        for number, text in enumerate(path.read_text().splitlines(), 1):
            if not text.startswith("{"):
                continue
            try:
                line = json.loads(text)
                figure = tuple(line.get(key, USUAL.get(key)) for key in FIGURE_KEYS)
                samples = figures[figure][line["implementation"]][line["bytes"]]
                samples.append((line["us"], line["busbw"]))
            except (json.JSONDecodeError, KeyError) as error:
                sys.exit(f"{path}:{number}: not a measurement of mscclpp-perf --json: {error!r}")
    return figures


def medians(curve):
    """Sizes in order, and the medians of their times and bandwidths. Times of 0 or less are left out."""
    points = []
    for size, samples in sorted(curve.items()):
        microseconds, bandwidth = (statistics.median(values) for values in zip(*samples))
        if microseconds > 0:
            points.append((size, microseconds, bandwidth))
    return points


def size_name(size, _position=None):
    for unit, name in ((KIB**3, "GiB"), (KIB**2, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} B"


def file_name(figure, figures):
    """The collective, and what of the rest is not the same in all figures, or is unusual."""
    words = []
    for at, key in enumerate(FIGURE_KEYS):
        value = figure[at]
        peers = {other[at] for other in figures if other[0] == figure[0]}
        if key == "collective":
            words.append(value)
        elif len(peers) > 1 or (key in USUAL and value != USUAL[key]):
            special = {"ranks": f"{value}_ranks", "inPlace": "in_place" if value else "out_of_place"}
            words.append(special.get(key, str(value)))
    return "_".join(words) + ".svg"


def title(figure):
    of = dict(zip(FIGURE_KEYS, figure))
    words = [f"{of['collective']}, {of['ranks']} ranks, {of['type']}"]
    if of["collective"] in ("all_reduce", "reduce_scatter", "reduce"):
        words.append(of["op"])
    if of["inPlace"]:
        words.append("in place")
    if of["mode"] != USUAL["mode"]:
        words.append(f"mode {of['mode']}")
    return ", ".join(words)


def in_order(curves):
    """This library first, then its algorithms and its peers by name."""
    return sorted(curves, key=lambda name: (name != OURS, name.startswith("NCCL"), name))


def draw(pyplot, figure, curves, path):
    drawing, (latency, bandwidth) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name in in_order(curves):
        points = medians(curves[name])
        sizes = [size for size, _, _ in points]
        style = {"label": name, "marker": "o", "markersize": 3, "linewidth": 2 if name == OURS else 1.2}
        latency.plot(sizes, [microseconds for _, microseconds, _ in points], **style)
        bandwidth.plot(sizes, [busbw for _, _, busbw in points], **style)
    for axes, label in ((latency, "time (us)"), (bandwidth, "bus bandwidth (GB/s)")):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(size_name)
        axes.tick_params(axis="x", rotation=45)
        axes.set_xlabel("size")
        axes.set_ylabel(label)
        axes.grid(True, which="major", linewidth=0.4)
    latency.set_yscale("log")
    bandwidth.set_ylim(bottom=0)
    latency.legend()
    drawing.suptitle(title(figure))
    drawing.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(drawing)


def load_pyplot():
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py needs matplotlib: python3 -m pip install matplotlib, or apt-get install python3-matplotlib")
    matplotlib.use("svg")
    # Element names are hashes with a salt, which is random by default; text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "mscclpp", "svg.fonttype": "none"})
    from matplotlib import pyplot

    return pyplot


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/figures", metavar="FOLDER")
    options = parser.parse_args()
    pyplot = load_pyplot()
    figures = read(options.files)
    if not figures:
        sys.exit("no measurements in " + ", ".join(map(str, options.files)) + ": write them with mscclpp-perf --json")
    options.output.mkdir(parents=True, exist_ok=True)
    for figure, curves in figures.items():
        path = options.output / file_name(figure, figures)
        draw(pyplot, figure, curves, path)
        print(path)


if __name__ == "__main__":
    main()
