"""The package and the `fp8lab` tool on the same files: the same bits, counts and names."""

import dataclasses
import json
import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest

import fp8lab

TOOL = os.environ.get("FP8LAB_TOOL", "")
pytestmark = pytest.mark.skipif(not pathlib.Path(TOOL).is_file(), reason="no FP8LAB_TOOL")

SCALED = {"promotion_interval": 128, "scale_order": "a_then_fma_b"}
SCALED_OPTIONS = ["--promotion", "128", "--scale-order", "a_then_fma_b"]


def tool(code, *arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def safetensors(path):
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    return {
        name: (entry, data[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]])
        for name, entry in json.loads(data[8:end]).items()
        if name != "__metadata__"
    }


@pytest.fixture
def problem(tmp_path):
    """A product with scales in tiles, in files and as the package's arguments."""
    rng = np.random.default_rng(7)
    a, b = (fp8lab.encode(rng.standard_normal((rows, 512), np.float32)) for rows in (16, 24))
    sa, sb = (rng.random((rows, 4), np.float32) for rows in (16, 24))
    for name, x in (("a", a.view(np.uint8)), ("b", b.view(np.uint8)), ("sa", sa), ("sb", sb)):
        np.save(tmp_path / f"{name}.npy", x)
    scales = {"scale_a": fp8lab.Scales(sa, 1, 128), "scale_b": fp8lab.Scales(sb, 1, 128)}
    inputs = [tmp_path / "a.npy", tmp_path / "b.npy"]
    options = ["--dtype", "e4m3fn", "--scale-a", tmp_path / "sa.npy", "--scale-b", tmp_path / "sb.npy"]
    return a, b, scales, inputs, options


def test_gemm_verify_and_identify(tmp_path, problem):
    a, b, scales, inputs, options = problem
    path = tmp_path / "d.npy"
    tool(0, "gemm", *inputs, *options, *SCALED_OPTIONS, "-o", path)
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", **scales, **SCALED)
    np.testing.assert_array_equal(np.load(path).view(np.uint32), d.view(np.uint32))

    d[2, 7] = np.nextafter(d[2, 7], np.float32(np.inf))
    np.save(path, d)
    how = [*options, *SCALED_OPTIONS]
    said = tool(1, "verify", path, "--inputs", *inputs, *how)
    report = fp8lab.verify(d, (a, b), model="sm90.wgmma.e4m3", **scales, **SCALED)
    assert said.rsplit("next:  ", 1)[0] == report.text
    said = json.loads(tool(1, "verify", path, "--inputs", *inputs, *how, "--json"))
    assert said["verdict"] == report.verdict
    assert said["metrics"]["bit_mismatches"] == report.bit_mismatches == 1
    assert said["gates"] == report.gates

    for wrong, code in ((False, 0), (True, 1)):
        if not wrong:
            d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", **scales, **SCALED)
        else:
            d[0, 0] += 1
        np.save(path, d)
        found = fp8lab.identify(d, (a, b), **scales)
        assert found.explained is not wrong
        assert tool(code, "identify", *inputs, path, *options) == str(found)
        said = json.loads(tool(code, "identify", *inputs, path, *options, "--json", "--top", 100))
        assert said["tried"] == found.tried and said["explained"] == found.explained
        assert said["separating"]["count"] == found.separating_count
        assert len(said["ranking"]) == len(found.ranking)
        for theirs, ours in zip(said["ranking"], found.ranking, strict=True):
            assert (theirs["matches"], theirs["compared"]) == (ours.matches, ours.compared)
            for left, right in zip(theirs["explanations"], ours.members, strict=True):
                assert left["models"] == list(right.models) and left["split_k"] == right.split_k
                assert left["promotion"] == right.promotion_interval
                assert (left["scale_order"], left["rounding"]) == (right.scale_order, right.rounding)


