"""What commands draw on a terminal: bars and lines that are drawn over, and nothing that is left of them.

Usage: terminal_command.py PATH_OF_FP8LAB
"""

import json
import re
import struct
import tempfile
from pathlib import Path

from checking import check, finish, on_terminal

CLEAR = "\r\x1b[K"


def drawn(*arguments, code=0):
    """What the command draws on a terminal that is its standard error, frame by frame."""
    ended, text = on_terminal(*arguments, stream="stderr", columns=100)
    name = " ".join(map(str, arguments))
    check(f"{name}: exit", ended == code, (ended, text[-300:]))
    frames = text.split(CLEAR)
    check(f"{name}: begins on a new line and leaves none", frames[0] == "" and frames[-1] == "", text[-300:])
    check(f"{name}: one line", "\n" not in text, text[-300:])
    return frames[1:-1]


def bars(name, frames, last=100):
    """Each frame's percent and note; its bar has a mark for every four percent."""
    found = []
    for frame in frames:
        match = re.fullmatch(rf"{name} \[(=*)( *)\] (\d+)%(.*)", frame)
        check(f"a bar: {frame!r}", match)
        if match:
            marks, blanks, percent = len(match[1]), len(match[2]), int(match[3])
            check(f"its length: {frame!r}", marks == percent // 4 and marks + blanks == 25)
            found.append((percent, match[4]))
    check(f"{name}: no frame is drawn twice, and none goes back",
          frames == list(dict.fromkeys(frames)) and found == sorted(found, key=lambda one: one[0]), frames)
    check(f"{name}: some frames, and the last one", found and found[-1][0] == last, frames)
    return found


def test_run(folder):
    for percent, note in bars("walkthrough", drawn("run", "walkthrough", "--quick", "--no-plots", "--out", folder / "out")):
        check("no note", note == "", (percent, note))


def test_sweep(folder):
    done = []
    points = ["--axis", "curve_points=10,20,30", "--repeat", 2, "--threads", 1]
    for percent, note in bars("walkthrough", drawn("sweep", "walkthrough", "--quick", *points, "--out", folder / "grid")):
        match = re.fullmatch(r"  (\d+) of 6, (\S+) points/s, (.*) left", note)
        check(f"a note: {note!r}", match)
        if match:
            done.append(int(match[1]))
            check(f"{match[1]} of 6 are {percent} %", percent == int(match[1]) * 100 // 6)
            left = re.fullmatch(r"([\d.e+-]+) s", match[3])
            if left and float(match[2]) > 0:
                wanted = (6 - done[-1]) / float(match[2])
                check(f"the time left: {note}", abs(float(left[1]) - wanted) <= 0.1 * wanted + 0.01)
    check("every point counts", done[-1] == 6 and set(done) <= set(range(7)), done)


def test_train():
    shape = ["--length", 8, "--width", 16, "--layers", 1, "--heads", 2, "--hidden", 16, "--sequences", 3]
    frames = drawn("train", "--steps", 12, *shape)
    check("a frame for each step", len(frames) == 12, frames)
    for step, frame in enumerate(frames, 1):
        match = re.fullmatch(rf"step {step}/12  loss (\d\.\d{{4}})  (\d+) tokens/s  (\d+) s left", frame)
        check(f"step {step}: {frame!r}", match and float(match[1]) > 5)
    check("none is left at the end", frames[-1].endswith(" 0 s left"), frames[-1])


def test_model(folder):
    """The file that is read stands behind the bar."""
    source = folder / "model"
    source.mkdir()
    names = {}
    for shard in (1, 2):
        header = json.dumps({f"layers.{shard}.mlp.up_proj.weight": {"dtype": "F32", "shape": [256, 128], "data_offsets": [0, 131072]}}).encode()
        file = f"part-{shard}.safetensors"
        (source / file).write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.5) * 32768)
        names[f"layers.{shard}.mlp.up_proj.weight"] = file
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 262144}, "weight_map": names}))
    (source / "config.json").write_text(json.dumps({"model_type": "llama", "torch_dtype": "float32"}))
    found = bars("quantize", drawn("quantize", source, "--recipe", "deepgemm", "--layout", "deepseek", "--rule", "linear",
                                   "-o", folder / "made"), last=50)
    check("the names of files", {note for _, note in found} == {" part-1.safetensors", " part-2.safetensors"}, found)


with tempfile.TemporaryDirectory() as name:
    test_run(Path(name))
    test_sweep(Path(name))
    test_model(Path(name))
test_train()
finish("terminal")
