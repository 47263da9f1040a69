"""mscclpp-plan on files of all formats: makes, verifies, converts, shows and simulates; mistakes are answered."""

import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROGRAM = sys.argv[1]


def run(*arguments, fails=False):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode != 0) == fails, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stderr if fails else done.stdout


names = [line.split()[0] for line in run("list").splitlines()]
assert "all_reduce_ring" in names and len(names) > 20, names

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    plan = folder / "ring.json"
    run("make", "all_reduce_ring", "--ranks", 4, "--in-place", "--instances", 2, "--out", plan)
    assert json.loads(plan.read_text())["collective"] == "allreduce"
    assert "is proven: 4 ranks" in run("verify", plan)

    # Through all formats and back.
    for source, target in (("ring.json", "ring.plan"), ("ring.plan", "ring.xml"), ("ring.xml", "again.json")):
        run("convert", folder / source, folder / target)
        assert "is proven" in run("verify", folder / target), target
    shown = run("show", folder / "ring.plan")
    assert shown.startswith('plan "all_reduce_ring" allreduce ranks 4') and "transfer 1 at" in shown, shown
    run("convert", plan, folder / "ring.svg", "--bytes", "64K")
    xml.etree.ElementTree.parse(folder / "ring.svg")

    # Twice the time on half the bandwidth, nearly.
    topology = folder / "topology.json"

    def simulated(gigabytes):
        topology.write_text(json.dumps({"memory": {"us": 1, "GBps": gigabytes}}))
        rows = run("simulate", plan, "--bytes", "1K,256M", "--topology", topology).splitlines()[1:]
        return [float(row.split()[1]) for row in rows]

    fast, slow = simulated(100), simulated(50)
    assert len(fast) == 2 and fast[0] < fast[1] and 1.8 < slow[1] / fast[1] < 2.2, (fast, slow)

    # Executed on CPU ranks by mscclpp-perf, whose arguments may follow.
    for form in (plan, folder / "ring.xml", folder / "ring.plan"):
        ran = run("run", form, "--device", "cpu", "--datatype", "float", "--sizes", "1000,4K")
        assert "all results are correct" in ran and "plan all_reduce_ring" in ran and " 4096 " in ran, ran
    ran = run("run", plan, "--device", "cpu")
    assert "all results are correct" in ran and " 1048576 " in ran, ran
    measured = run("bench", plan, "--device", "cpu", "--sizes", "1K", "--calls", 3, "--repeats", 2)
    assert "3 calls per measurement, median of 2" in measured and "all results are correct" in measured, measured
    assert "--no-such" in run("bench", plan, "--no-such", fails=True)
    run("make", "all_to_next", "--ranks", 2, "--ranks-per-node", 1, "--out", folder / "custom.plan")
    assert "custom collective" in run("bench", folder / "custom.plan", fails=True)

    # What is wrong is said, with its place.
    (folder / "wrong.plan").write_text("\n".join(line for line in shown.splitlines() if "wait" not in line) + "\n")
    assert "rank 0" in run("verify", folder / "wrong.plan", fails=True)
    (folder / "wrong.json").write_text('{"name": 1}')
    assert "key " in run("verify", folder / "wrong.json", fails=True)
    assert "cannot be read" in run("verify", folder / "none.json", fails=True)
    (folder / "empty.json").write_text("\n")
    assert "empty.json is empty" in run("verify", folder / "empty.json", fails=True)
    assert "there is no plan" in run("make", "all_reduce_star", fails=True)
    assert "name: is missing" in run("make", fails=True)
    topology.write_text('{"wire": {}}')
    assert 'key "wire" is unknown' in run("simulate", plan, "--topology", topology, fails=True)