def test_attention(tmp_path):
    rng = np.random.default_rng(8)
    x = [rng.standard_normal((2, rows, 64), np.float32) for rows in (48, 192, 192)]
    files = [tmp_path / f"{name}.npy" for name in "qkv"]
    for path, values in zip(files, x, strict=True):
        np.save(path, values)
    arguments = ["attn", *files, "--causal", "--kv-tile", 64, "-o", tmp_path / "o.npy"]
    said = json.loads(tool(0, *arguments, "--json"))
    result = fp8lab.attention(*x, causal=True, kv_tile=64)
    np.testing.assert_array_equal(
        np.load(tmp_path / "o.npy").view(np.uint32), result.o.view(np.uint32)
    )
    assert [dataclasses.asdict(tile) for tile in result.tiles] == said["tiles"]
    assert dataclasses.asdict(result.total) == said["total"]
    for name in ("against_codes", "against_inputs"):
        theirs, ours = said[name], getattr(result, name)
        assert theirs["relative_l2"] == ours.relative_l2
        assert theirs["max_absolute"] == ours.max_absolute
        assert (theirs["cosine"], theirs["bias"]) == (ours.cosine, ours.mean_signed_relative)


@pytest.mark.parametrize("ending", ["txt", "npz", "safetensors", "jsonl"])
def test_vectors(tmp_path, ending):
    theirs, ours = tmp_path / f"tool.{ending}", tmp_path / f"package.{ending}"
    tool(0, "vectors", "--model", "sm90.wgmma.e4m3", "-n", 30, "--seed", 5, "-o", theirs)
    fp8lab.vectors("sm90.wgmma.e4m3", 30, seed=5).save(ours)
    assert theirs.read_bytes() == ours.read_bytes()
    tool(0, "vectors", "--separate", "sm89.mma.e4m3", "sm90.wgmma.e4m3", "-o", theirs)
    fp8lab.separate("sm89.mma.e4m3", "sm90.wgmma.e4m3").vectors.save(ours)
    assert theirs.read_bytes() == ours.read_bytes()
    tool(1, "replay", ours, "--model", "sm90.wgmma.e4m3")
    assert fp8lab.replay(theirs, "sm90.wgmma.e4m3").mismatches == 16


def packed(codes, dtype):
    """The bytes of codes in a file: the low bits of each, one after the other, the first lowest."""
    width = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}.get(dtype, 8)
    bits = np.unpackbits(np.asarray(codes).view(np.uint8).reshape(-1, 1), axis=1, bitorder="little")
    return np.packbits(bits[:, :width], bitorder="little").tobytes()


def test_quantize_and_cast(tmp_path):
    # BF16's numbers, which recipes of either input type take.
    x = np.random.default_rng(9).standard_normal((128, 256), np.float32)
    x = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for name, preset in fp8lab.presets().items():
        if preset.activation.source in ("calibration", "momentum"):
            continue
        out = tmp_path / "q.safetensors"
        tool(0, "quantize", tmp_path / "x.npy", "--recipe", name, "-o", out)
        tensors, q = safetensors(out), fp8lab.quantize(x, name)
        assert tensors["x"][1] == packed(q.codes, tensors["x"][0]["dtype"]), name
        assert tensors["x.scale"][1] == q.scales.tobytes(), name
        second = np.float32(q.tensor_inverse_scale)
        assert tensors["x.scale_inv"][1] == (q.inverse_scales * second).tobytes(), name
        if "x.tensor_scale_inv" in tensors:
            assert tensors["x.tensor_scale_inv"][1] == second.tobytes() and second != 1.0, name
            levels = q.inverse_scales.astype(ml_dtypes.float8_e4m3fn)
            assert tensors["x.scale_inv_ue4m3"][1] == levels.tobytes(), name
        if q.e8m0 is not None:
            assert tensors["x.scale_inv_e8m0"][1] == q.e8m0.tobytes(), name
    values = x.reshape(-1)[:200] * np.float32(200)
    words = [f"0x{word:08x}" for word in values.view(np.uint32)]
    for profile in fp8lab.profiles():
        said = json.loads(tool(0, "cast", *words, "--profile", profile, "--json"))
        codes = fp8lab.encode(values, profile=profile, dtype="uint8")
        assert [one["code"] for one in said["casts"]] == codes.tolist(), profile


def test_registries():
    said = json.loads(tool(0, "list", "--json"))
    assert [f["name"] for f in said["formats"]] == list(fp8lab.formats())
    for theirs, ours in zip(said["profiles"], fp8lab.profiles().values(), strict=True):
        assert theirs.items() <= dataclasses.asdict(ours).items()
    for theirs, ours in zip(said["models"], fp8lab.models().values(), strict=True):
        assert theirs["name"] == ours.name and theirs["standing"] == ours.standing
        assert theirs["accumulation"] == ours.accumulator.kind
