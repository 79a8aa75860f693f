"""`scaled_mm` against mmaemu, whose model was compared with recordings of the chips."""

import dataclasses

import numpy as np
import pytest
import torch
from conftest import assert_same_bits, bits, log_normal

import fp8lab
import fp8lab.torch

mmaemu = pytest.importorskip("mmaemu")

OUTPUTS = [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn]
PROFILES = {"h100": "hopper", "rtx4060": "ada"}
SPLITS = {"h100": (3, "contiguous"), "rtx4060": (3, "pairwise")}
LEAST_OUTPUTS = 1_000_000


def operands(m, n, k, seed, dtypes=(torch.float8_e4m3fn, torch.float8_e4m3fn)):
    a = (log_normal(m, k, seed=seed) * 4).clamp(-448, 448).to(dtypes[0])
    b = (log_normal(n, k, seed=seed + 1) * 4).clamp(-448, 448).to(dtypes[1])
    return a, b.t()


def differing(a, b, out, fast, platform, splitk, scale=2.0**-7):
    scales = torch.tensor(scale * 1.1), torch.tensor(0.73)
    result = torch.tensor(3.3)
    common = dict(scale_result=result, out_dtype=out, use_fast_accum=fast, splitk=splitk)
    ours = fp8lab.torch.scaled_mm(a, b, *scales, platform=platform, **common)
    theirs = mmaemu.scaled_mm(a, b, *scales, profile=PROFILES[platform], **common)
    return int((bits(ours) != bits(theirs)).sum()), ours.numel()


def test_a_million_outputs_have_mmaemu_s_bits():
    outputs = different = 0
    for seed, platform in enumerate(PROFILES):
        for fast in (True, False):
            for out in OUTPUTS:
                for shape, splitk in (((224, 256, 272), 1), ((96, 112, 656), SPLITS[platform])):
                    a, b = operands(*shape, seed=10 * seed + len(str(out)))
                    bad, count = differing(a, b, out, fast, platform, splitk)
                    different, outputs = different + bad, outputs + count
    print(f"{different} of {outputs} outputs differ from mmaemu {mmaemu.__version__}")
    assert different == 0
    assert outputs >= LEAST_OUTPUTS


def test_more_splits_formats_and_specials():
    for platform, scheme in (("h100", "contiguous"), ("rtx4060", "serial"), ("rtx4060", "pairwise")):
        for parts in (2, 4, 5):
            for fast in (True, False):
                a, b = operands(16, 16, 592, parts)
                assert differing(a, b, torch.float32, fast, platform, (parts, scheme))[0] == 0
    for k in (64, 192, 320):  # fewer tiles than parts, whose sums of nothing are added in their place
        for splitk in ((5, "serial"), (5, "pairwise"), (7, "pairwise")):
            a, b = operands(16, 16, k, 7)
            assert differing(a, b, torch.float32, True, "rtx4060", splitk)[0] == 0, (k, splitk)
    for dtypes in ((torch.float8_e5m2, torch.float8_e4m3fn), (torch.float8_e4m3fn, torch.float8_e5m2)):
        a, b = operands(32, 32, 256, 5, dtypes)
        assert differing(a, b, torch.bfloat16, False, "h100", 1)[0] == 0
    a, b = operands(32, 32, 64, 6)
    a.view(torch.uint8)[3, 5] = 0x7F
    for out in OUTPUTS:
        for scale in (2.0**-140, 2.0**120):
            assert differing(a, b, out, True, "h100", 1, scale)[0] == 0


def test_the_comparison_can_fail():
    """The chip's accumulator, promotion and split all show in the bits that are compared."""
    a, b = operands(64, 64, 512, 1)
    one = torch.tensor(1.0)
    how = dict(out_dtype=torch.float32, splitk=1)
    base = fp8lab.torch.scaled_mm(a, b, one, one, use_fast_accum=True, **how)
    others = [
        fp8lab.torch.scaled_mm(a, b, one, one, use_fast_accum=False, **how),
        fp8lab.torch.scaled_mm(a, b, one, one, use_fast_accum=True, platform="rtx4060", **how),
        fp8lab.torch.scaled_mm(
            a, b, one, one, use_fast_accum=True, out_dtype=torch.float32, splitk=(2, "contiguous")
        ),
    ]
    for other in others:
        assert (bits(base) != bits(other)).mean() > 0.2


