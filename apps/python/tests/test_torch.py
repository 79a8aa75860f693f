"""CPU tensors of torch through DLPack and through views, in every place. Skipped without torch."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab
from fp8lab import _arrays
from fp8lab.testing import assert_matches

torch = pytest.importorskip("torch")

HOPPER = "sm90.wgmma.e4m3"


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def codes(*shape, seed=1, dtype=torch.float8_e4m3fn):
    return normal(*shape, seed=seed).to(dtype)


@pytest.mark.parametrize(
    ("dtype", "own"),
    [
        ("float32", np.float32),
        ("float16", np.float16),
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8_e5m2", ml_dtypes.float8_e5m2),
        ("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
        ("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
        ("uint8", np.uint8),
    ],
)
def test_tensors_are_read_in_place(dtype, own):
    x = (normal(6, 8).abs() * 8).to(getattr(torch, dtype))
    for tensor in (x, x.T, x[1:, ::2]):
        seen = _arrays.as_array("x", tensor)
        assert seen.dtype == own and seen.shape == tuple(tensor.shape)
        assert seen.__array_interface__["data"][0] == tensor.data_ptr()
        np.testing.assert_array_equal(seen.astype(np.float32), tensor.float().numpy())


def test_a_tensor_lives_as_long_as_its_array():
    seen = _arrays.as_array("x", normal(1 << 16).to(torch.bfloat16))
    again = normal(1 << 16).to(torch.bfloat16)
    np.testing.assert_array_equal(seen.view(np.uint16), again.view(torch.uint16).numpy())


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
def test_encode_and_decode(source):
    x = (normal(64, 32) * 20).to(getattr(torch, source))
    for name in ("e4m3fn", "e5m2"):
        ours = fp8lab.encode(x, name)
        theirs = x.to(getattr(torch, f"float8_{name}"))
        np.testing.assert_array_equal(ours.view(np.uint8), theirs.view(torch.uint8).numpy())
        np.testing.assert_array_equal(fp8lab.decode(theirs), theirs.float().numpy())
        np.testing.assert_array_equal(
            fp8lab.decode(theirs.view(torch.uint8), name), theirs.float().numpy()
        )
        back = torch.from_numpy(ours.view(np.uint8)).view(getattr(torch, f"float8_{name}"))
        assert torch.equal(back.float(), theirs.float())


@pytest.mark.parametrize(
    ("name", "profiles"),
    [
        # Releases differ: newer ones saturate E4M3, older ones make NaN of what is too large.
        ("e4m3fn", ("ocp_saturating", "ocp_nonsaturating")),
        ("e5m2", ("ocp_nonsaturating",)),
    ],
)
def test_torch_casts_as_a_named_profile(name, profiles):
    # A code depends on the upper half of a binary32 and on whether the lower is zero.
    words = np.arange(1 << 16, dtype=np.uint32) << 16
    words = np.concatenate([words | low for low in (0, 1, 0x8000, 0xFFFF)])
    theirs = torch.from_numpy(words.view(np.float32)).to(getattr(torch, f"float8_{name}"))
    theirs = theirs.view(torch.uint8).numpy()
    same = [
        np.array_equal(fp8lab.encode(words.view(np.float32), name, profile=p, dtype="uint8"), theirs)
        for p in profiles
    ]
    assert any(same)


def test_products_and_their_checks():
    a, b = codes(16, 256), codes(24, 256, seed=2)
    scales = {"scale_a": normal(16, seed=3).exp(), "scale_b": normal(24, seed=4).exp()}
    how = {"model": HOPPER, "promotion_interval": 128}
    d = fp8lab.gemm(a, b, **how, **scales)
    words = fp8lab.gemm(
        a.view(torch.uint8), b.view(torch.uint8), a_format="e4m3fn", b_format="e4m3fn", **how,
        **scales,
    )
    np.testing.assert_array_equal(d, words)
    weight = b.T.contiguous()  # [k, n]
    np.testing.assert_array_equal(fp8lab.gemm(a, weight.T, **how, **scales), d)
    with_c = fp8lab.gemm(a, b, c=normal(16, 24), c_enters="epilogue", **how)
    assert not np.array_equal(with_c, fp8lab.gemm(a, b, **how))

    got = torch.from_numpy(d)
    assert_matches(got, (a, b), **how, **scales)
    assert_matches(got.to(torch.bfloat16), (a, b), **how, **scales)
    with pytest.raises(AssertionError, match="mismatch"):
        assert_matches(got * 2, (a, b), **how, **scales)
    found = fp8lab.identify(got, (a, b), **scales)
    assert any(one.promotion_interval == 128 for one in found.ranking[0].members)
    assert fp8lab.compare(got.double(), got).mismatches == 0


def test_quantize_and_attention():
    x = normal(64, 256).to(torch.bfloat16)
    np.testing.assert_array_equal(
        fp8lab.quantize(x).codes, fp8lab.quantize(x.float().numpy()).codes
    )
    q, k, v = (normal(2, 64, 64, seed=s) for s in (1, 2, 3))
    expected = fp8lab.attention(q.numpy(), k.numpy(), v.numpy())
    np.testing.assert_array_equal(fp8lab.attention(q, k, v).o, expected.o)
    coded = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]
    again = fp8lab.attention(*coded)
    raw = fp8lab.attention(*(x.view(torch.uint8) for x in coded), codes_format="e4m3fn")
    np.testing.assert_array_equal(again.o, raw.o)


def test_what_cannot_be_read_says_what_to_do():
    with pytest.raises(ValueError, match="x: expected a detached CPU tensor .*, got Tensor"):
        fp8lab.encode(torch.empty(3, device="meta"))
    with pytest.raises(ValueError, match="x: expected a DLPack tensor of floats .*, got type code 5 of 64 bits"):
        fp8lab.encode(torch.zeros(3, dtype=torch.complex64))
