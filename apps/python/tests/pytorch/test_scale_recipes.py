"""`torch.nn.functional.scaled_mm`: recipes of scales, against rational arithmetic and torch's own checks."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import assert_same_bits, log_normal

import fp8lab
import fp8lab.torch

if not hasattr(torch.nn.functional, "scaled_mm"):
    pytest.skip("needs PyTorch 2.10", allow_module_level=True)

from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

E4M3 = torch.float8_e4m3fn
SWIZZLED = SwizzleType.SWIZZLE_32_4_4
ONE = torch.ones(())


def codes(rows, k, seed=0):
    return (log_normal(rows, k, seed=seed) * 4).clamp(-448, 448).to(E4M3)


def dense(rows, blocks, seed):
    """Scales [rows, blocks] with strides (1, rows), as the kernels want them."""
    return log_normal(blocks, rows, seed=seed).abs().t()


def binary32(x):
    """A rational rounded to the nearest binary32, ties to even."""
    first = np.float32(float(x))
    near = [first, np.nextafter(first, np.float32(np.inf)), np.nextafter(first, np.float32(-np.inf))]
    return min(near, key=lambda f: (abs(Fraction(float(f)) - x), int(f.view(np.uint32)) & 1))


def block_wise(a, b, scale_a, scale_b, square):
    """Over blocks of 128, fma(s_a * s_b, P, sum) if a tile is square, else fma(P * s_a, s_b, sum).

    scale_a [m, blocks] and scale_b [n, blocks].
    """
    (m, k), n = a.shape, len(b)
    total = np.zeros((m, n), np.float32)
    for block in range(-(-k // 128)):
        columns = slice(128 * block, 128 * (block + 1))
        chain = fp8lab.gemm(
            *(x[:, columns].contiguous().view(torch.uint8).numpy() for x in (a, b)),
            a_format="e4m3fn", b_format="e4m3fn", model="sm90.wgmma.e4m3",
        )
        for i in range(m):
            for j in range(n):
                p, s_a, s_b = (Fraction(float(x)) for x in (chain[i, j], scale_a[i, block], scale_b[j, block]))
                first, last = (s_a * s_b, p) if square else (p * s_a, s_b)
                total[i, j] = binary32(Fraction(float(binary32(first))) * last + Fraction(float(total[i, j])))
    return torch.from_numpy(total)


@pytest.mark.parametrize("kinds", [(1, 1), (1, 128), (128, 1)])
def test_blocks_of_128_against_rational_arithmetic(kinds):
    m, n, k, blocks = 5, 6, 640, 5
    a, b = codes(m, k), codes(n, k, 1)
    given, recipes, rows = [], [], []
    for side, size, kind in ((0, m, kinds[0]), (1, n, kinds[1])):
        if kind == 1:
            given.append(dense(size, blocks, 3 + side))
            rows.append(given[-1])
        else:
            padded = dense(8, 1, 3 + side)  # 5 blocks along k, up to a multiple of 4; one of rows
            given.append(padded)
            rows.append(padded[:blocks].t().expand(size, blocks))
        recipes.append(ScalingType.BlockWise1x128 if kind == 1 else ScalingType.BlockWise128x128)
    expected = block_wise(a, b, *rows, square=128 in kinds)
    how = dict(output_dtype=torch.float32)
    got = fp8lab.torch.scaled_mm(a, b.t(), given[0], recipes[0], given[1], recipes[1], **how)
    assert_same_bits(got, expected)
    with fp8lab.torch.emulate_scaled_mm("h100", strict=False):
        assert_same_bits(scaled_mm(a, b.t(), given[0], recipes[0], given[1], recipes[1], **how), expected)
        old = [rows[0] if kinds[0] == 1 else rows[0][:1], rows[1].t() if kinds[1] == 1 else rows[1][:1].t()]
        assert_same_bits(torch._scaled_mm(a, b.t(), *old, out_dtype=torch.float32), expected)
    bias = log_normal(n, seed=9)
    got = fp8lab.torch.scaled_mm(
        a, b.t(), given[0], recipes[0], given[1], recipes[1], bias=bias, output_dtype=torch.bfloat16
    )
    assert_same_bits(got, (expected + bias).bfloat16())


@pytest.mark.parametrize("of_b", ["square", "rows"])
def test_blocks_of_128_have_the_bits_of_an_h200(of_b):
    """Outputs of PyTorch 2.11 with cuBLASLt 13.1, 16x128x256: 1x128 tiles of A, and either of B."""
    kept = np.load(Path(__file__).with_name("h200_blockwise.npz"))
    a, b, scale_a, scale_b, d = (torch.from_numpy(kept[f"{of_b}_{x}"]) for x in ("a", "b", "scale_a", "scale_b", "d"))
    kinds = ScalingType.BlockWise1x128, getattr(ScalingType, "BlockWise128x128" if of_b == "square" else "BlockWise1x128")
    dense_a = scale_a.t().contiguous().t()
    dense_b = scale_b.t().contiguous().t()
    e4m3 = torch.float8_e4m3fn
    got = fp8lab.torch.scaled_mm(
        a.view(e4m3), b.view(e4m3).t(), dense_a, kinds[0], dense_b, kinds[1], output_dtype=torch.float32
    )
    assert_same_bits(got, d)


def test_128x128_tiles_of_several_rows():
    """Rows take the scale of their tile, in the padded layout of the library call."""
    a, b = codes(130, 256), codes(260, 256, 1)
    scale_a, scale_b = dense(130, 2, 3), dense(4, 3, 4)
    got = fp8lab.torch.scaled_mm(
        a, b.t(), scale_a, ScalingType.BlockWise1x128, scale_b, ScalingType.BlockWise128x128, output_dtype=torch.float32
    )
    by_row = scale_b[:2].t().repeat_interleave(128, 0)[:260]
    assert_same_bits(got, block_wise(a, b, scale_a, by_row, square=True))
    assert len(set(scale_b[:2].flatten().tolist())) == 6


def test_one_row_under_either_function():
    """[1, blocks] is a scale of 1x128 and of 128x128 tiles: the same product."""
    a, b, scale_a, scale_b = codes(1, 256), codes(200, 256, 1), dense(1, 2, 3), dense(4, 2, 4)
    kinds = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    how = dict(output_dtype=torch.float32)
    expected = fp8lab.torch.scaled_mm(a, b.t(), scale_a, kinds[0], scale_b, kinds[1], **how)
    assert_same_bits(expected, block_wise(a, b, scale_a, scale_b[:2].t().repeat_interleave(128, 0)[:200], square=True))
    got = fp8lab.torch.scaled_mm(a, b.t(), scale_a, scale_b[:2], out_dtype=torch.float32)
    assert_same_bits(got, expected)


@pytest.mark.parametrize("shape", [(16, 32, 64), (130, 40, 160), (256, 300, 512)])
def test_mxfp8_where_sums_are_exact(shape):
    to_blocked = pytest.importorskip("torchao.prototype.mx_formats.utils").to_blocked
    m, n, k = shape
    generator = torch.Generator().manual_seed(m)
    a, b = (torch.randint(-4, 5, (rows, k), generator=generator).to(E4M3) for rows in (m, n))
    exponents = [torch.randint(126, 130, (rows, k // 32), generator=generator) for rows in (m, n)]
    scales = [e.to(torch.uint8).view(torch.float8_e8m0fnu) for e in exponents]
    values = [x.double() * s.double().repeat_interleave(32, 1) for x, s in zip((a, b), scales)]
    blocked = [to_blocked(s) for s in scales]
    mx = ScalingType.BlockWise1x32
    expected = (values[0] @ values[1].t()).float()
    assert float(expected.abs().max()) < 2**20
    got = fp8lab.torch.scaled_mm(
        a, b.t(), blocked[0], mx, blocked[1], mx, SWIZZLED, SWIZZLED, output_dtype=torch.float32, platform="b200"
    )
    assert_same_bits(got + 0, expected + 0)
    with fp8lab.torch.emulate_scaled_mm("b200", strict=False):
        assert_same_bits(
            scaled_mm(a, b.t(), blocked[0], mx, blocked[1], mx, SWIZZLED, SWIZZLED), got.bfloat16()
        )
        assert_same_bits(torch._scaled_mm(a, b.t(), *blocked, out_dtype=torch.float32), got)


def test_whole_scales_are_those_of_the_older_function():
    a, b = codes(16, 256), codes(32, 256, 1)
    pairs = [
        ("TensorWise", torch.tensor(0.3), torch.tensor([0.7])),
        ("RowWise", log_normal(16, 1).abs(), log_normal(1, 32).abs()),
    ]
    for name, scale_a, scale_b in pairs:
        kind = getattr(ScalingType, name)
        for fast, bias in ((True, None), (False, None), (False, log_normal(32, seed=2).half())):
            old = fp8lab.torch.scaled_mm(
                a, b.t(), scale_a, scale_b, bias, out_dtype=torch.float16, use_fast_accum=fast
            )
            how = dict(bias=bias, output_dtype=torch.float16, use_fast_accum=fast, contraction_dim=(1, 0))
            assert_same_bits(fp8lab.torch.scaled_mm(a, b.t(), scale_a, kind, scale_b, kind, **how), old)
            with fp8lab.torch.emulate_scaled_mm("h100"):
                assert_same_bits(scaled_mm(a, b.t(), scale_a, kind, scale_b, kind, **how), old)


def wrong_calls():
    a, b = codes(256, 512), codes(384, 512, 1).t()
    tensor, row, mx = ScalingType.TensorWise, ScalingType.RowWise, ScalingType.BlockWise1x32
    e8m0 = torch.full((256, 16), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    e8m0_b = torch.full((384, 16), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    yield (a, b, ONE.bfloat16(), tensor, ONE, tensor), {}
    yield (a, b, ONE, tensor, torch.ones(2), tensor), {}
    yield (a, b, ONE, tensor, torch.ones(1, 384), row), {}
    yield (a, b[:64], ONE, tensor, ONE, tensor), {}
    yield (a.float(), b, ONE, tensor, ONE, tensor), {}
    yield (a[None], b, ONE, tensor, ONE, tensor), {}
    yield (a, b, ONE, tensor, ONE, tensor), {"bias": torch.ones(3)}
    yield (a, b, ONE, tensor, ONE, tensor), {"contraction_dim": (0, 1)}
    yield (a, b, [ONE, ONE], [tensor, tensor], ONE, tensor), {}
    yield (a, b, e8m0, mx, e8m0_b, mx), {}
    yield (a, b, e8m0, mx, e8m0_b, mx, SwizzleType.NO_SWIZZLE, SWIZZLED), {}
    yield (a, b, e8m0[:255], mx, e8m0_b, mx, SWIZZLED, SWIZZLED), {}


@pytest.mark.parametrize("arguments", list(wrong_calls()))
def test_wrong_arguments_have_torch_s_own_words(arguments):
    given, named = arguments
    with pytest.raises(ValueError) as theirs:
        scaled_mm(*given, **named)
    with fp8lab.torch.emulate_scaled_mm("b200"), pytest.raises(ValueError) as ours:
        scaled_mm(*given, **named)
    expected, got = (str(error.value).partition(" mat_a.dtype")[0].split("\n")[0] for error in (theirs, ours))
    assert got == expected


def test_wrong_numbers_of_whole_scales_are_told():
    a, b = codes(48, 64), codes(32, 64, 1).t()
    per_row, whole = ScalingType.RowWise, ScalingType.TensorWise
    right = {"scale_a": torch.ones(48), "scale_b": torch.ones(32)}
    for name, count in (("scale_a", 48), ("scale_b", 32)):
        for wrong, got in ((torch.ones(5), 5), (torch.ones(count).double(), count), ([], 0)):
            given = right | {name: wrong}
            with pytest.raises(ValueError, match=f"^{name} must have {count} Float elements, got {got}$"):
                fp8lab.torch.scaled_mm(a, b, given["scale_a"], per_row, given["scale_b"], per_row)
        for wrong in (torch.ones(5), ONE.double(), []):
            given = dict.fromkeys(right, ONE) | {name: wrong}
            with pytest.raises(ValueError, match=f"^{name} must have 1 Float element$"):
                fp8lab.torch.scaled_mm(a, b, given["scale_a"], whole, given["scale_b"], whole)


def test_what_no_cpu_of_torch_checks():
    a, b = codes(256, 512), codes(384, 512, 1).t()
    one, tiles = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    call = fp8lab.torch.scaled_mm
    with pytest.raises(ValueError, match=r"scale_a must have shape 256 x 4 Float elements, got \[4, 256\]"):
        call(a, b, torch.ones(4, 256), one, dense(384, 4, 0), one)
    with pytest.raises(ValueError, match=r"scale_a must have strides \(1, 256\); got \[4, 1\]"):
        call(a, b, torch.ones(256, 4), one, dense(384, 4, 0), one)
    for stride in (255, 257, 512):  # rows that overlap, or that lie apart
        x = torch.ones(2000).as_strided((256, 4), (1, stride))
        with pytest.raises(ValueError, match=rf"scale_a must have strides \(1, 256\); got \[1, {stride}\]"):
            call(a, b, x, one, dense(384, 4, 0), one)
    with pytest.raises(ValueError, match=r"scale_b must have shape 4 x 3 Float elements, got \[3, 4\]"):
        call(a, b, dense(256, 4, 0), one, torch.ones(3, 4), tiles)
    with pytest.raises(ValueError, match=r"unsupported recipe\(s\). Got mat_a.dtype=torch.float8_e5m2"):
        call(a.float().to(torch.float8_e5m2), b, dense(256, 4, 0), one, dense(384, 4, 0), one)
    with pytest.raises(NotImplementedError, match="only supported in CUDA for SM90, got b200"):
        call(a, b, dense(256, 4, 0), one, dense(384, 4, 0), one, platform="b200")
    with pytest.raises(NotImplementedError, match="only supported in CUDA for SM90, got b200"):
        call(a, b, dense(256, 4, 0), dense(384, 4, 0).t(), platform="b200")
    e8m0 = [torch.full((rows, 16), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu) for rows in (256, 384)]
    mx = ScalingType.BlockWise1x32
    with pytest.raises(NotImplementedError, match="block-scaled instructions \\(b200\\), got h100"):
        call(a, b, e8m0[0], mx, e8m0[1], mx, SWIZZLED, SWIZZLED)
    with pytest.raises(ValueError, match="splitk: expected 1 with scales of blocks, got 2"):
        call(a, b, dense(256, 4, 0), one, dense(384, 4, 0), one, splitk=2)
    for wrong in (-1, 6, 7, True, "TensorWise"):
        with pytest.raises(ValueError, match=f"scale_recipe_a: expected one of TensorWise, .*, got {wrong!r}$"):
            call(a, b, ONE, wrong, ONE, 0)
    with pytest.raises(ValueError, match="swizzle_b: expected one of NO_SWIZZLE, .*, got 3$"):
        call(a, b, ONE, 0, ONE, 0, 0, 3)


@pytest.mark.parametrize("shape", [(0, 16, 256), (16, 0, 256), (16, 32, 0)])
def test_empty_operands(shape):
    m, n, k = shape
    a, b = codes(m, k), codes(n, k, 1).t()
    row, one = ScalingType.RowWise, ScalingType.BlockWise1x128
    for got in (
        fp8lab.torch.scaled_mm(a, b, ONE, ONE, out_dtype=torch.float16),
        fp8lab.torch.scaled_mm(a, b, torch.ones(m), row, torch.ones(n), row, output_dtype=torch.float16),
        fp8lab.torch.scaled_mm(a, b, dense(m, k // 128, 0), one, dense(n, k // 128, 1), one, output_dtype=torch.float16),
    ):
        assert_same_bits(got, torch.zeros(m, n, dtype=torch.float16))


def test_out():
    a, b = codes(16, 64), codes(32, 64, 1).t()
    expected = fp8lab.torch.scaled_mm(a, b, ONE, ONE, out_dtype=torch.float32)
    for out in (torch.empty(16, 32), torch.empty(32, 16).t(), torch.empty(0)):
        assert fp8lab.torch.scaled_mm(a, b, ONE, ONE, out_dtype=torch.float32, out=out) is out
        assert_same_bits(out, expected)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        fp8lab.torch.scaled_mm(a, b, ONE, ONE, out_dtype=torch.float32, out=torch.empty(3, 3))
    with pytest.raises((ValueError, RuntimeError)) as theirs:  # the latter where a CPU has AVX-512
        torch._scaled_mm(a, b, ONE, ONE, out_dtype=torch.bfloat16, out=torch.empty(16, 32))
    with pytest.raises(ValueError, match=str(theirs.value)):
        fp8lab.torch.scaled_mm(a, b, ONE, ONE, out_dtype=torch.bfloat16, out=torch.empty(16, 32))
    with pytest.raises(RuntimeError, match=r"scaled_mm\(\): functions with out=... arguments don't support"):
        fp8lab.torch.scaled_mm(
            a, b, ONE, ONE, out_dtype=torch.float32, out=torch.empty(16, 32, requires_grad=True)
        )
    with fp8lab.torch.emulate_scaled_mm("h100", strict=False):
        out = torch.empty(16, 32)
        torch._scaled_mm(a, b, ONE, ONE, out_dtype=torch.float32, out=out)
        assert_same_bits(out, expected)
        out = torch.empty(16, 32)
        torch.ops.aten._scaled_mm_v2.out(a, b, [ONE], [0], [], [ONE], [0], [], None, torch.float32, out=out)
        assert_same_bits(out, expected)
    x, experts = log_normal(3, 16, 128), log_normal(3, 128, 32, seed=1)
    out = torch.empty(3, 16, 32)
    assert fp8lab.torch.grouped_mm(x, experts, out=out) is out
    assert_same_bits(out, fp8lab.torch.grouped_mm(x, experts))
    ends, out = torch.tensor([10, 20, 48], dtype=torch.int32), torch.empty(48, 32)
    fp8lab.torch.grouped_mm(x.reshape(48, 128), experts, ends, out=out)
    assert_same_bits(out, fp8lab.torch.grouped_mm(x.reshape(48, 128), experts, ends))


@pytest.mark.parametrize("out", ["f32", "bf16", "e4m3fn"])
@pytest.mark.parametrize("block_scaled", [True, False])
def test_tiles_pass_opcheck(out, block_scaled):
    a, b = codes(16, 256).view(torch.uint8), codes(32, 256, 1).view(torch.uint8).t()
    side = 32 if block_scaled else 128
    scales = [torch.full((rows, 256 // side), 0.5) for rows in (16, 32)]
    given = (a, b, *scales, log_normal(32), f"e4m3fn e4m3fn {out}", [1, side, 1, side], block_scaled)
    torch.library.opcheck(torch.ops.fp8lab.scaled_mm_tiles.default, (*given, "b200" if block_scaled else "h100"))


def test_compiled():
    a, b = codes(16, 256), codes(32, 256, 1).t()
    scales = dense(16, 2, 2), dense(32, 2, 3)
    kind = ScalingType.BlockWise1x128

    def call(a, b, scale_a, scale_b):
        return fp8lab.torch.scaled_mm(a, b, scale_a, kind, scale_b, kind) * 2

    assert_same_bits(torch.compile(call, fullgraph=True, backend="aot_eager")(a, b, *scales), call(a, b, *scales))
