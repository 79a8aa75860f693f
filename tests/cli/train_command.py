"""`fp8lab train` from outside: one command for a system, a run that goes on has the log of one that never stopped,
and a run that diverged does not pass."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FP8LAB = sys.argv[1]
SMALL = {"--vocabulary": 64, "--width": 32, "--heads": 2, "--hidden": 32, "--length": 16, "--layers": 1,
         "--sequences": 2, "--warmup": 2}
WIDE = ["--width", 128, "--hidden", 128, "--sequences", 8]  # what scales of 128 elements need

failures = 0


def check(what, holds, seen=""):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {what}: {seen}")


def command(*arguments):
    """A small model, but for what the arguments say."""
    shape = [word for item in SMALL.items() if item[0] not in arguments for word in item]
    return [FP8LAB, "train", *map(str, shape), *map(str, arguments)]


def train(*arguments, expected=0):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300)
    check(f"exit code of {arguments}", expected is None or done.returncode == expected, (done.returncode, done.stdout[-500:], done.stderr[-500:]))
    return done


def losses(*arguments, expected=0):
    return json.loads(train("--json", *arguments, expected=expected).stdout)


def refused(*arguments, part):
    done = train(*arguments, expected=2)
    check(f"{arguments} is refused for {part}", part in done.stderr, done.stderr)


def test_divergence(folder):
    run = losses("--steps", 12, "--learning-rate", 100, expected=1)
    check("a learning rate of 100 diverges", run["diverged"] and run["rise"] > 1.0, run["rise"])
    said = train("--steps", 12, "--learning-rate", 100, expected=1).stdout.splitlines()[-1]
    check("and says by how much", said == f"diverged: it ends {run['rise']:.4g} nats above its lowest loss or the loss of a uniform guess",
          (said, run["rise"]))
    stopped = losses("--steps", 40, "--learning-rate", 100, "--stop-when", 3, expected=1)
    check("--stop-when ends it early", stopped["steps_done"] < 40 and "above its lowest" in stopped["ended"], stopped)
    kept = ["--steps", stopped["steps_done"], "--learning-rate", 100, "--stop-when", 3, "--checkpoint", folder / "ended.safetensors", "--save-every", 1]
    losses(*kept, expected=1)
    again = json.loads(train("--json", *kept, expected=None).stdout)["losses"]
    check("the step at which a run ended is in no checkpoint", again == stopped["losses"][-1:], (again, stopped["losses"]))
    usual = losses("--steps", 12)
    check("a usual run does not", not usual["diverged"] and usual["losses"][0] - 4.16 < 0.2, usual)
    broken = losses("--steps", 12, *WIDE, "--recipe", "deepseek-v3-first", expected=1)
    check("NaN diverges", broken["ended"] == f"the loss of step {broken['steps_done'] - 1} is not finite" and broken["steps_done"] < 12,
          broken)


def test_guard():
    run = losses("--steps", 6, "--guard", 1)
    check("a guard that has nothing to do changes nothing",
          run["losses"] == losses("--steps", 6)["losses"] and run["rollbacks"] == 0, run)
    run = losses("--steps", 12, *WIDE, "--recipe", "deepseek-v3-first", "--guard", 2, expected=1)
    check("what fails each time ends the run", "finite" in run["ended"] or run["skipped"] > 0, run)


def test_skipped_steps(folder):
    """Batches whose gradients are never finite: each is left out, and the log says so."""
    log = folder / "skipped.jsonl"
    call = ["--steps", 14, "--recipe", "fp32", "--learning-rate", 1000, "--guard", 1, "--threads", 1, "--width", 128, "--hidden", 128]
    run = losses(*call, "--log", log, expected=1)
    told = train(*call, expected=1).stdout
    check("both are told", f"\n{run['rollbacks']} rollbacks to a snapshot, {run['skipped']} steps left out\n" in told, told)
    check("the guard gave up", "finite" in run["ended"], run)
    check("rollbacks and skipped steps are counted apart", 0 < run["rollbacks"] != run["skipped"] > 0, run)
    rows = [row for row in map(json.loads, log.read_text().splitlines()) if "loss" in row or "skipped" in row]
    taken = [row for row in rows if "loss" in row]
    skipped = [row["step"] for row in rows if "loss" not in row]
    check("each step stands once in the log", [row["step"] for row in rows] == list(range(run["steps_done"])), rows)
    check("skipped steps have no loss", skipped and all(row["skipped"] == 1 for row in rows if "loss" not in row), rows)
    check("the losses are those of the steps taken", [row["loss"] for row in taken] == run["losses"], (taken, run["losses"]))
    check("none of them is zero", all(loss > 1.0 for loss in run["losses"]), run["losses"])


def block_options(file, *arguments):
    """What a checkpoint says of the products of blocks."""
    file.unlink(missing_ok=True)
    train("--steps", 1, *arguments, "--checkpoint", file)
    data = file.read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["fingerprint"])["options"]["blocks"]


def test_delayed_options(folder):
    """Each option of delayed scales reaches every operand, and no other field."""
    file = folder / "scales.safetensors"
    for options, fields in (([], "1024-0x0p+0-max"), (["--history", 5], "5-0x0p+0-max"), (["--margin", 3], "1024-0x1.8p+1-max"),
                            (["--amax-algorithm", "most_recent"], "1024-0x0p+0-most_recent")):
        blocks = block_options(file, "--recipe", "te-delayed", *options)
        delayed = {role: blocks[role].split("/")[7] for role in ("activation", "weight", "gradient")}
        check(f"te-delayed {options}", delayed == dict.fromkeys(delayed, f"{fields}-0"), delayed)


def test_formats(folder):
    """--format of each operand, also of one that is cast anew for its second product: what the checkpoint says."""
    file = folder / "formats.safetensors"
    recipe = "torchao-rowwise-hp-wgrad"
    for name, gradient, other in (("hybrid", "e5m2", "e4m3fn"), ("e5m2", "e5m2", "e5m2"), ("e4m3fn", "e4m3fn", "e4m3fn")):
        blocks = block_options(file, "--recipe", recipe, "--format", name)
        formats = {role: blocks[role].split("/")[0] for role in ("activation", "weight", "weight_for_dgrad", "gradient")}
        check(f"--format {name}", formats == dict.fromkeys(formats, other) | {"gradient": gradient}, formats)


def test_log(folder):
    """Killed at any moment and started again: the same bytes."""
    arguments = ["--steps", 30, "--recipe", "te-delayed", "--history", 4, "--monitor-every", 3, "--save-every", 4]
    whole = folder / "whole.jsonl"
    train(*arguments, "--log", whole)
    golden = whole.read_bytes()
    rows = [json.loads(line) for line in golden.splitlines()]
    check("a row for each step", [r["step"] for r in rows if "loss" in r] == list(range(30)), rows[-1])
    steps = [r for r in rows if "loss" in r]
    check("the learning rate rises and falls", [r["learning_rate"] for r in steps[:2]] == sorted(r["learning_rate"] for r in steps[:2])
          and steps[1]["learning_rate"] > steps[20]["learning_rate"] > steps[29]["learning_rate"], steps)
    check("gradients are no learning rate", len({r["gradient_norm"] for r in steps}) == 30
          and all(r["gradient_norm"] > 5 * r["learning_rate"] for r in steps), steps[:2])
    check("casts of every third step", sorted({r["step"] for r in rows if "loss" not in r}) == list(range(0, 30, 3)),
          sorted({r["step"] for r in rows if "loss" not in r}))

    # A checkpoint of step 8, and a log with four rows beyond it and half a line.
    log, checkpoint = folder / "log.jsonl", folder / "c.safetensors"
    at = [i for i, r in enumerate(rows) if r["step"] == 8][0]
    killed = subprocess.Popen(command(*arguments, "--log", log, "--checkpoint", checkpoint),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(2000):
        if checkpoint.exists():
            break
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    check("there is a checkpoint", checkpoint.exists())
    lines = golden.splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: at + 4 + len(lines) // 4]) + lines[-1][:20])
    train(*arguments, "--log", log, "--checkpoint", checkpoint)
    check("stray rows and half a line are replaced", log.read_bytes() == golden,
          [a for a, b in zip(log.read_bytes().splitlines(), golden.splitlines()) if a != b][:3])
    train(*arguments, "--log", log, "--checkpoint", checkpoint)
    check("a run that is done adds nothing", log.read_bytes() == golden)
    log.write_bytes(golden[:-20])
    train(*arguments, "--log", log, "--checkpoint", checkpoint)
    check("half a row at the end is no error, and goes", log.read_bytes() == golden[: golden.rindex(b"\n", 0, -20) + 1])

    other = folder / "other.txt"
    other.write_text("not a log\n")
    refused("--steps", 2, "--log", other, part="--log: expected a new file or the log of a training run")
    check("and stays as it was", other.read_text() == "not a log\n")
    for text in ("my notes", "{}", '{"steps', '{"step":0}\nmine'):
        other.write_text(text)
        refused("--steps", 2, "--log", other, part=f"'{other}' with another line {1 + text.count(chr(10))}")
        check(f"{text!r} without an end stays as it was", other.read_text() == text)


def test_recipe_options():
    base = ["--steps", 6, "--recipe", "te-delayed"]
    usual = losses(*base)["losses"]
    for change in (["--history", 1], ["--margin", 4], ["--format", "e5m2"], ["--keep", "block0.down"],
                   ["--optimizer", "fp8-lm"], ["--second-moment", "e4m3fn:tensor"], ["--master", "bf16"],
                   ["--clip-norm", 0.01], ["--clip-before-cast", 1.5], ["--rule", "all"]):
        check(f"{change} changes the run", losses(*base, *change)["losses"] != usual, usual)
    check("most_recent differs from max",
          losses(*base, "--history", 4, "--amax-algorithm", "most_recent")["losses"]
          != losses(*base, "--history", 4, "--amax-algorithm", "max")["losses"])
    same = losses("--steps", 6, "--recipe", "te-current", "--format", "hybrid")["losses"]
    check("hybrid is TransformerEngine's own", same == losses("--steps", 6, "--recipe", "te-current")["losses"])

    # A rule under which nothing converts is BF16: 16 divides no dimension of 24 and 40.
    odd = ["--width", 24, "--hidden", 40, "--steps", 4]
    check("LLaMA-Factory's rule of 16", losses(*odd, "--recipe", "te-current", "--rule", "llama-factory")["losses"]
          == losses(*odd, "--recipe", "bf16")["losses"])
    bf16 = losses(*WIDE, "--steps", 4, "--recipe", "bf16")["losses"]
    check("layers kept one by one are BF16",
          losses(*WIDE, "--steps", 4, "--recipe", "deepgemm", "--keep", "block0")["losses"] == bf16)
    check("DeepSeek's rule keeps the head", losses(*WIDE, "--steps", 4, "--recipe", "deepgemm", "--rule", "deepseek-v3")["losses"]
          == losses(*WIDE, "--steps", 4, "--recipe", "deepgemm")["losses"])

    # BF16 products under a matrix unit: those of the recipe, of the head, of what stays in BF16.
    wide = [*WIDE, "--steps", 4]
    unit = ["--model", "sm90.wgmma.bf16"]
    usual = losses(*wide, "--recipe", "te-current")["losses"]
    head = losses(*wide, "--recipe", "te-current", *unit)["losses"]
    check("a unit of BF16 is for the head", head != usual, usual)
    check("FP8 products stay", losses(*wide, "--recipe", "te-current", *unit, "--model", "sm90.wgmma.e4m3")["losses"] == head)
    check("a chip has both", losses(*wide, "--recipe", "te-current", "--model", "sm90")["losses"] == head)
    on_chip = losses(*wide, "--recipe", "bf16", *unit)["losses"]
    check("the baseline of a chip", on_chip == losses(*wide, "--recipe", "bf16", "--model", "sm90")["losses"])
    check("is not that of FP32 sums", on_chip != bf16, bf16)
    check("FP32 sums are the default", losses(*wide, "--recipe", "bf16", "--model", "fp32")["losses"] == bf16)
    check("layers that stay in BF16 are the baseline's there too",
          losses(*wide, "--recipe", "deepgemm", "--keep", "block0", *unit)["losses"] == on_chip)

    refused("--recipe", "te-current", "--history", 4, part="a recipe with delayed scales")
    refused("--recipe", "bf16", "--format", "e5m2", part="--format: expected a recipe with FP8 products")
    refused("--recipe", "te-current", "--format", "f16", part="--format")
    refused("--keep", "z", part="--keep: expected part of one of block0.qkv")
    refused("--keep", "block7", part="--keep: expected part of one of block0.qkv")
    refused("--rule", "none", part="llama-factory")
    refused("--master", "f32:tensor", part="f32")
    refused("--first-moment", "e4m3fn:tensor:te:1", part="--first-moment")
    refused("--first-moment", "e4m3fn:some", part="--first-moment")
    refused("--first-moment", "e4m3fn:none:te", part="tensor or group scaling before a rule")
    refused("--clip-before-cast", "0", part="--clip-before-cast")
    refused("--weight-decay", "-1", part="--weight-decay")


def test_system(folder):
    system = ["--steps", 6, "--recipe", "fp8-lm", "--ranks", 4]
    run = losses(*system)
    ranks = run["ranks"]
    check("FP8-LM's wires", ranks["wire"] == "e4m3fn" and ranks["scaling"] == "auto" and ranks["smallest_mu"] != 1.0, ranks)
    check("5 bytes a parameter and its scales, once over all ranks",
          5 * run["parameters"] < ranks["state_bytes_total"] < 5.1 * run["parameters"] + 200, (run["parameters"], ranks))
    reference = losses("--steps", 6, "--recipe", "bf16-fp32", "--ranks", 4)
    check("FP32 states are 12 bytes on each rank",
          reference["ranks"]["state_bytes_largest"] == 12 * run["parameters"], reference["ranks"])
    check("BF16 sends four times the bytes of gradients",
          3.9 < reference["ranks"]["bytes_sent"] / ranks["bytes_sent"] < 4.1, (reference["ranks"], ranks))
    check("both learn", abs(run["losses"][-1] - reference["losses"][-1]) < 0.1, (run["losses"], reference["losses"]))
    check("threads change nothing", run == losses(*system, "--threads", 1))

    # An ablation is the system with the part named by an option.
    for name, options in (("fp32-gradients", ["--wire", "f32"]), ("pre-scaling", ["--gradient-scaling", "pre"]),
                          ("fp8-v", ["--second-moment", "e4m3fn:tensor"])):
        named = losses("--steps", 3, "--recipe", f"fp8-lm-{name}", "--ranks", 2)
        check(name, named["losses"] == losses("--steps", 3, "--recipe", "fp8-lm", "--ranks", 2, *options)["losses"], named)

    refused("--zero", part="--zero: expected --ranks above 1")
    refused("--topology", "ring", part="--topology: expected --ranks above 1")
    refused("--ranks", 2, "--gradient-scaling", "auto", part="--gradient-scaling: expected an FP8 wire")
    refused("--ranks", 2, "--wire", "e4m3fn", "--gradient-scaling", "none", part="--gradient-scaling")


def test_ranks_resume(folder):
    """A run of several ranks that is stopped and goes on leaves the log of one that never stopped."""
    for name, system in (("fp8-lm", ["--recipe", "fp8-lm", "--ranks", 3]),
                         ("delayed", ["--recipe", "te-delayed", "--ranks", 2, "--wire", "e4m3fn"])):
        arguments = [*system, "--steps", 9, "--monitor-every", 2, "--save-every", 4]
        whole, log, checkpoint = (folder / f"{name}.{end}" for end in ("whole.jsonl", "jsonl", "safetensors"))
        train(*arguments, "--log", whole)
        golden = whole.read_bytes()
        train(*arguments, "--log", log, "--checkpoint", checkpoint)
        check(f"{name}: checkpoints change nothing", log.read_bytes() == golden)
        # Nothing but the checkpoint of step 4 is left: it must make all rows from there on.
        checkpoint.unlink()
        first = subprocess.Popen(command(*arguments, "--log", log.with_suffix(".part"), "--checkpoint", checkpoint),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(4000):
            if checkpoint.exists():
                break
            time.sleep(0.002)
        first.send_signal(signal.SIGKILL)
        first.wait()
        check(f"{name}: there is a checkpoint", checkpoint.exists())
        train(*arguments, "--log", log.with_suffix(".part"), "--checkpoint", checkpoint)
        check(f"{name}: stopped and gone on, the same bytes", log.with_suffix(".part").read_bytes() == golden)
        refused(*arguments, "--topology", "tree", "--checkpoint", checkpoint, part="/ranks/topology")
        refused("--recipe", "te-delayed", "--steps", 9, "--checkpoint", checkpoint, part=str(checkpoint))

    system = ["--steps", 6, "--recipe", "fp8-lm", "--ranks", 2]
    run = losses(*system, "--guard", 2)
    check("a guard over ranks that has nothing to do changes nothing",
          run["losses"] == losses(*system)["losses"] and run["rollbacks"] == 0, run)


with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    test_divergence(root)
    test_guard()
    test_skipped_steps(root)
    test_formats(root)
    test_delayed_options(root)
    test_log(root)
    test_recipe_options()
    test_system(root)
    test_ranks_resume(root)
print(f"{failures} failures")
sys.exit(1 if failures else 0)
