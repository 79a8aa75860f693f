"""What commands make of times, under a clock whose looks lie apart by known, unequal steps.

Usage: clock_command.py PATH_OF_FP8LAB, with FP8LAB_EVEN_CLOCK: the library of even_clock.cpp

Each look at the clock is a step of STEPS after the one before, in turn, so every duration is known but for the step at
which the command begins: of all of them one must explain every figure.
"""

import json
import math
import os
import pty
import re
import statistics
import tempfile
from pathlib import Path

from checking import check, finish, run

STEPS = (24, 12, 42, 18, 54, 30, 66, 36, 78, 48, 6)  # milliseconds; with these the second of two clocks of test_cast is the faster one


def under(steps, code, *arguments, **options):
    environment = {**os.environ, "LD_PRELOAD": os.environ["FP8LAB_EVEN_CLOCK"], "FP8LAB_CLOCK_STEPS": ",".join(map(str, steps))}
    done = run(*arguments, env=environment, **options)
    check(f"{' '.join(map(str, arguments))}: exit {done.returncode}", code is None or done.returncode == code, f"{done.stdout}{done.stderr}")
    return done


def bench(name, *arguments):
    said = json.loads(under(STEPS, 0, "bench", name, *arguments, "--json").stdout)
    return {"target": said["ceilings"]["target"], **said[name]}


class Looks:
    """The clock from a look on."""

    def __init__(self, at):
        self.at = at

    def look(self):
        self.at += 1
        return STEPS[self.at % len(STEPS)] / 1e3

    def time(self):
        """Two looks around the work."""
        self.look()
        return self.look()

    def work(self, threads=0):
        """`seconds_of`: looks at both clocks, and then at one; `threads`: of the processor's time."""
        self.look()
        wall = self.look()
        end = self.look()
        return (wall + end) / threads if threads else end