def test_recorded_splits():
    a, b = operands(64, 5760, 1920, 3)
    one = torch.ones(())
    how = dict(out_dtype=torch.bfloat16, use_fast_accum=True)
    found = fp8lab.torch.scaled_mm(a, b, one, one, splitk="recorded", **how)
    assert_same_bits(found, fp8lab.torch.scaled_mm(a, b, one, one, splitk=1, **how))


TABLE = """\
# fp8lab cublaslt 2
# gpu: a simulated one
# model: sm90.wgmma.e4m3
m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,rounding
32,48,512,e4m3fn,e4m3fn,f32,fast,1536,1,0,4,128,contiguous,serial,product_then_fma,once
32,48,512,e4m3fn,e4m3fn,f32,slow,1536,2,0,4,128,contiguous,serial,product_then_fma,once
32,48,512,e4m3fn,e4m3fn,f32,slow,1536,2,0,4,128,contiguous,tree,b_then_fma_a,once
"""


def test_the_table_of_calls_that_was_observed(tmp_path):
    file = tmp_path / "cublaslt.csv"
    file.write_text(TABLE)
    a, b = operands(32, 48, 512, 4)
    scales = torch.tensor(0.011), torch.tensor(0.73)
    how = dict(out_dtype=torch.float32, splitk=str(file))
    fast = fp8lab.torch.scaled_mm(a, b, *scales, use_fast_accum=True, **how)
    named = dict(out_dtype=torch.float32, use_fast_accum=True)
    assert_same_bits(fast, fp8lab.torch.scaled_mm(a, b, *scales, splitk=(4, "contiguous"), **named))
    assert (bits(fast) != bits(fp8lab.torch.scaled_mm(a, b, *scales, **named))).mean() > 0.2
    chosen = fp8lab.torch.scaled_mm(a, b, *scales, out_dtype=torch.float32, splitk=f"{file}:order=tree")
    codes = [x.view(torch.uint8).numpy() for x in (a, b.t())]
    expected = fp8lab.gemm(
        *codes, a_format="e4m3fn", b_format="e4m3fn", model="sm90.wgmma.e4m3", scale_order="b_then_fma_a",
        split_k=fp8lab.SplitK(4, 128, "contiguous", "tree"), scale_a=scales[0].numpy(), scale_b=scales[1].numpy(),
    )
    assert_same_bits(chosen, torch.from_numpy(expected))
    kind = torch.nn.functional.ScalingType.TensorWise  # here it shows which scale is whose
    how_by_recipes = dict(output_dtype=torch.float32, splitk=f"{file}:order=tree")
    assert_same_bits(fp8lab.torch.scaled_mm(a, b, scales[0], kind, scales[1], kind, **how_by_recipes), chosen)
    with fp8lab.torch.emulate_scaled_mm("h100", splitk=str(file)):
        inside = torch._scaled_mm(a, b, *scales, out_dtype=torch.float32, use_fast_accum=True)
    assert_same_bits(inside, fast)
    for message, more in (
        (r"order=serial\|tree.*got 2 candidates", {}),
        ("expected a call in .* to bf16, slow", {"out_dtype": torch.bfloat16}),
        (r"splitk: expected a table of rtx4060 \(sm89.mma.e4m3\), got one of sm90.wgmma.e4m3",
         {"platform": "rtx4060", "use_fast_accum": True}),
    ):
        with pytest.raises(ValueError, match=message):
            fp8lab.torch.scaled_mm(a, b, *scales, **(how | more))
    rows = torch.ones(32, 1), torch.ones(1, 48)
    with pytest.raises(ValueError, match="splitk: expected one scale for each operand with a table, got 32"):
        fp8lab.torch.scaled_mm(a, b, *rows, use_fast_accum=True, **how)


