"""What only a GPU can show: the kernels themselves, streams, threads, autograd and compiled graphs."""

import threading

import numpy as np
import pytest
import torch
from conftest import assert_same_bits, bits, log_normal
from devices import needs_gpu
from fake_device import RECIPES
from torch import nn
from torch.utils.checkpoint import checkpoint

import fp8lab
import fp8lab.torch
from fp8lab.torch import _device

pytestmark = [*needs_gpu, pytest.mark.filterwarnings("ignore::fp8lab.NonFiniteWarning")]

WORDS = {"e4m3fn": np.uint8, "e5m2": np.uint8, "f16": np.uint16, "bf16": np.uint16}
SHAPES = [(1, 1, 1), (3, 5, 7), (1, 130, 33), (128, 128, 128), (65, 257, 384), (300, 20, 1000)]


def has_kernel(model):
    a = model.accumulator
    return (
        a.kind == "fused_dot_product"
        and a.alignment_fraction_bits <= 30
        and model.a_format in WORDS
        and model.b_format in WORDS
    )


MODELS = [name for name, model in fp8lab.models().items() if has_kernel(model)]


def operand(name, rows, k, seed):
    """Any bits at all, so that infinities, NaN and subnormal numbers come too, but few."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, k)) * np.exp(rng.standard_normal((rows, k)))).astype(np.float32)
    words = fp8lab.encode(x, name, profile="nvidia_nosat", dtype=WORDS[name])
    wild = rng.integers(0, 2 ** (8 * words.itemsize), words.shape).astype(words.dtype)
    return np.where(rng.random((rows, 1)) < 0.2, wild, words)


def on_gpu(words):
    return torch.from_numpy(words.view(np.int16) if words.itemsize == 2 else words).cuda()


def assert_words(got, expected, what=""):
    assert_same_bits(got, torch.from_numpy(np.ascontiguousarray(expected)), what)


@pytest.mark.parametrize("name", MODELS)
def test_products_of_a_model_have_the_bits_of_the_cpu(name):
    model = fp8lab.models()[name]
    for seed, (m, n, k) in enumerate(SHAPES):
        a, b = operand(model.a_format, m, k, seed), operand(model.b_format, n, k, 99 + seed)
        for interval in (0, 128):
            expected = fp8lab.gemm(
                a, b, model=model, a_format=model.a_format, b_format=model.b_format, promotion_interval=interval
            )
            got = _device.product(
                on_gpu(a),
                on_gpu(b),
                formats=(model.a_format, model.b_format),
                model=model.accumulator,
                promotion_interval=interval,
            )
            assert_words(got, expected, f"{name} {m} {n} {k} promoted at {interval}")


@pytest.mark.parametrize("name", ["sm90.mma.e4m3", "exact32", "gfx942.mfma.f16", "sm100.tcgen05.mxf8f6f4.e4m3"])
def test_a_model_without_a_kernel_is_refused(name):
    model = fp8lab.models()[name]
    a = torch.zeros(16, 64, dtype=torch.uint8, device="cuda")
    with pytest.raises(ValueError, match="model: expected a fused dot product"):
        _device.product(a, a, formats=("e4m3fn", "e4m3fn"), model=model.accumulator)


def laid_out(x, how):
    """The same matrix elsewhere in memory."""
    rows, k = x.shape
    if how == "transposed":
        return x.t().contiguous().t()
    if how == "odd address":
        return torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(rows, k)
    if how == "wider rows":
        wide = x.new_zeros(rows, k + 24)
        wide[:, 8 : k + 8] = x
        return wide[:, 8 : k + 8]
    if how == "every other":
        wide = x.new_zeros(2 * rows, 3 * k)
        wide[::2, 1::3] = x
        return wide[::2, 1::3]
    return x


@pytest.mark.parametrize("shape", [(128, 256, 512), (33, 70, 200)])
@pytest.mark.parametrize("name", ["sm90.wgmma.e4m3", "sm90.wgmma.bf16"])
def test_strides_and_addresses_do_not_matter(name, shape):
    m, n, k = shape
    model = fp8lab.models()[name]
    formats = model.a_format, model.b_format
    a, b = operand(formats[0], m, k, 1), operand(formats[1], n, k, 2)
    expected = fp8lab.gemm(a, b, model=model, a_format=formats[0], b_format=formats[1])
    ways = ("plain", "transposed", "odd address", "wider rows", "every other")
    for left in ways:
        for right in ways:
            given = laid_out(on_gpu(a), left), laid_out(on_gpu(b), right)
            got = _device.product(*given, formats=formats, model=model.accumulator)
            assert_words(got, expected, f"{left}, {right}")


def pair(m=512, n=384, k=1024):
    a, b = ((4 * log_normal(rows, k, seed=rows)).to(torch.float8_e4m3fn) for rows in (m, n))
    return a, b.t(), torch.tensor(0.3), torch.tensor(-0.7)


def delayed_product(a, b, *scales):
    """The operands are written late on the current stream: a product on another one reads zeros."""
    left, right = torch.zeros_like(a, device="cuda"), torch.zeros_like(b, device="cuda")
    ready = [x.cuda() for x in (a, b, *scales)]
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)  # about 0.1 s
    left.copy_(ready[0])
    right.copy_(ready[1])
    return fp8lab.torch.scaled_mm(left, right, *ready[2:], out_dtype=torch.float32)


@pytest.mark.parametrize("stream", ["default", "new", "high priority", "external"])
def test_work_is_ordered_on_the_current_stream(stream):
    given = pair()
    expected = fp8lab.torch.scaled_mm(*given, out_dtype=torch.float32)
    if stream == "default":
        assert torch.cuda.current_stream().cuda_stream == 0
        assert_same_bits(delayed_product(*given), expected)
        return
    chosen = torch.cuda.Stream(priority=-1 if stream == "high priority" else 0)
    if stream == "external":
        chosen = torch.cuda.ExternalStream(chosen.cuda_stream)
    with torch.cuda.stream(chosen):
        got = delayed_product(*given)
        assert not chosen.query()  # the host did not wait
    chosen.synchronize()
    assert_same_bits(got, expected)


def test_memory_given_back_is_used_again_in_order():
    """Packed operands live in torch's memory, which the next call may get while this one runs."""
    given = [pair(100 + i, 90, 330 + i) for i in range(6)]
    expected = [fp8lab.torch.scaled_mm(*one, out_dtype=torch.bfloat16) for one in given]
    placed = [tuple(x.cuda() for x in one) for one in given]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(20):
        with torch.cuda.stream(side):
            got = [fp8lab.torch.scaled_mm(*one, out_dtype=torch.bfloat16) for one in placed]
        side.synchronize()
        for mine, theirs in zip(got, expected):
            assert_same_bits(mine, theirs)


