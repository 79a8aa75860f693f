"""CUDA tensors: casts by torch's operations, and calls of the emulated kernels.

What takes `device` runs on a simulated one, and on a GPU where there is one.
"""

import numpy as np
import pytest
import torch
from conftest import assert_same_bits, bits, log_normal
from devices import Gpu, Simulated, needs_gpu, records
from fake_device import RECIPES, install

import fp8lab
import fp8lab.torch
from fp8lab import _core
from fp8lab.torch import _device, _device_casts
from fp8lab.torch._engines import DEVICE as ENGINE
from fp8lab.torch._engines import HOST
from fp8lab.torch._plan import plan_of, text_of


@pytest.fixture(params=[Simulated, pytest.param(Gpu, marks=needs_gpu)], ids=["simulated", "cuda"])
def device(request):
    return request.param()


def every_kind(seed=0):
    """Random bits of binary32, and what lies next to each power of two and each tie."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, 60_000, dtype=np.uint64).astype(np.uint32)
    exponents = np.arange(256, dtype=np.uint32)[:, None] << 23
    ties = np.array([m << s | d for s in range(16, 24) for m in (0, 1, 3) for d in (0, 1)], np.uint32)
    near = (exponents | (ties & 0x7FFFFF)).reshape(-1)
    small = np.concatenate([near, near - 1, near | 0x80000000])
    return torch.from_numpy(np.concatenate([words, small]).view(np.float32))


@pytest.mark.parametrize("profile", ["nvidia_satfinite", "nvidia_nosat", "ocp_saturating", "ocp_nonsaturating"])
@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "f16", "bf16"])
def test_codes_are_the_library_s(device, name, profile):
    x = every_kind()
    # A NaN is positive before its cast, as on GPUs.
    x = torch.where(x.isnan(), torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32), x)
    word = np.uint8 if name.startswith("e") else np.uint16
    expected = fp8lab.encode(x.numpy(), name, profile=profile, dtype=word)
    got = _device_casts.encoded(device.put(x), name, profile)
    different = np.flatnonzero(bits(got) != expected)
    assert not len(different), (len(different), x[different[0]], bits(got)[different[0]], expected[different[0]])


def tensors(k=256, rows=256):
    plain = log_normal(rows, k, seed=5)
    odd = plain.clone()
    odd[:128, :128] = 0
    odd[3, 130], odd[200, 7], odd[5, 5] = float("inf"), float("nan"), -0.0
    tiny, huge = plain * 1e-38, plain * 1e37
    near = torch.tensor([2.0**e * (1 + j * 2.0**-23) for e in range(-60, 60) for j in range(-64, 64, 2)], dtype=torch.float64)
    return {"plain": plain, "odd": odd, "tiny": tiny, "huge": huge, "near": near.float().reshape(-1, 128).repeat(3, 1)[:128]}


@pytest.mark.parametrize("role", ["activation", "weight", "gradient"])
@pytest.mark.parametrize("name", [n for n in RECIPES if n != "te-delayed"])
def test_codes_and_scales_of_recipes_are_the_library_s(device, name, role):
    recipe = getattr(fp8lab.presets()[name], role)
    for what, x in tensors().items():
        expected = _core.Quantizer(recipe._core()).quantize(x.numpy(), False, 1)
        codes, scales, inverse = _device_casts.quantized(recipe, device.put(x))
        assert_same_bits(codes, torch.from_numpy(expected["codes"]), f"{name} {what} codes")
        for mine, part in ((scales, "scales"), (inverse, "inverse_scales")):
            np.testing.assert_array_equal(mine.cpu().numpy(), expected[part], f"{name} {what} {part}")


def test_torchao_s_logarithm_next_to_powers_of_two(device):
    """log2 in binary32 rounds up below a power of two: how far below depends on the exponent."""
    recipe = fp8lab.presets()["torchao-rowwise"].activation
    words = np.arange(-80, 81)[None] + (np.arange(64, 170)[:, None] << 23)
    amax = 448 / words.astype(np.int32).view(np.float32).reshape(-1, 1)
    x = torch.from_numpy(amax)
    expected = _core.Quantizer(recipe._core()).quantize(amax, False, 1)
    _, scales, _ = _device_casts.quantized(recipe, device.put(x))
    assert len(np.unique(expected["scales"])) > 60
    np.testing.assert_array_equal(scales.cpu().numpy(), expected["scales"])


@pytest.mark.parametrize("name", RECIPES)
def test_operands_and_pasts_move_as_the_library_s(device, name):
    plan = plan_of(text_of(fp8lab.linear_recipe(name)))
    for role, cast in plan.casts.items():
        past = cast.initial_past()
        for step, x in enumerate(tensors().values()):
            for wanted in ((True, True), (True, False), (False, True)):
                expected = HOST.cast(cast, x.numpy(), past, *wanted)
                got = ENGINE.cast(cast, *device.put((x, past)), *wanted)
                assert_same_bits(got[2], expected[2], f"{name} {role} {step} past")
                for mine, theirs in zip(got[:2], expected[:2]):
                    assert (mine is None) == (theirs is None)
                    if mine is not None:
                        assert_same_bits(mine[0], torch.from_numpy(theirs[0]), f"{name} {role} {step} codes")
                        np.testing.assert_array_equal(mine[1].cpu().numpy(), theirs[1])
            past = expected[2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("te-mxfp8", "expected a rule of a cast on a CUDA device .*, got te_mx; its cast runs on CPU tensors"),
        ("te-nvfp4", "expected a format of a cast on a CUDA device .e4m3fn, e5m2., got e2m1"),
        ("ms-amp", "expected a rule of a cast on a CUDA device .*, got ms_amp"),
        ("inference-static", "expected a source of a cast on a CUDA device .*, got calibration"),
    ],
)
def test_a_cast_that_the_device_lacks_is_named(name, message):
    with pytest.raises(ValueError, match=f"recipe: {message}"):
        _device_casts.require_cast(fp8lab.linear_recipe(name).activation)


def test_a_cast_refuses_the_sizes_that_the_library_refuses(device, monkeypatch):
    x = log_normal(4, 200)
    with pytest.raises(ValueError, match="x: expected k divisible by 128, got 200"):
        fp8lab.torch.quantize(x, "deepseek-v3")
    x = device.put(x)
    with device.running(monkeypatch), pytest.raises(ValueError, match="x: expected k divisible by 128, got 200"):
        fp8lab.torch.quantize(x, "deepseek-v3")


def step(layer, x, dy):
    x = x.clone().requires_grad_()
    for parameter in layer.parameters():
        parameter.grad = None
    y = layer(x)
    y.backward(dy)
    return y.detach(), x.grad, layer.weight.grad, layer.bias.grad


def layers_of(name, dtype, hardware=None):
    made = []
    for _ in range(2):
        torch.manual_seed(7)
        made.append(fp8lab.torch.Fp8Linear(200, 72, recipe=name, dtype=dtype, hardware=hardware))
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("name", "hardware"),
    [*((name, None) for name in RECIPES), ("bf16", "sm90"), ("torchao-rowwise-hp-wgrad", "sm90")],
)
def test_a_layer_on_a_device_has_the_bits_of_the_cpu(device, monkeypatch, name, hardware, dtype):
    on_cpu, on_device = layers_of(name, dtype, hardware)
    on_device = device.put(on_device)
    steps = [(log_normal(3, 7, 200, seed=i).to(dtype), log_normal(3, 7, 72, seed=50 + i).to(dtype)) for i in range(2)]
    expected = [step(on_cpu, *given) for given in steps]
    with monkeypatch.context() as patch:
        if name == "te-delayed":  # its checkpoints look at inputs, and so wait
            patch.setattr("fp8lab.torch._passes.fingerprint", lambda x: 0)
        placed = [device.put(given) for given in steps]
        with device.running(patch) as recorder:
            got = [step(on_device, *given) for given in placed]
        assert records(device, recorder, 6) and len(recorder.columns) == 2
    for mine, theirs in zip(got, expected):
        for what, one, other in zip(("y", "dx", "dw", "db"), mine, theirs):
            assert_same_bits(one, other, f"{name} {what}")


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("name", RECIPES)
def test_operators_on_a_device_give_what_they_give_on_the_cpu(device, monkeypatch, name, rows):
    """All their outputs, and their shapes where there is nothing to cast."""
    plan = plan_of(text_of(fp8lab.linear_recipe(name)))
    pasts = [plan.casts[role].initial_past() for role in ("weight", "activation", "gradient")]

    def outputs(weight, x, pasts):
        *codes, new = torch.ops.fp8lab.quantize_weight(weight, pasts[0], text_of(plan.recipe))
        return *codes, new, *torch.ops.fp8lab.linear(x, weight, None, *codes, *pasts[1:], text_of(plan.recipe))

    given = log_normal(72, 200), log_normal(rows, 200, seed=1), pasts
    expected = outputs(*given)
    placed = device.put(given[:2]), device.put(tuple(pasts))
    with device.running(monkeypatch):
        got = outputs(*placed[0], placed[1])
    for i, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        assert_same_bits(mine, theirs, f"{name} output {i}")


def test_operands_are_read_where_they_lie(device, monkeypatch):
    a = log_normal(16, 64).to(torch.float8_e4m3fn)
    wide = log_normal(128, 80).to(torch.float8_e4m3fn)
    b = wide[:64, 8:40]  # [k, n] of a wider matrix
    one = torch.tensor(0.5)
    expected = fp8lab.torch.scaled_mm(a, b, one, one, out_dtype=torch.float32)
    a, wide, one = device.put((a, wide, one))
    b = wide[:64, 8:40]
    with device.running(monkeypatch) as recorder:
        got = fp8lab.torch.scaled_mm(a, b, one, one, out_dtype=torch.float32)
        assert records(device, recorder, 1)
        (call,) = recorder.calls
    assert call["a"] == (a.data_ptr(), "e4m3fn", 16, 64, 64, 1)
    assert call["b"] == (b.data_ptr(), "e4m3fn", 32, 64, 1, 80)
    assert call["scale_a"] == (one.data_ptr(), 1, 16, 0)
    assert call["d"] == (got.data_ptr(), 16 * 32)
    assert_same_bits(got, expected)


def uneven(rows, k, seed=1):
    """E5M2 whose sums of 50 terms have exponents far apart, so that the order in which they are added shows."""
    sizes = torch.tensor([2.0 ** (5 * (i // 50) % 19 - 13) for i in range(k)])
    return (log_normal(rows, k, seed=seed) * sizes).to(torch.float8_e5m2)


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("splitk", [1, (2, "contiguous"), (3, "contiguous"), (4, "serial"), (5, "pairwise"), (40, "serial")])
def test_scaled_mm_on_a_device_has_the_bits_of_the_cpu(device, monkeypatch, out, rows, splitk):
    platform = "h100" if splitk == 1 or splitk[1] == "contiguous" else "rtx4060"
    a = (4 * log_normal(24, 700)).to(torch.float8_e4m3fn)
    b = uneven(40, 700).t()
    a[3, 5] = float("nan")
    scales = (log_normal(24, 1).abs(), log_normal(1, 40, seed=3).abs()) if rows else (torch.tensor(0.3), torch.tensor(-0.7))
    given = (a, b, *scales, log_normal(40).to(torch.bfloat16), torch.tensor(0.25), out)
    for fast in (True, False):
        expected = fp8lab.torch.scaled_mm(*given, fast, platform=platform, splitk=splitk)
        placed = device.put(given)
        with device.running(monkeypatch) as recorder:
            got = fp8lab.torch.scaled_mm(*placed, fast, platform=platform, splitk=splitk)
            assert recorder.calls
        assert_same_bits(got.view(torch.uint8) if out.itemsize == 1 else got, expected.view(torch.uint8) if out.itemsize == 1 else expected)


CALLS = [  # interval, parts, tile, cut, order, scale_order
    (0, 1, 128, "contiguous", "serial", "a_then_fma_b"),
    (128, 1, 128, "contiguous", "serial", "b_then_fma_a"),
    (128, 3, 128, "contiguous", "tree", "product_then_add"),
    (0, 5, 128, "modulo", "tree", "b_then_fma_a"),
    (64, 4, 64, "modulo", "pairwise", "a_then_b_then_add"),
    (0, 5, 128, "contiguous", "pairwise", "product_then_fma"),  # its last parts have no tile
    (0, 4, 128, "contiguous", "serial", "a_then_fma_b"),
]


def table_of(call, m, n, k, output):
    interval, parts, tile, cut, order, scale_order = call
    shape = f"{m},{n},{k},e4m3fn,e5m2,{output},slow,{m * n},1"
    return (
        "# fp8lab cublaslt 2\n# gpu: an example\n# model: sm90.wgmma.e4m3\n"
        "m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,rounding\n"
        f"{shape},{interval},{parts},{tile},{cut},{order},{scale_order},once\n"
    )


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("call", CALLS)
def test_a_table_of_calls_on_a_device_has_the_bits_of_the_cpu(device, monkeypatch, tmp_path, call, out):
    k = 1152 if call[5] == "a_then_fma_b" else 700  # nine tiles of 128 in parts of three, or an odd end
    table = tmp_path / "cublaslt.csv"
    table.write_text(table_of(call, 24, 40, k, {"float32": "f32", "bfloat16": "bf16"}.get(str(out)[6:], "e4m3fn")))
    a = (4 * log_normal(24, k)).to(torch.float8_e4m3fn)
    b = uneven(40, k).t()
    given = (a, b, torch.tensor(0.3), torch.tensor(-0.7), log_normal(40).to(torch.bfloat16), torch.tensor(0.25), out)
    expected = fp8lab.torch.scaled_mm(*given, splitk=str(table))
    given = device.put(given)
    with device.running(monkeypatch) as recorder:
        got = fp8lab.torch.scaled_mm(*given, splitk=str(table))
        tiles, parts = -(-k // call[2]), call[1]
        assert records(device, recorder, -(-tiles // -(-tiles // parts)) if call[3] == "contiguous" else parts)
        with pytest.raises(ValueError, match="expected a call in .*, got .*fast"):
            fp8lab.torch.scaled_mm(*given, True, splitk=str(table))
    assert_same_bits(got.view(torch.uint8) if out.itemsize == 1 else got, expected.view(torch.uint8) if out.itemsize == 1 else expected)


def test_tiles_on_a_device_have_the_bits_of_the_cpu(device, monkeypatch):
    a, b = (log_normal(n, 256, seed=n).to(torch.float8_e4m3fn) for n in (48, 144))
    scale_a = log_normal(2, 48, seed=2).abs().t()
    for scale_b in (log_normal(2, 144, seed=3).abs(), log_normal(2, 2, seed=4).abs()):
        given = (a, b.t(), scale_a, scale_b)
        expected = fp8lab.torch.scaled_mm(*given, out_dtype=torch.bfloat16)
        given = device.put(given)
        with device.running(monkeypatch) as recorder:
            got = fp8lab.torch.scaled_mm(*given, out_dtype=torch.bfloat16)
            assert recorder.calls
        assert_same_bits(got, expected)


def test_what_a_device_lacks_is_refused(device, monkeypatch):
    x, layer = log_normal(32, 64), fp8lab.torch.Fp8Linear(64, 32, recipe="torchao-rowwise-hp-wgrad")
    plain = fp8lab.torch.Fp8Linear(64, 32, recipe="bf16")
    e8m0 = torch.full((512,), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    codes = log_normal(32, 64).to(torch.float8_e4m3fn)
    x, layer, plain, codes, e8m0 = device.put((x, layer, plain, codes, e8m0))
    with device.running(monkeypatch) as recorder:
        with pytest.raises(ValueError, match="expected products of a matrix unit on a CUDA device, got bf16, whose fprop is in bf16"):
            plain(x)
        y = layer(x)
        with pytest.raises(ValueError, match="got torchao-rowwise-hp-wgrad, whose wgrad is in bf16"):
            y.backward(torch.ones_like(y))
        calls = len(recorder.calls)
        with pytest.raises(ValueError, match="platform: expected one without block-scaled instructions on a CUDA device, got b200"):
            fp8lab.torch.scaled_mm(codes, codes.t(), e8m0, e8m0, out_dtype=torch.bfloat16, platform="b200")
        assert len(recorder.calls) == calls


class Placed:
    """A tensor's device, without a GPU."""

    def __init__(self, device):
        self.device = torch.device(device)