class Timing:
    def __init__(self, seconds):
        self.seconds = list(seconds)
        ordered = sorted(self.seconds)
        last = len(ordered) - 1
        self.median, self.best = statistics.median(ordered), ordered[0]
        self.spread = (ordered[last * 3 // 4] - ordered[last // 4]) / self.median


def explained(what, rows, predict):
    """Whether what `predict` makes of one of the first looks is every figure of the rows."""
    closest = None
    for at in range(len(STEPS)):
        wanted = predict(Looks(at))
        wrong = [f"{key} of row {i}: expected {value}, got {row.get(key)}" for i, (row, of) in enumerate(zip(rows, wanted, strict=True))
                 for key, value in of.items() if not math.isclose(row.get(key, math.nan), value, rel_tol=1e-6, abs_tol=1e-12)]
        if closest is None or len(wrong) < len(closest):
            closest = wrong
    check(f"{what}: of {len(rows)} rows", not closest, "\n".join(closest[:8]))


def test_cast():
    count = 1 << 20
    result = bench("cast", "--mebi", 1, "--repetitions", 5)
    of_data = [row for row in result["encode"] if row["name"].endswith(("half of them NaN", "binary32 subnormals"))]
    encode = [row for row in result["encode"] if row not in of_data]

    def figures(looks, elements, sizes, ceiling=0):
        seconds = [[] for _ in sizes]
        for _ in range(5):
            for one in seconds:
                one.append(looks.time())
        timings = [Timing(one) for one in seconds]
        best = timings[ceiling]
        return [{"gelements": elements / t.median * 1e-9, "best_gelements": elements / t.best * 1e-9,
                 "gbs": size * elements / t.median * 1e-9, "spread": t.spread, "best_ratio": best.best / t.best,
                 "ratio": statistics.median(c / s for c, s in zip(best.seconds, t.seconds))} for size, t in zip(sizes, timings)]

    def predict(looks):
        size = lambda rows: [0 if row["name"].startswith("draws") else 5 for row in rows]
        found = figures(looks, count, size(encode))
        for _ in range(2):
            found += figures(looks, count, [5] * 3)[1:]
        found += figures(looks, count // 16, size(result["baselines"]))
        return found + figures(looks, count, size(result["decode"]), 1) + in_cache(looks)

    def in_cache(looks):
        """The shortest of each: of 75 times of a thousand calls, and of 7 of 1e7 multiplications in three cycles each, before and after."""
        clock = lambda: 3e7 / min(looks.time() for _ in range(7)) * 1e-9
        speed = lambda: cache["elements"] * 1000 / min(looks.time() for _ in range(75)) * 1e-9
        before, encoded = clock(), speed()
        faster = max(before, clock())
        return [{"clock_ghz": faster, "encode_gelements": encoded, "encode_gelements_at_3ghz": encoded * 3 / faster,
                 "decode_gelements": speed()}]

    cache = result["in_cache"]
    explained("casts", encode + of_data + result["baselines"] + result["decode"] + [cache], predict)


def test_quantize():
    threads, size = 2, 16 * 384
    options = ["--rows", 16, "--k", 384, "--repetitions", 6, "--clock", "cpu", "--threads", threads]
    result = bench("quantize", *options, "--recipe", "te-current", "--recipe", "deepgemm")

    def predict(looks):
        rows, copies = [], []
        for row in result["recipes"]:
            pairs = [(looks.work(threads), looks.work(threads)) for _ in range(6)]
            moved = row["gbs"] / row["gelements"]  # of an element: known elsewhere
            copied, timing = Timing(a for a, _ in pairs), Timing(b for _, b in pairs)
            copies += copied.seconds
            rows.append(({"gelements": size / timing.median * 1e-9, "copy_gbs": 4 * size / copied.median * 1e-9, "spread": timing.spread,
                          "ratio": moved / 4 * copied.median / timing.median}, moved / 4 / timing.best))
        every = Timing(copies)
        all_rows = [{**of, "best_ratio": share * every.best} for of, share in rows]
        return [*all_rows, {"copy_gbs": 4 * size / every.median * 1e-9, "best_copy_gbs": 4 * size / every.best * 1e-9}]

    explained("recipes under the processor's clock", [*result["recipes"], result], predict)


def test_train():
    result = bench("train", "--width", 32, "--hidden", 32, "--layers", 1, "--length", 8, "--sequences", 3, "--repetitions", 6,
                   "--recipe", "bf16", "te-current")

    def predict(looks):
        seconds = [[looks.work() for _ in result["rows"]] for _ in range(6)]
        timings = [Timing(of) for of in zip(*seconds)]
        fp32 = min(timings[0].median, timings[1].median)
        return [{"median_seconds": t.median, "spread": t.spread, "tokens_per_second": 24 / t.median,
                 "ratio_to_eigen": t.median / timings[0].median, "ratio_to_fp32": t.median / fp32} for t in timings]

    explained("steps", result["rows"], predict)


def test_gemm():
    shapes = ((24, 16, 64), (8, 40, 96))
    result = bench("gemm", *[w for shape in shapes for w in ("--shape", "x".join(map(str, shape)))], "--repetitions", 7)
    rows = result["rows"]

    def predict_with(lanes):
        def until(looks, once):
            found, total = [], 0.0
            while len(found) < 7 or total < 0.3:
                found.append(once(looks))
                total += found[-1][0] if isinstance(found[-1], tuple) else found[-1]
            return found

        def fma(looks, seconds, threads=1):
            """Seconds of one FMA."""
            return looks.work() / (lanes * 12 * math.floor(max(1e4, seconds * 2.5e8)) * threads)

        def pair(looks):
            seconds = looks.work()
            return seconds, fma(looks, seconds)

        def of(looks, shape):
            products = math.prod(shape)
            pairs = until(looks, pair)
            timing, unit = Timing(s for s, _ in pairs), Timing(f for _, f in pairs)
            eigen = Timing(until(looks, Looks.work))
            columns = min(max(500_000 // shape[2], 1), min(32, shape[1]))
            reference = min(max(500_000 // (shape[2] * columns), 1), shape[0]) * columns * shape[2] / looks.time()
            speedups, of_units = [], []
            for _ in range(7):
                one, two = looks.work(), looks.work()
                speedups.append(one / two)
                alone = 1 / fma(looks, one)
                of_units.append(1 / fma(looks, two, 2) / alone)
            speedup, of_unit = Timing(speedups), Timing(of_units)
            return {"median_seconds": timing.median, "best_seconds": timing.best, "spread": timing.spread, "repetitions": len(pairs),
                    "gmacs": products / timing.median * 1e-9, "fma_gmacs_between": 1e-9 / unit.median,
                    "ratio_to_fma": products / timing.median * unit.median, "ratio_to_fma_best": products / timing.best * unit.best,
                    "b_gbs": shape[1] * shape[2] / timing.median * 1e-9,
                    "b_ratio_to_stream_read": shape[1] * shape[2] / timing.median / result["stream_read_gbs"] * 1e-9,
                    "reference_gmacs": reference * 1e-9, "eigen_fp32_gmacs": products / eigen.median * 1e-9,
                    "two_thread_speedup": speedup.median, "two_thread_speedup_spread": speedup.spread,
                    "fma_two_thread_speedup": of_unit.median, "fma_two_thread_speedup_spread": of_unit.spread}

        return lambda looks: [of(looks, shape) for shape in shapes]

    lanes = {"scalar": 1, "avx2": 8, "avx512": 16, "neon": 4}
    explained("products", rows, predict_with(lanes[result["target"]]))


def test_dry_run():
    """A point is measured as long as the time allows, of the first, the last and the one between; the estimate has three units."""
    def said(steps, values, *more):
        done = under(steps, 0, "sweep", "walkthrough", "--quick", "--axis", f"curve_points={values}", "--dry-run", *more)
        return done.stdout.splitlines()[-1]

    for step, values, more, text in (
        (600, "10,20,30", ["--threads", 2], "3 points, 0.8 s per point (3 measured), about 1.2 s on 2 threads"),
        (1000, "10:17", ["--threads", 1], "8 points, 1.3 s per point (3 measured), about 11 s on 1 thread"),
        (1001, "10:17", ["--threads", 1], "8 points, 1.3 s per point (3 measured), about 11 s on 1 thread"),
        (1501, "10:17", ["--threads", 1], "8 points, 2.3 s per point (2 measured), about 18 s on 1 thread"),
        (3001, "10:39", ["--threads", 4], "30 points, 6 s per point (1 measured), about 45 s on 4 threads"),
        (3000, "10:39", ["--threads", 2], "30 points, 4.5 s per point (2 measured), about 68 s on 2 threads"),
        (40000, "10", ["--threads", 1], "1 point, 80 s per point (1 measured), about 80 s on 1 thread"),
        (44990, "10", ["--threads", 1], "1 point, 90 s per point (1 measured), about 90 s on 1 thread"),
        (45000, "10", ["--threads", 1], "1 point, 90 s per point (1 measured), about 2 min on 1 thread"),
        (45000, "10:69", ["--threads", 1, "--shard", "1/2"], "30 points, 90 s per point (1 measured), about 45 min on 1 thread"),
        (45000, "10:68", ["--threads", 1], "59 points, 90 s per point (1 measured), about 88 min on 1 thread"),
        (45000, "10:69", ["--threads", 1], "60 points, 90 s per point (1 measured), about 1.5 h on 1 thread"),
        (45000, "10:69", ["--threads", 1, "--repeat", 7], "420 points, 90 s per point (1 measured), about 10.5 h on 1 thread"),
    ):  # fmt: skip
        got = said([step], values, *more)
        check(f"steps of {step} ms, {values}, {more}\n{got}\nexpected\n{text}", got == text)


def test_training_steps():
    """A line for every tenth of the steps, with the rate and the time left at that step; a look at the clock a step."""
    shape = ["--length", 8, "--width", 16, "--layers", 1, "--heads", 2, "--hidden", 16, "--sequences", 3]
    seconds = (500, 1000, 4000)
    with tempfile.TemporaryDirectory() as place:
        call = ["train", "--steps", 25, "--threads", 1, *shape, "--learning-rate", 2, "--checkpoint", f"{place}/checkpoint", "--save-every", 5]
        # The first run ends where its loss has risen, and the second one continues from its last checkpoint.
        first = 0
        for code, more in ((1, ["--stop-when", 1e-6]), (None, [])):
            done = under(seconds, code, *call, *more)
            lines = [line for line in done.stderr.splitlines() if line.startswith("step ")]
            last = int(re.search(r"(\d+) of 25 steps done", done.stdout)[1])
            shown = [step for step in range(first + 1, last + 1) if step % 2 == 0]
            closest = None
            for at in range(3):
                at_step = lambda n: sum(seconds[(at + 1 + i) % 3] for i in range(n)) / 1e3
                wanted = [rf"step {step}/25  loss \d+\.\d{{4}}  {(step - first) * 24 / at_step(step - first):.0f} tokens/s  "
                          rf"{at_step(step - first) / (step - first) * (25 - step):.0f} s left" for step in shown]
                wrong = [(line, text) for line, text in zip(lines, wanted) if not re.fullmatch(text, line)]
                if closest is None or len(wrong) < len(closest):
                    closest = wrong
            check(f"steps {first} to {last}", len(lines) == len(shown) > 1 and not closest, (lines, closest[:2]))
            first = (last - 1) // 5 * 5
            check("the second run has steps left", 0 < first < 23 or code is None, done.stdout)


def test_rate_of_ranks():
    """Tokens are those of all ranks; each step takes half a second."""
    shape = ["--length", 8, "--width", 16, "--layers", 1, "--heads", 2, "--hidden", 16, "--sequences", 3]
    done = under([500], 0, "train", "--steps", 10, "--threads", 1, *shape, "--ranks", 2)
    wanted = [f"step {step}/10  loss \\d\\.\\d{{4}}  96 tokens/s  {(10 - step) / 2:.0f} s left" for step in range(1, 11)]
    lines = done.stderr.splitlines()
    check("two ranks", len(lines) == 10 and all(map(re.fullmatch, wanted, lines)), "\n".join(lines))


def test_resumed_rate():
    """The rate of a sweep that continues is that of its own points: one, a second a look at the clock."""
    with tempfile.TemporaryDirectory() as place:
        call = ["sweep", "walkthrough", "--quick", "--axis", "curve_points=10:33:+1", "--threads", 1, "--out", f"{place}/grid"]
        check("a sweep", run(*call).returncode == 0)
        log = Path(place, "grid", "points.jsonl")
        log.write_bytes(log.read_bytes()[:-9])  # the last point is gone
        ours, its = pty.openpty()
        under([1000], 0, *call, "--resume", stderr=its)
        os.close(its)
        text = os.read(ours, 1 << 16).decode()
        os.close(ours)
        rates = re.findall(r"24 of 24, (\S+) points/s, 0 s left", text)
        check(f"a rate of at most a point a second: {rates}", rates and all(0 < float(rate) <= 1 for rate in rates), text)


if "FP8LAB_EVEN_CLOCK" not in os.environ:
    print("no FP8LAB_EVEN_CLOCK: nothing to test")
else:
    for test in (test_cast, test_quantize, test_train, test_gemm, test_dry_run, test_training_steps, test_rate_of_ranks, test_resumed_rate):
        test()
finish("clock")