@pytest.mark.parametrize(("m", "n"), [(48, 64), (1, 64), (48, 1)])
def test_row_wise_scales_and_bias(m, n):
    a, b = operands(m, n, 256, 2)
    scale_a, scale_b = log_normal(m, 1).abs(), log_normal(1, n, seed=1).abs()
    bias = log_normal(n, seed=2).bfloat16()
    codes = [x.view(torch.uint8).numpy() for x in (a, b.t())]
    total = fp8lab.gemm(
        *codes, a_format="e4m3fn", b_format="e4m3fn", model="sm90.wgmma.e4m3", promotion_interval=128
    )
    expected = (total * scale_b.numpy()) * scale_a.numpy() + bias.float().numpy()
    for out in (torch.float32, torch.bfloat16):
        got = fp8lab.torch.scaled_mm(a, b, scale_a, scale_b, bias, out_dtype=out)
        assert_same_bits(got, torch.from_numpy(expected).to(out))


@pytest.mark.parametrize("fast", [True, False])
def test_grouped_products_are_products_of_each_group(fast):
    def codes(*shape, seed):
        return (log_normal(*shape, seed=seed) * 4).clamp(-448, 448).to(E4M3)

    def scales(*shape, seed):
        return log_normal(*shape, seed=seed).abs()

    def one(a, b, scale_a, scale_b):
        rows = scale_a[:, None], scale_b[None]
        return fp8lab.torch.scaled_mm(a, b, *rows, out_dtype=BF16, use_fast_accum=fast)

    ends = torch.tensor([32, 32, 96], dtype=torch.int32)
    parts = [slice(0, 32), slice(32, 32), slice(32, 96)]
    row_wise = torch.nn.functional.ScalingType.RowWise
    with fp8lab.torch.emulate_scaled_mm("h100"):
        x, w = codes(112, 256, seed=1), codes(3, 64, 256, seed=2).mT  # rows of tokens; 16 belong to no group
        sx, sw = scales(112, seed=3), scales(3, 64, seed=4)
        y = torch._scaled_grouped_mm(x, w, sx, sw, ends, out_dtype=BF16, use_fast_accum=fast)
        assert_same_bits(y[:96], torch.cat([one(x[p], w[g], sx[p], sw[g]) for g, p in enumerate(parts)]))
        assert y.shape == (112, 64) and not y[96:].any()
        again = torch.nn.functional.scaled_grouped_mm(
            x, w, sx, row_wise, sw, row_wise, offs=ends, use_fast_accum=fast
        )
        assert_same_bits(again, y)
        a, b = codes(64, 96, seed=5), codes(48, 96, seed=6).t()  # groups of K, as for weights' gradients
        sa, sb = scales(3 * 64, seed=7), scales(3 * 48, seed=8)
        y = torch._scaled_grouped_mm(a, b, sa, sb, ends, out_dtype=BF16, use_fast_accum=fast)
        for g, p in enumerate(parts):
            assert_same_bits(y[g], one(a[:, p], b[p], sa[64 * g :][:64], sb[48 * g :][:48]))
        a, b = codes(3, 32, 64, seed=5), codes(96, 64, seed=6).t()  # groups of columns
        sa, sb = scales(3, 32, seed=7), scales(96, seed=8)
        y = torch._scaled_grouped_mm(a, b, sa, sb, ends, out_dtype=BF16, use_fast_accum=fast)
        assert_same_bits(y, torch.cat([one(a[g], b[:, p], sa[g], sb[p]) for g, p in enumerate(parts)], 1))
        b = codes(3, 48, 64, seed=9).mT  # a batch
        sb = scales(3, 48, seed=8)
        y = torch._scaled_grouped_mm(a, b, sa, sb, out_dtype=BF16, use_fast_accum=fast)
        assert_same_bits(y, torch.stack([one(a[g], b[g], sa[g], sb[g]) for g in range(3)]))
        with pytest.raises(RuntimeError, match="Offsets tensor not provided"):
            torch._scaled_grouped_mm(x, w, sx, sw, out_dtype=BF16)
        with pytest.raises(NotImplementedError, match="scale_recipe_a: expected RowWise for both operands, got .*TensorWise"):
            kind = torch.nn.functional.ScalingType.TensorWise
            torch.nn.functional.scaled_grouped_mm(x, w, sx, kind, sw, kind, offs=ends)