def test_a_build_without_cuda_says_how_to_get_one(monkeypatch):
    how = r"pip install \./apps/python --config-settings=cmake\.define\.FP8LAB_ENABLE_CUDA=ON"
    monkeypatch.setattr(_device, "backends", lambda: ["cpu"])
    with pytest.raises(ValueError, match=rf"x: expected a CPU tensor, since fp8lab is built without CUDA, got one on cuda:0: .*{how}"):
        _device.require_place("x", Placed("cuda:0"))
    monkeypatch.setattr(_device, "backends", lambda: ["cpu", "cuda", "cuda-emulated"])
    _device.require_place("x", Placed("cuda:0"))
    with pytest.raises(ValueError, match="weight: expected a tensor on cuda:1, as the others, got one on cuda:0"):
        _device.require_place("weight", Placed("cuda:0"), Placed("cuda:1"))
    with pytest.raises(ValueError, match="weight: expected a tensor on cuda:0, as the others, got one on cpu"):
        _device.require_place("weight", Placed("cpu"), Placed("cuda:0"))
    with pytest.raises(ValueError, match="x: expected a CPU tensor, got one on mps:0"):
        _device.require_place("x", Placed("mps:0"))


def test_work_goes_to_torch_s_current_stream(monkeypatch):
    asked = []

    class Current:
        cuda_stream = 77

    def current_stream(device):
        asked.append(device)
        return Current

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    assert _device._place(Placed("cuda:1")) == (1, 77)
    assert asked == [torch.device("cuda:1")]