def test_threads_have_streams_of_their_own():
    given = pair()
    expected = fp8lab.torch.scaled_mm(*given, out_dtype=torch.float32)
    got = {}

    def work(i):
        with torch.cuda.stream(torch.cuda.Stream() if i % 2 else torch.cuda.default_stream()):
            got[i] = fp8lab.torch.scaled_mm(*(x.cuda() for x in given), out_dtype=torch.float32).cpu()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 6
    for one in got.values():
        assert_same_bits(one, expected)


def test_a_cuda_graph_replays_the_product():
    given = tuple(x.cuda() for x in pair(70, 50, 200))
    fp8lab.torch.scaled_mm(*given, out_dtype=torch.float32)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = fp8lab.torch.scaled_mm(*given, out_dtype=torch.float32)
    given[0].copy_(pair(71, 50, 200)[0][:70])
    graph.replay()
    assert_same_bits(got, fp8lab.torch.scaled_mm(*(x.cpu() for x in given), out_dtype=torch.float32))


def two_layers(name, dtype=torch.bfloat16):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(96, 160), nn.ReLU(), nn.Linear(160, 64)).to(dtype)
    return fp8lab.torch.convert(model, name, rule="all")


def train(model, run, place, steps=3):
    """Bits of outputs and gradients; parameters move by powers of two, which round alike everywhere."""
    seen = []
    for i in range(steps):
        x = log_normal(40, 96, seed=i).to(torch.bfloat16).to(place).requires_grad_()
        y = run(x)
        y.backward(log_normal(40, 64, seed=50 + i).to(torch.bfloat16).to(place))
        seen += [y.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]
        with torch.no_grad():
            for p in model.parameters():
                p -= p.grad.sign() * 2.0**-6
                p.grad = None
    return seen


