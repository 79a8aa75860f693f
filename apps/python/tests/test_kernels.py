"""Library calls by name, K in parts and epilogues: the library's, through the package."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab

f32 = np.float32


def operands(m=16, n=12, k=1024, seed=0):
    rng = np.random.default_rng(seed)
    return (
        fp8lab.encode(rng.standard_normal((m, k), f32)),
        fp8lab.encode(rng.standard_normal((n, k), f32)),
    )


def block_scales(rng, call, rows):
    """Scales that a block-scaled instruction applies: E8M0 per 32 terms, or UE4M3 per 16."""
    block, low, dtype = (16, 40, ml_dtypes.float8_e4m3fn) if "1x16" in call.scales else (32, 124, ml_dtypes.float8_e8m0fnu)
    codes = rng.integers(low, low + 8, (rows, 1024 // block), dtype=np.uint8)
    return fp8lab.Scales(codes.view(dtype), 1, block)


def test_every_call_computes_and_verifies():
    rng = np.random.default_rng(8)
    for name, call in fp8lab.calls().items():
        a, b = operands()
        if "nvfp4" in name:
            a, b = (x.astype(np.float32).astype(ml_dtypes.float4_e2m1fn) for x in (a, b))
        scales = {}
        if call.scales.startswith(("1x32", "1x16")):
            scales = {"scale_a": block_scales(rng, call, 16), "scale_b": block_scales(rng, call, 12)}
        if call.scales.startswith("1x128"):
            of_b = fp8lab.Scales(rng.random((1, 8), f32), 128, 128)
            if call.scales.endswith("1x128"):
                of_b = fp8lab.Scales(rng.random((12, 8), f32), 1, 128)
            scales = {"scale_a": fp8lab.Scales(rng.random((16, 8), f32), 1, 128), "scale_b": of_b}
        options = {"model": call.model, "promotion_interval": call.promotion_interval, "scale_order": call.scale_order}
        d = fp8lab.gemm(a, b, call=name, **scales)
        assert np.array_equal(d, fp8lab.gemm(a, b, **options, **scales)), name
        assert fp8lab.verify(d, (a, b), call=name, **scales).verdict == "pass", name
        assert call.standing in ("measured", "from literature", "assumed")


def test_a_call_reads_other_formats_and_row_scales():
    rng = np.random.default_rng(1)
    a, b = operands()
    b = fp8lab.encode(rng.standard_normal((12, 1024), f32), "e5m2")
    scales = {"scale_a": rng.random(16, f32), "scale_b": rng.random(12, f32)}
    by_name = fp8lab.gemm(a, b, call="cublaslt.h100.fast", **scales)
    model = fp8lab.models()["sm90.wgmma.e4m3.e5m2"]
    by_hand = fp8lab.gemm(a, b, model=model, scale_order="b_then_fma_a", **scales)
    assert np.array_equal(by_name, by_hand)
    assert not np.array_equal(by_name, fp8lab.gemm(a, b, model=model, **scales))


def test_a_call_with_tiles_of_scales_needs_them():
    a, b = operands()
    scales = {f"scale_{name}": fp8lab.Scales(np.ones((rows, 8), f32), 1, 128) for name, rows in (("a", 16), ("b", 12))}
    tiled = [name for name, call in fp8lab.calls().items() if call.scales.startswith("1x128")]
    assert "deepgemm.h100" in tiled and "triton.block.hopper" in tiled
    for name in tiled:
        groups = fp8lab.Groups("batched")
        for lost in ("scale_a", "scale_b"):
            rest = {key: value for key, value in scales.items() if key != lost}
            message = f"^(group 0: )?{lost}: expected scales of 1x128 and .*, as {name} has, got none$"
            with pytest.raises(ValueError, match=message):
                fp8lab.gemm(a, b, call=name, **rest)
            with pytest.raises(ValueError, match=message):
                stacked = {key: value._replace(values=value.values[None]) for key, value in rest.items()}
                fp8lab.gemm_groups(a[None], b[None], groups, call=name, **stacked)
        assert fp8lab.gemm(a, b, call=name, **scales).any()
        nothing = {"scale_a": fp8lab.Scales(np.ones((0, 8), f32), 1, 128), "scale_b": scales["scale_b"]}
        assert fp8lab.gemm(a[:0], b, call=name, **nothing).shape == (0, 12)


def test_what_a_call_decides_is_not_given_again():
    a, b = operands()
    for other in ({"model": "fp32"}, {"promotion_interval": 64}, {"scale_order": "product_then_add"}):
        with pytest.raises(ValueError, match="expected none with call 'deepgemm.h100', which sets it"):
            fp8lab.gemm(a, b, call="deepgemm.h100", **other)
    with pytest.raises(ValueError, match="call: expected one of .* such as cublaslt.h100.fast|call: expected one of .*did you mean cublaslt.h100.fast"):
        fp8lab.gemm(a, b, call="cublas")
    with pytest.raises(ValueError, match="model: expected an instruction"):
        fp8lab.gemm(a, b)
    with pytest.raises(ValueError, match="split_k: expected K whole"):
        fp8lab.gemm(a, b, call="cutlass.h100.fp8", split_k=fp8lab.SplitK(2))


def test_parts_of_k_are_added_in_their_order():
    a, b = operands()
    parts = [
        fp8lab.gemm(
            np.concatenate([a[:, t * 128 :][:, :128] for t in (i, i + 4)], 1),
            np.concatenate([b[:, t * 128 :][:, :128] for t in (i, i + 4)], 1),
            model="sm90.wgmma.e4m3",
        )
        for i in range(4)
    ]
    wanted = {
        "serial": ((parts[0] + parts[1]) + parts[2]) + parts[3],
        "tree": (parts[0] + parts[1]) + (parts[2] + parts[3]),
        "pairwise": (parts[3] + (parts[0] + parts[2])) + parts[1],
    }
    for order, d in wanted.items():
        split = fp8lab.SplitK(4, 128, "modulo", order)
        assert np.array_equal(fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", split_k=split), d), order


def test_an_epilogue_step_by_step():
    rng = np.random.default_rng(3)
    a, b = operands()
    sums = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3")
    row, column, bias = rng.random(16, f32), rng.random(12, f32), rng.random(12, f32)
    epilogue = fp8lab.Epilogue(bias=bias, row_scales=row, column_scales=column, activation="relu", output_scale=3)
    z = np.maximum(sums * row[:, None] * column + bias, 0) * f32(3)
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", epilogue=epilogue)
    assert np.array_equal(d, z)
    codes = z.astype(ml_dtypes.float8_e4m3fn)
    how = {"model": "sm90.wgmma.e4m3", "epilogue": epilogue}
    assert fp8lab.verify(codes, (a, b), **how).verdict in ("pass", "no power")
    found = fp8lab.identify(d, (a, b), epilogue=epilogue)
    assert found.explained and "sm90.wgmma.e4m3" in found.ranking[0].members[0].models


def test_a_kernel_in_float32_with_silu_passes_and_a_wrong_one_is_named():
    a, b = operands(seed=4)
    small = fp8lab.Epilogue(alpha=0.05)
    v = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", epilogue=small)
    kernel = v / (f32(1) + np.exp(-v))
    how = {"model": "sm90.wgmma.e4m3", "epilogue": fp8lab.Epilogue(alpha=0.05, activation="silu")}
    report = fp8lab.verify(kernel, (a, b), **how)
    assert report.verdict == "pass" and "within the allowance of the activation" in str(report)
    gated = fp8lab.Epilogue(alpha=0.05, activation="swiglu")
    halves = kernel[:, :6] * v[:, 6:]
    assert fp8lab.verify(halves, (a, b), model="sm90.wgmma.e4m3", epilogue=gated).verdict == "pass"
    exchanged = fp8lab.verify(kernel[:, 6:] * v[:, :6], (a, b), model="sm90.wgmma.e4m3", epilogue=gated)
    assert exchanged.verdict == "mismatch"


def test_c_enters_with_beta_or_where_it_is_said():
    a, b = operands()
    c = np.random.default_rng(5).standard_normal((16, 12), f32)
    sums = fp8lab.gemm(a, b, model="fp32")
    d = fp8lab.gemm(a, b, model="fp32", c=c, epilogue=fp8lab.Epilogue(beta=2))
    assert np.array_equal(d, sums + f32(2) * c)
    for epilogue, match in (
        (fp8lab.Epilogue(beta=2), "beta: expected a C"),
        (fp8lab.Epilogue(bias=np.ones(3)), r"bias: expected floats \[12\] or \[1, 12\], got f32 \[3\]"),
        (fp8lab.Epilogue(activation="mish"), "activation: expected one of none"),
    ):
        with pytest.raises(ValueError, match=match):
            fp8lab.gemm(a, b, model="fp32", epilogue=epilogue)


TABLE = """\
# fp8lab cublaslt 2
# gpu: a simulated one
# model: sm90.wgmma.e4m3
m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,rounding
16,12,1024,e4m3fn,e4m3fn,bf16,fast,192,1,0,2,128,contiguous,serial,b_then_fma_a,once
16,12,1024,e4m3fn,e4m3fn,bf16,slow,192,2,128,1,128,contiguous,serial,product_then_fma,once
16,12,1024,e4m3fn,e4m3fn,bf16,slow,192,2,0,4,64,modulo,tree,product_then_fma,once
16,12,1024,e4m3fn,e4m3fn,f16,fast,192,1,0,1,128,contiguous,serial,product_then_fma,sum_too
"""


def test_calls_of_a_table_that_was_observed(tmp_path):
    file = tmp_path / "cublaslt.csv"
    file.write_text(TABLE)
    fast, slow, _ = fp8lab.observed_calls(file)
    assert (fast.m, fast.output, fast.fast, fast.outputs) == (16, "bf16", True, 192)
    assert fast.fitting == (
        fp8lab.CallModel(0, 2, 128, "contiguous", "serial", "b_then_fma_a", "once"),
    )
    assert [model.order for model in slow.fitting] == ["serial", "tree"]

    a, b = operands()
    scales = {"scale_a": f32(0.3), "scale_b": f32(0.7)}
    model = {"model": "sm90.wgmma.e4m3"}
    halves = fp8lab.gemm(
        a, b, **model, **scales, split_k=fp8lab.SplitK(2, 128), scale_order="b_then_fma_a"
    )
    call = f"{file}:fast,output=bf16"
    assert np.array_equal(fp8lab.gemm(a, b, call=call, **scales), halves)
    assert fp8lab.verify(halves.astype(ml_dtypes.bfloat16), (a, b), call=call, **scales).verdict == "pass"
    with pytest.raises(ValueError, match="call: expected output=f32, as the product's, got .*output=bf16"):
        fp8lab.verify(halves, (a, b), call=call, **scales)
    tree = fp8lab.gemm(a, b, **model, split_k=fp8lab.SplitK(4, 64, "modulo", "tree"))
    assert np.array_equal(fp8lab.gemm(a, b, call=f"{file}:slow,output=bf16,order=tree"), tree)

    for text, message, more in (
        (f"{file}:slow,output=bf16", r"order=serial\|tree.*got 2 candidates", {}),
        (f"{file}:fast", "the output's format with a table", {}),
        (f"{file}:fast,output=f32", "expected a call in .*, got 16x12x1024", {}),
        (f"{file}:fast,output=f16", "rounding: expected once, as products round, got sum_too", {}),
        (f"{tmp_path}/none.csv:fast,output=bf16", "none.csv", {}),
        (call, "scale_a: expected one scale", {"scale_a": np.ones(16, f32)}),
        (call, "split_k: expected none with a table", {"split_k": fp8lab.SplitK(2)}),
        (call, "expected none with call", {"promotion_interval": 64}),
    ):
        with pytest.raises(ValueError, match=message):
            fp8lab.gemm(a, b, call=text, **more)

    file.write_text(TABLE.replace("fast,192,1,0,2,128", "fast,192,1,0,4,128"))
    assert fp8lab.observed_calls(file)[0].fitting[0].parts == 4
    file.write_text(TABLE.replace("fast,192,1,0,2", "fast,192,1,0,x"))
    with pytest.raises(ValueError, match="cublaslt.csv:5: parts"):
        fp8lab.gemm(a, b, call=call)


def test_a_split_beside_a_call_is_taken_as_it_is():
    a, b = operands()
    for call, tile in (("cublaslt.h100.slow", 128), ("cublaslt.h100.fast", 128)):
        known = fp8lab.calls()[call]
        how = {"model": known.model, "promotion_interval": known.promotion_interval}
        for asked, used in ((0, tile), (256, 256), (512, 512)):
            split = fp8lab.SplitK(2, asked)
            d = fp8lab.gemm(a, b, call=call, split_k=split)
            assert np.array_equal(d, fp8lab.gemm(a, b, split_k=fp8lab.SplitK(2, used), **how)), (call, asked)
            groups = fp8lab.Groups("batched")
            assert np.array_equal(fp8lab.gemm_groups(a[None], b[None], groups, call=call, split_k=split)[0], d)
    # Tiles of unlike size, so that sums in another order round otherwise.
    rng = np.random.default_rng(2)
    binades = np.exp2(6 - np.arange(2048) // 64 % 13)
    a, b = ((rng.standard_normal((16, 2048)) * binades).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    ada = {"call": "cublaslt.rtx4060.slow"}
    outputs = {
        (tile, order): fp8lab.gemm(a, b, **ada, split_k=fp8lab.SplitK(4, tile, "modulo", order)).tobytes()
        for tile in (0, 64, 128, 256)
        for order in ("serial", "pairwise")
    }
    assert outputs[0, "serial"] == outputs[64, "serial"] and outputs[0, "pairwise"] == outputs[64, "pairwise"]
    assert len(set(outputs.values())) == 6, "each tile and order has bits of its own"
    with pytest.raises(ValueError, match="^split_k: expected modulo serial or modulo pairwise, the known splits"):
        fp8lab.gemm(a, b, **ada, split_k=fp8lab.SplitK(4, 0, "contiguous", "serial"))
    # One part is no split: whatever else it says is not asked of the call.
    whole = fp8lab.gemm(a, b, call="cublaslt.h100.fast")
    assert np.array_equal(fp8lab.gemm(a, b, call="cublaslt.h100.fast", split_k=fp8lab.SplitK(1, 64, "modulo", "tree")), whole)


def test_a_setting_of_zero_is_a_setting():
    a, b = operands()
    sums = fp8lab.gemm(a, b, model="fp32")
    c = np.random.default_rng(7).standard_normal((16, 12), f32)
    groups = fp8lab.Groups("batched")
    for epilogue, expected, more in (
        (fp8lab.Epilogue(output_scale=0.0), sums * f32(0), {}),
        (fp8lab.Epilogue(alpha=0.0, bias=np.ones(12, f32)), np.ones_like(sums), {}),
        (fp8lab.Epilogue(beta=0.0), sums, {"c": c}),
        (fp8lab.Epilogue(activation="leaky_relu", slope=0.0), np.where(sums > 0, sums, sums * f32(0)), {}),
        (fp8lab.Epilogue(output_scale=2.0, beta=0.5, alpha=0.25), (f32(0.25) * sums + f32(0.5) * c) * f32(2), {"c": c}),
    ):
        d = fp8lab.gemm(a, b, model="fp32", epilogue=epilogue, **more)
        np.testing.assert_allclose(d, expected, rtol=1e-6)
        assert not np.array_equal(d, sums) or epilogue.beta == 0
        stacked = {key: value[None] for key, value in more.items()}
        grouped = fp8lab.gemm_groups(a[None], b[None], groups, model="fp32", epilogue=epilogue, **stacked)
        assert np.array_equal(grouped[0].view(np.uint32), d.view(np.uint32))


@pytest.mark.parametrize("call", ["", "cublas", " ", "deepgemm.h100 "])
def test_a_name_that_is_no_call_is_refused(call):
    a, b = operands()
    for model in (None, "fp32"):
        with pytest.raises(ValueError, match="^(call|model): expected"):
            fp8lab.gemm(a, b, call=call, model=model)
        with pytest.raises(ValueError, match="^(call|model): expected"):
            fp8lab.gemm_groups(a[None], b[None], fp8lab.Groups("batched"), call=call, model=model)
    with pytest.raises(ValueError, match="^call: expected a name, got 3$"):
        fp8lab.gemm(a, b, call=3)
