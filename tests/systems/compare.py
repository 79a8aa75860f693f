"""Codes and scales of presets against the packages that they are named after.

usage: compare.py FP8LAB [PRESET ...]

Runs in the Python of $FP8LAB_TORCH_PYTHON or of build/torch-venv (`./dev torch` makes it), and skips
with exit code 77 where there is none. A NaN equals any NaN, of a code or a scale: its sign is the
processor's.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("FP8LAB_TORCH_PYTHON") or HERE.parents[1] / "build/torch-venv/bin/python"
os.environ.setdefault("OMP_NUM_THREADS", "2")
try:
    import torch
except ImportError as error:
    if not Path(PYTHON).is_file() or Path(sys.executable) == Path(PYTHON):
        print(f"SKIPPED: {error} (./dev torch installs tests/systems/requirements.txt)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

warnings.filterwarnings("ignore")
sys.path.insert(0, str(HERE))
from cases import JAX_PRESETS, cases  # noqa: E402
from narrow_files import load  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from systems import all_systems  # noqa: E402
from systems_references import DEEPGEMM, DEEPGEMM_PRESETS  # noqa: E402

LEAST_CASES = 400
PRESETS_WITH_A_SYSTEM = "compared with the package"


def run(tool, *arguments):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"fp8lab {' '.join(map(str, arguments))} failed ({done.returncode}): {done.stderr[:400]}")
    return done.stdout


def is_nan_code(codes, dtype):
    return (codes & 0x7F) > 0x7C if dtype == torch.float8_e5m2 else (codes & 0x7F) == 0x7F


def count_different(want, got, name):
    if want.shape != got.shape:
        sys.exit(f"{name}: shape {tuple(want.shape)} expected, got {tuple(got.shape)}")
    if want.dtype == torch.float32:
        want, got = want.contiguous(), got.contiguous()
        same = (want.view(torch.int32) == got.view(torch.int32)) | (want.isnan() & got.isnan())
    else:
        same = want == got
    return int((~same).sum())


def different_codes(x, want, got, name):
    """Of formats without NaN; what a scaled NaN becomes is nobody's promise."""
    scale = got[name + ".scale"]
    rows, k = (-(-size // tiles) for size, tiles in zip(x.shape, scale.shape))
    k = want.get("side", k)
    scale = scale.repeat_interleave(rows, 0).repeat_interleave(k, 1)[: x.shape[0], : x.shape[1]]
    codes = [want["narrow"], got[name]]
    if want.get("without_minus_zero"):
        codes = [torch.where(code == 8, 0, code) for code in codes]
    return int(((codes[0] != codes[1]) & ~(x.float() * scale).isnan()).sum())


def one_nan(codes):
    """E4M3's two NaN as one."""
    return torch.where((codes & 0x7F) == 0x7F, 0x7F, codes)


def second_level(want, got, name):
    """Scales of the tensor that differ: what it is multiplied by, or, where the package divides, the divisor."""
    if "tensor_scale_inv" in want:
        return count_different(want["tensor_scale_inv"].reshape(()), got[name + ".tensor_scale_inv"], name)
    if "tensor_scale" in want:
        return count_different(1 / want["tensor_scale"].reshape(()), got[name + ".tensor_scale_inv"], name)
    return 0


def ours(tool, system, folder, tensors):
    """What fp8lab makes of all tensors: one call."""
    save_file(tensors, folder / "x.safetensors")
    arguments = ["quantize", folder / "x.safetensors", "--recipe", system.preset, "--role", system.role, "--json",
                 "-o", folder / "q.safetensors"]
    if system.product:
        arguments += ["--product", system.product]
    batches = []
    for i in range(system.batches if system.calibrated else 0):
        batches.append({k: (v * (0.5 + i)).nan_to_num(1, 1, 1) for k, v in tensors.items()})
        save_file(batches[-1], folder / f"batch{i}.safetensors")
        arguments += ["--history", folder / f"batch{i}.safetensors"]
    run(tool, *arguments)
    return load(folder / "q.safetensors"), batches


def compare(tool, system):
    with tempfile.TemporaryDirectory() as name:
        finite = system.calibrated or system.finite
        tensors = cases(system.dtype, system.rows_multiple, system.k_multiple, finite, with_nan=system.with_nan)
        got, batches = ours(tool, system, Path(name), tensors)
    different, bad_cases, first = 0, 0, ""
    for name, x in tensors.items():
        want = system.quantize(x, [b[name] for b in batches]) if system.calibrated else system.quantize(x)
        codes = got[name].view(torch.uint8)
        bad = second_level(want, got, name)
        if "x" in want:
            both_nan = is_nan_code(want["x"], got[name].dtype) & is_nan_code(codes, got[name].dtype)
            bad += int(((want["x"] != codes) & ~both_nan).sum())
        if "narrow" in want:
            bad += different_codes(x, want, got, name)
        if "value" in want:
            value = got[name].float() * got[name + ".scale_inv"]
            bad += count_different(want["value"], value, name)
        for part in ("scale", "scale_inv", "scale_inv_e8m0", "scale_inv_ue4m3"):
            if part in want:
                scale = got[f"{name}.{part}"]
                if part.endswith("e8m0"):
                    scale = scale.view(torch.uint8)
                elif part.endswith("e4m3"):
                    scale, want[part] = one_nan(scale.view(torch.uint8)), one_nan(want[part])
                bad += count_different(want[part], scale, name)
        different += bad
        bad_cases += bad > 0
        if bad and not first:
            first = f"; first in {name}: {bad}"
    label = " ".join(filter(None, [system.preset, system.role, system.product, str(system.dtype)[6:]]))
    print(f"{label}: {len(tensors)} cases, {different} codes or scales differ in {bad_cases}{first}", flush=True)
    return 1 if different or len(tensors) < LEAST_CASES else 0


def torch_casts(tool):
    """`.to(float8)` of this torch against the profile that carries its name."""
    failures = 0
    bits = torch.cat([torch.arange(0, 2**16, 37, dtype=torch.int64) << 16,
                      torch.tensor([448.0, 464, 464.00003, 480, 57344, 61439.99, 61440, 65536, 3e38]).view(torch.int32)])
    x = bits.to(torch.int32).view(torch.float32)
    for dtype, fmt, profile in ((torch.float8_e4m3fn, "e4m3fn", "ocp_saturating"),
                                (torch.float8_e5m2, "e5m2", "ocp_nonsaturating")):
        report = json.loads(run(tool, "cast", *(f"0x{int(b) & 0xffffffff:08x}" for b in bits), "--format", fmt,
                                "--profile", profile, "--json"))
        got = torch.tensor([v["code"] for v in report["casts"]], dtype=torch.uint8)
        different = int((x.to(dtype).view(torch.uint8) != got).sum())
        print(f"torch {torch.__version__} .to({fmt}) as {profile}: {x.numel()} values, {different} differ")
        failures += different > 0
    return failures


def main():
    tool, chosen = sys.argv[1], sys.argv[2:]
    listed = json.loads(run(tool, "list", "recipes", "--json"))["recipes"]
    systems = [s for s in all_systems() if not chosen or s.preset in chosen]
    failures = sum(compare(tool, system) for system in systems)
    if not chosen:
        failures += torch_casts(tool)
        claimed = {r["name"] for r in listed if r["known"] == PRESETS_WITH_A_SYSTEM}
        compared = {s.preset for s in systems} | JAX_PRESETS
        if not DEEPGEMM:
            print(f"SKIPPED: {', '.join(sorted(DEEPGEMM_PRESETS))}: FP8LAB_DEEPGEMM names no clone of DeepGEMM")
            compared |= DEEPGEMM_PRESETS
        for name in sorted(claimed ^ compared):
            print(f"{name}: listed as compared: {name in claimed}, compared here: {name in compared}")
            failures += 1
    print(f"{len(systems)} systems, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