@pytest.mark.parametrize("how", ["eager", "checkpointed", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["te-delayed", "torchao-rowwise", "deepgemm"])
def test_training_on_a_gpu_has_the_bits_of_the_cpu(name, how):
    on_cpu, on_gpu = two_layers(name), two_layers(name).cuda()
    expected = train(on_cpu, on_cpu, "cpu")
    run = on_gpu
    if how == "checkpointed":
        run = lambda x: checkpoint(on_gpu, x, use_reentrant=False)  # noqa: E731
    elif how != "eager":
        torch.compiler.reset()
        run = torch.compile(on_gpu, fullgraph=True, backend=how)
    for i, (mine, theirs) in enumerate(zip(train(on_gpu, run, "cuda"), expected)):
        assert_same_bits(mine, theirs, f"{name} {how} {i}")
    for (key, mine), theirs in zip(on_gpu.state_dict().items(), on_cpu.state_dict().values()):
        assert torch.equal(mine.cpu(), theirs), key


@pytest.mark.parametrize("name", ["te-current", "deepseek-v3"])
def test_a_context_and_the_recording_of_a_gpu_agree_with_the_cpu(name):
    name = name if name in RECIPES else "deepgemm"
    x, w = log_normal(48, 128).to(torch.bfloat16), log_normal(64, 128, seed=1).to(torch.bfloat16)
    with fp8lab.torch.autocast(name):
        expected = torch.nn.functional.linear(x, w)
        got = torch.nn.functional.linear(x.cuda(), w.cuda())
    assert_same_bits(got, expected)
    numbers = []
    for place in ("cpu", "cuda"):
        model = two_layers(name).to(place)
        with fp8lab.torch.record(model) as recording:
            model(log_normal(40, 96).to(torch.bfloat16).to(place)).sum().backward()
        numbers.append(recording.scalars())
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("name", ["te-current", "torchao-rowwise", "deepgemm", "deepseek-v3"])
@pytest.mark.parametrize("role", ["activation", "weight", "gradient"])
def test_quantize_on_a_gpu_has_the_bits_of_the_cpu(name, role):
    if name not in fp8lab.presets():
        pytest.skip(f"no preset {name}")
    x = log_normal(300, 640, seed=8, spread=3)
    for mine, theirs in zip(fp8lab.torch.quantize(x.cuda(), name, role), fp8lab.torch.quantize(x, name, role)):
        np.testing.assert_array_equal(bits(mine), bits(theirs))


def test_tensors_of_two_places_are_refused():
    a, b, one, other = pair(32, 32, 64)
    gpu = [x.cuda() for x in (a, b, one, other)]
    with pytest.raises(ValueError, match="mat2: expected a tensor on cuda:0, as the others, got one on cpu"):
        fp8lab.torch.scaled_mm(gpu[0], b, *gpu[2:])
    with pytest.raises(ValueError, match="scale_b: expected a tensor on cuda:0, as the others, got one on cpu"):
        fp8lab.torch.scaled_mm(*gpu[:3], other)
    layer = fp8lab.torch.Fp8Linear(64, 32, recipe="deepgemm")
    with pytest.raises(ValueError, match="expected a tensor on cuda:0, as the others, got one on cpu"):
        layer(log_normal(32, 64).cuda())


def test_empty_tensors():
    a, b, one, other = (x.cuda() for x in pair(16, 32, 64))
    for left, right in ((a[:0], b), (a, b[:, :0]), (a[:, :0], b[:0])):
        got = fp8lab.torch.scaled_mm(left, right, one, other, out_dtype=torch.float32)
        assert got.shape == (len(left), right.shape[1]) and not got.any()