def test_errors_name_the_argument():
    a, b = operands(16, 32, 64, 0)
    one = torch.ones(())
    call = fp8lab.torch.scaled_mm
    with pytest.raises(ValueError, match="platform: expected one of h100, .*, got 'h900'"):
        call(a, b, one, one, platform="h900")
    with pytest.raises(ValueError, match=r"scale_a: expected float32, one value or \[16, 1\], got .* \[1, 16\]"):
        call(a, b, torch.ones(1, 16), one)
    with pytest.raises(ValueError, match="input: expected float8_e4m3fn or float8_e5m2, got torch.float32"):
        call(a.float(), b, one, one)
    with pytest.raises(ValueError, match="splitk: expected a scheme of h100"):
        call(a, b, one, one, splitk=(2, "serial"))
    with pytest.raises(TypeError, match=r"^scaled_mm\(\) missing 2 required positional arguments: 'scale_a'"):
        call(a, b)
    with pytest.raises(ValueError, match=r"mat2: expected \[64, n\], got \[32, 16\]"):
        call(a, b.reshape(32, 64)[:, :16], one, one)


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def refused_calls():
    """Name of the rule, PyTorch's words, operands, scales and more."""
    a, b = operands(32, 48, 64, 1)
    one, rows = torch.ones(()), (torch.ones(32, 1), torch.ones(1, 48))
    whole = (one, one)
    bias = torch.zeros(48)
    yield "k_of_16", r"Expected trailing dimension of mat1 to be divisible by 16 .* \(32x56\)", (a[:, :56], b[:56]), whole, {}
    yield "n_of_16", r"mat2 shape \(64x40\) must be divisible by 16", (a, b[:, :40]), whole, {}
    yield "e5m2_by_e5m2", "two Float8_e5m2 matrices is not supported", (a.to(FP32).to(E5M2), b.to(FP32).to(E5M2)), whole, {}
    for pair in ((a, b.contiguous()), (a.t().contiguous().t(), b)):
        yield "layout", "Only multiplication of row-major and column-major matrices is supported", pair, whole, {}
    yield "bias_with_float32", "Bias is not supported when out_dtype", (a, b), whole, {"bias": bias.to(BF16), "out_dtype": FP32}
    yield "bias_type", "Bias must be BFloat16 or Half, but got Float", (a, b), whole, {"bias": bias, "out_dtype": BF16}
    for out, wrong in ((BF16, FP16), (FP16, BF16)):
        yield f"bias_of_{str(out)[6:]}", "Bias must be", (a, b), whole, {"bias": bias.to(wrong), "out_dtype": out}
    for mixed in ((rows[0], one), (one, rows[1])):
        yield "scaling", "Invalid scaling configuration", (a, b), mixed, {"out_dtype": BF16}


