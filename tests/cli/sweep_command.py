"""`fp8lab sweep` and `merge` as a user runs them: interrupted, resumed, sharded, refused."""

import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

FP8LAB = sys.argv[1]
SWEEP = [
    "sweep", "outlier", "--quick", "--axis", "tiles=16,32,64", "--axis", "sigma=0.1:0.8:+0.1",
    "--repeat", "2", "--set", "elements=512", "--set", "repeats=1",
    "--set", "outliers_per_decade=1", "--set", "containment_elements=1024",
    "--set", "published_repeats=1", "--set", "product_k=16", "--set", "product_outputs=1",
]  # fmt: skip
failures = 0


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what)


def fp8lab(*arguments):
    return subprocess.run([FP8LAB, *arguments], capture_output=True, text=True)


def duration_as_expected(seconds, text):
    """Seconds below 90, minutes below 90, then hours; `seconds` is known to two digits."""
    unit, size, digits = (" s", 1, 0.0) if seconds < 90 else (" min", 60, 0.5) if seconds < 5400 else (" h", 3600, 0.05)
    if not text.endswith(unit) or not re.fullmatch(r"[\d.]+(?:e-\d+)?", text.removesuffix(unit)):
        return False
    return abs(float(text.removesuffix(unit)) * size - seconds) <= 0.11 * seconds + digits * size