def test_layers_tell_inputs_apart_on_a_device():
    x = log_normal(8, 16)
    seen = {_device.device_fingerprint(one) for one in (x, x.flip(0), x.t(), -x, x + 0.0, x.bfloat16())}
    assert len(seen) == 5  # x + 0.0 is x


@pytest.mark.skipif("cuda-emulated" in fp8lab.backends(), reason="built with CUDA")
def test_the_compiled_part_says_so_too():
    matrix = (64, "e4m3fn", 16, 16, 16, 1)
    with pytest.raises(ValueError, match="device: expected a build with CUDA"):
        _core.device_workspace(a=matrix, b=matrix)


def test_shapes_of_cuda_tensors_are_known_without_a_device():
    from torch._subclasses.fake_tensor import FakeTensorMode

    plan = plan_of(text_of(fp8lab.linear_recipe("deepgemm")))
    text = text_of(plan.recipe)
    with FakeTensorMode():
        past = torch.empty(0, dtype=torch.int32, device="cuda")
        x = torch.empty(2, 128, 256, device="cuda", dtype=torch.bfloat16)
        weight = torch.empty(128, 256, device="cuda")
        *codes, _ = torch.ops.fp8lab.quantize_weight(weight, past, text)
        made = torch.ops.fp8lab.linear(x, weight, None, *codes, past, past, text)
        for one in (*codes, *made[:3]):
            assert one.device.type == "cuda"
        assert made[0].shape == (2, 128, 128) and made[0].dtype == torch.bfloat16
        words = torch.empty(16, 32, device="cuda", dtype=torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        b = torch.empty(32, 16, device="cuda", dtype=torch.uint8)
        given = (words.view(torch.uint8), b, one, one, None, None, "e4m3fn e4m3fn bf16", True, "h100", 1, "")
        d = torch.ops.fp8lab.scaled_mm(*given)
        assert (d.device.type, d.shape, d.dtype) == ("cuda", (16, 16), torch.bfloat16)
    for name in ("linear", "linear_backward", "quantize_weight", "quantize", "scaled_mm", "scaled_mm_tiles"):
        assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"fp8lab::{name}", "CUDA")