@pytest.mark.parametrize("case", list(refused_calls()), ids=lambda case: case[0])
def test_the_patch_refuses_what_a_gpu_refuses(case):
    rule, text, pair, scales, how = case
    how = {"out_dtype": FP32, **how}
    with fp8lab.torch.emulate_scaled_mm("h100"):
        with pytest.raises(ValueError if rule == "e5m2_by_e5m2" else RuntimeError, match=text) as refused:
            torch._scaled_mm(*pair, *scales, **how)
    assert f"rule {rule} of PyTorch's CUDA call" in str(refused.value)
    with fp8lab.torch.emulate_scaled_mm("h100", strict=False):
        got = torch._scaled_mm(*pair, *scales, **how)
    assert_same_bits(got, fp8lab.torch.scaled_mm(*pair, *scales, **how))
    if rule == "layout":  # Blackwell takes all
        with fp8lab.torch.emulate_scaled_mm("b200"):
            torch._scaled_mm(*pair, *scales, **how)
    if rule == "scaling":
        return
    kind = torch.nn.functional.ScalingType.TensorWise
    how = {"bias": how.get("bias"), "output_dtype": how["out_dtype"]}
    with fp8lab.torch.emulate_scaled_mm("h100"):
        with pytest.raises(RuntimeError if rule == "layout" else ValueError, match=text):
            torch.nn.functional.scaled_mm(*pair, scales[0], kind, scales[1], kind, **how)


def test_the_patch_takes_what_a_gpu_takes():
    a, b = operands(32, 48, 64, 1)
    one, rows = torch.ones(()), (torch.ones(32, 1), torch.ones(1, 48))
    with fp8lab.torch.emulate_scaled_mm("h100"):
        for out, bias in ((BF16, BF16), (FP16, FP16), (E4M3, BF16), (E4M3, FP16), (BF16, None), (FP32, None)):
            given = None if bias is None else torch.ones(48, dtype=bias)
            torch._scaled_mm(a, b, one, one, given, out_dtype=out)
        torch._scaled_mm(a, b, *rows, out_dtype=BF16)
        torch._scaled_mm(a[:1], b, one, one, out_dtype=BF16)
        torch._scaled_mm(a[3:, :48], b[:48], one, one, out_dtype=BF16)  # rows that lie apart
        torch._scaled_mm(a.to(FP32).to(E5M2), b, one, one, out_dtype=BF16)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("recipe", "dtype", "outputs"),
    [
        ("tensorwise", torch.bfloat16, True),
        ("tensorwise", torch.float16, True),
        ("tensorwise", torch.float32, False),  # where torchao keeps FP32
        ("rowwise", torch.bfloat16, True),
        ("rowwise_with_gw_hp", torch.bfloat16, True),
    ],
)
def test_the_patch_gives_torchao_s_modules_hopper_s_bits(recipe, dtype, outputs, bias):
    float8 = pytest.importorskip("torchao.float8")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 128, bias=bias)).to(dtype)
    config = float8.Float8LinearConfig.from_recipe_name(recipe)
    theirs = float8.convert_to_float8_training(model, config=config)
    x = log_normal(64, 256).to(dtype).requires_grad_()
    dy = log_normal(64, 128, seed=4).to(dtype)
    with fp8lab.torch.emulate_scaled_mm("h100", strict=dtype != torch.float32):
        y = theirs(x)
        y.backward(dy)
    name = {"rowwise_with_gw_hp": "rowwise-hp-wgrad"}.get(recipe, recipe)
    made = dataclasses.replace(fp8lab.linear_recipe(f"torchao-{name}"), bf16_outputs=outputs)
    ours = fp8lab.torch.Fp8Linear(256, 128, bias, dtype=dtype, recipe=made)
    ours.load_state_dict(theirs[0].state_dict())
    z = x.detach().clone().requires_grad_()
    w = ours(z)
    w.backward(dy)
    assert_same_bits(y, w)
    assert_same_bits(x.grad, z.grad)
    if not recipe.endswith("_hp"):  # a BF16 product of torch's own, in its own order
        assert_same_bits(theirs[0].weight.grad, ours.weight.grad)
    if bias and dtype != torch.float32:  # in the sum, as an epilogue adds it, it gives other bits
        epilogue = fp8lab.torch.Fp8Linear(256, 128, dtype=dtype, recipe=dataclasses.replace(made, bias_after_rounding=False))
        epilogue.load_state_dict(ours.state_dict())
        assert (bits(epilogue(z)) != bits(w)).mean() > 0.1
