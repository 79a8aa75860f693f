"""The scaler of the first listing, in NumPy as written, against the rule `listing` of `fp8lab run auto-scaling`.

Usage: auto_scaler_oracle.py PATH_OF_FP8LAB

The same gradients go to both: mu must be the same at every step, where nothing saturates (mu grows
to 4 without a halving in 3000 steps) and where spikes halve it.
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("NumPy is not installed: ./dev setup")
    sys.exit(77)

FP8_MAX = np.float32(448.0)
STEPS = 3001  # the last row shows mu after 3000 updates
failures = []


class FP8AutoScaler:
    """As listed, without the cast that follows: it does not touch mu."""

    def __init__(self, threshold=0.001):
        self.mu = 1.0
        self.threshold = threshold
        self.steps_below = 0

    def scale_gradients(self, grad):
        scaled = grad * np.float32(self.mu)
        overflow_ratio = np.mean(np.abs(scaled) >= FP8_MAX)
        if overflow_ratio > self.threshold:
            self.mu /= 2.0
            self.steps_below = 0
        else:
            self.steps_below += 1
            if self.steps_below >= 1000:
                self.mu *= 2.0 ** (1 / 1000)


def check(name, passed, got=""):
    print(f"{'pass' if passed else 'FAIL'} {name} {got}")
    if not passed:
        failures.append(name)


def run_tool(tool, folder, gradients, changes):
    np.save(folder / "gradients.npy", gradients)
    assignments = ["dynamics_rules=listing", f"gradients={folder / 'gradients.npy'}", f"steps={STEPS}",
                   "elements=32", "ranks=2", "repeats=1", *changes]
    command = [tool, "run", "auto-scaling", "--quick", "--no-plots", "--out", folder]
    for assignment in assignments:
        command += ["--set", assignment]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(folder / "auto-scaling" / "dynamics.csv") as file:
        return list(csv.DictReader(file))


def simulate(gradients, sizes, threshold=0.001):
    scaler = FP8AutoScaler(threshold)
    mu = []
    for size in sizes:
        mu.append(scaler.mu)
        scaler.scale_gradients(gradients * np.float32(size))
    return mu


def compare(tool, name, gradients, changes):
    """The trajectory of mu, the same from both."""
    with tempfile.TemporaryDirectory() as folder:
        rows = run_tool(tool, Path(folder), gradients, changes)
    got = [float(row["mu"]) for row in rows]
    expected = simulate(gradients, [float(row["size"]) for row in rows])
    # The tool takes 2^(1/1000) by exp2, the listing by a power: a last place may differ.
    wrong = [i for i, (a, b) in enumerate(zip(expected, got)) if abs(a - b) > 1e-12 * a]
    first = f"step {wrong[0]}: expected {expected[wrong[0]]}, got {got[wrong[0]]}" if wrong else ""
    check(f"{name}: mu at {len(got)} steps", len(got) == STEPS and not wrong, first)
    halvings = sum(b < a for a, b in zip(got, got[1:]))
    other = simulate(gradients, [float(row["size"]) for row in rows], threshold=0.01)
    return got, halvings, other != expected


def main(tool):
    rng = np.random.default_rng(5)
    spread = np.exp(rng.normal(0.0, 1.5, (4, 4096))) * rng.choice([-1.0, 1.0], (4, 4096))
    gradients = (spread / np.abs(spread).max()).astype(np.float32)

    quiet = ["drift_octaves=0", "drift_back_octaves=0"]
    mu, halvings, _ = compare(tool, "amax 1", gradients, quiet)
    check("amax 1: mu grows to 4.0 with 0 halvings", halvings == 0 and f"{mu[-1]:.1f}" == "4.0", (mu[-1], halvings))

    spikes = ["drift_octaves=3", "drift_back_octaves=-8", "turn_at=0.3", "spike=10", "spike_period=1150", "spike_steps=3"]
    mu, halvings, depends = compare(tool, "amax 100", gradients * np.float32(100.0), spikes)
    grows = any(b > a for a, b in zip(mu, mu[1:]))
    check("amax 100: mu is halved and grows", halvings > 2 and grows, (halvings, mu[-1]))
    check("amax 100: another threshold would be seen", depends)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).resolve())))