def estimates():
    """The time that a dry run foretells, from seconds to days: only the number of points grows."""
    points = 2
    for seconds in (10, 60, 85, 120, 300, 2000, 5000, 6500, 80000, None):
        arguments = ["--quick", "--axis", "curve_points=10,20", "--repeat", str(max(points // 2, 1)), "--threads", "1"]
        said = fp8lab("sweep", "walkthrough", *arguments, "--dry-run").stdout.splitlines()[-1:]
        found = re.fullmatch(r"(\d+) points, (\S+) s per point \(\d measured\), about (.*) on 1 thread", "".join(said))
        check(found, f"an estimate: {said}")
        if not found:
            return
        total, each = int(found[1]) * float(found[2]), float(found[2])
        # Not where the two digits of a point's time leave the unit open.
        if not any(abs(total / limit - 1) < 0.06 for limit in (90, 5400)):
            check(duration_as_expected(total, found[3]), f"about {total:.3g} s: {found[3]}")
        points = round((seconds or 1) / each)


def contents(folder):
    return {file.name: file.read_bytes() for file in pathlib.Path(folder).iterdir()}


def differences(found, expected):
    """The names of files that only one has, or that are not the same."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


def killed_and_resumed(root, whole, seconds):
    """kill -9 at random moments of sweeps of so many seconds, then resume each to the end."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    landed = 0
    sweeps, kills = 5, 4
    for folder in (root / f"killed{i}" for i in range(sweeps)):
        for _ in range(kills):
            process = subprocess.Popen(
                [FP8LAB, *SWEEP, "--resume", "--out", str(folder)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(rng.uniform(0.0, seconds / 2))
            process.send_signal(signal.SIGKILL)
            landed += process.wait() == -signal.SIGKILL
        resumed = fp8lab(*SWEEP, "--resume", "--out", str(folder))
        check(resumed.returncode == 0, f"resuming: {resumed.stderr}")
        found = contents(folder)
        found.pop("points.jsonl.damaged", None)
        wrong = differences(found, whole)
        check(not wrong, f"the same bytes after kill -9 (seed {seed}, {folder.name}): {wrong}")
    check(landed > sweeps * kills // 4, f"kills that landed: {landed} of {sweeps * kills}")


def sharded(root, whole):
    shards = [root / f"shard{i}" for i in range(3)]
    for i, shard in enumerate(shards):
        ran = fp8lab(*SWEEP, "--shard", f"{i}/3", "--out", str(shard))
        check(ran.returncode == 0, f"shard {i}: {ran.stderr}")
    few = fp8lab("merge", *map(str, shards[:2]), "-o", str(root / "few"))
    check(few.returncode == 2 and "none with point 2" in few.stderr, f"two of three shards: {few.stderr}")
    check(not (root / "few").exists(), "nothing is left of a merge that cannot be")
    merged = fp8lab("merge", *map(str, shards), "-o", str(root / "merged"))
    check(merged.returncode == 0, f"merge: {merged.stderr}")
    check(contents(root / "merged") == whole, "the same bytes from shards")


def damaged_and_resumed(root, whole):
    """What is wrong with the log of a sweep that continues is told, line by line, and run again."""
    *lines, last = whole["points.jsonl"].decode().splitlines(keepends=True)
    bad = "no row of a sweep\n"
    points = [i for i, line in enumerate(lines) if line.startswith('{"point":')]  # the others describe tables
    without = lambda *some: "".join(bad if i in [points[n] for n in some] else line for i, line in enumerate(lines))
    for name, text, told in (
        ("torn", without() + last[:11], ["the last line was incomplete (11 bytes) and was removed"]),
        ("bad", without(0) + last, ["1 damaged lines, kept in points.jsonl.damaged; their points were run again"]),
        ("both", without(3, 30) + last[:5], ["the last line was incomplete (5 bytes) and was removed",
                                             "2 damaged lines, kept in points.jsonl.damaged; their points were run again"]),
    ):
        folder = root / name
        folder.mkdir()
        for file, data in whole.items():
            (folder / file).write_bytes(data)
        (folder / "points.jsonl").write_text(text)
        done = fp8lab(*SWEEP, "--resume", "--out", str(folder))
        said = [line for line in done.stderr.splitlines() if line.startswith("fp8lab: ")]
        check(said == [f"fp8lab: {folder}/points.jsonl: {line}" for line in told], f"{name}: {said}")
        resumed = 48 - text.count(bad) - (not text.endswith("\n"))
        first = f"{folder}: 48 of 48 points done, {resumed} of them before"
        check(done.stdout.splitlines()[:1] == [first], f"{name}: {done.stdout[:200]}, expected {first}")
        found = contents(folder)
        kept = found.pop("points.jsonl.damaged", b"").decode()
        check(kept.count(bad) == text.count(bad), f"{name}: damaged lines that are kept: {kept}")
        check(not differences(found, whole), f"{name}: the same bytes: {differences(found, whole)}")


def one_point_that_fails(root):
    """A limit that no point keeps."""
    done = fp8lab("sweep", "outlier", "--quick", "--axis", "tiles=16", "--set", "elements=512", "--point-seconds", "0.001",
                  "--out", str(root / "failing"))
    check(done.returncode == 1, f"a failed point: exit {done.returncode}")
    check(": 1 of 1 points done, 1 failed\n" in done.stdout, f"one point failed, and it said {done.stdout}")


def refusals(root):
    for arguments, expected in [
        (["sweep", "outlier", "--axis", "nothing=1"], "a parameter"),
        (["sweep", "outlier", "--axis", "sigma=big"], "a real number"),
        (["sweep", "outlier", "--axis", "sigma=2:1:+1"], "increasing"),
        (["sweep", "outlier", "--shard", "3/3"], "INDEX from 0"),
        (["sweep", "nothing"], "one of"),
        (["sweep", "outlier", "--repeat", "0"], "at least 1"),
        (["merge", str(root / "none"), "-o", str(root / "out")], "points.jsonl"),
    ]:
        ran = fp8lab(*arguments, "--out", str(root / "refused")) if arguments[0] == "sweep" else fp8lab(*arguments)
        check(ran.returncode == 2 and expected in ran.stderr, f"{arguments}: {ran.returncode} {ran.stderr}")
        check(not (root / "refused").exists(), f"{arguments}: nothing written")


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        start = time.monotonic()
        ran = fp8lab(*SWEEP, "--out", str(root / "whole"), "--json")
        seconds = time.monotonic() - start
        check(ran.returncode == 0, f"sweep: {ran.stderr}")
        check(json.loads(ran.stdout)["points"] == 48, f"points: {ran.stdout}")
        whole = contents(root / "whole")
        check("sweep.json" in whole and "points.jsonl" in whole, f"files: {sorted(whole)}")

        one = fp8lab(*SWEEP, "--threads", "1", "--out", str(root / "one"))
        check(one.returncode == 0 and contents(root / "one") == whole, "the same bytes on one thread")
        command = json.loads(whole["sweep.json"])["command"].replace("fp8lab", FP8LAB, 1)
        again = subprocess.run(f"{command} --out {root / 'again'}", shell=True, capture_output=True)
        check(again.returncode == 0 and contents(root / "again") == whole, "sweep.json's command repeats it")

        grid = root / "grid.toml"
        grid.write_text(
            'experiment = "outlier"\nquick = true\nrepeat = 2\n[set]\nelements = 512\nrepeats = 1\n'
            "outliers_per_decade = 1\ncontainment_elements = [1024]\npublished_repeats = 1\n"
            "product_k = [16]\nproduct_outputs = 1\n"
            '[axes]\ntiles = [16, 32, 64]\nsigma = "0.1:0.8:+0.1"\n'
        )
        filed = fp8lab("sweep", str(grid), "--out", str(root / "filed"))
        check(filed.returncode == 0, f"grid file: {filed.stderr}")
        check(contents(root / "filed") == whole, "the same bytes from a grid file")

        estimates()
        dry = fp8lab(*SWEEP, "--dry-run", "--out", str(root / "dry"))
        check("48 points" in dry.stdout and not (root / "dry").exists(), f"dry run: {dry.stdout}")
        twice = fp8lab(*SWEEP, "--out", str(root / "whole"))
        check(twice.returncode == 2 and "--resume" in twice.stderr, f"twice: {twice.stderr}")
        killed_and_resumed(root, whole, seconds)
        damaged_and_resumed(root, whole)
        sharded(root, whole)
        refusals(root)
        one_point_that_fails(root)
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
