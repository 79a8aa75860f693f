"""Where products run: what a build has, and what it says about the rest."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab

MODEL = "sm90.wgmma.e4m3"
ON_A_GPU = ("cuda", "cuda-emulated")
built_with_cuda = set(ON_A_GPU) <= set(fp8lab.backends())


def operands():
    rng = np.random.default_rng(1)
    return [rng.standard_normal((n, 96)).astype(ml_dtypes.float8_e4m3fn) for n in (5, 7)]


def test_cpu_is_there_and_the_default():
    assert fp8lab.backends()[0] == "cpu"
    a, b = operands()
    expected = fp8lab.gemm(a, b, model=MODEL)
    np.testing.assert_array_equal(fp8lab.gemm(a, b, model=MODEL, backend="cpu"), expected)


def test_an_unknown_backend_is_refused_with_the_names():
    a, b = operands()
    with pytest.raises(ValueError, match=r"backend: expected one of cpu.*, got 'tpu'") as error:
        fp8lab.gemm(a, b, model=MODEL, backend="tpu")
    assert "FP8LAB_ENABLE_CUDA" not in str(error.value)


@pytest.mark.skipif(built_with_cuda, reason="built with CUDA")
@pytest.mark.parametrize("backend", ON_A_GPU)
def test_a_build_without_cuda_says_how_to_get_one(backend):
    a, b = operands()
    how = r"--config-settings=cmake\.define\.FP8LAB_ENABLE_CUDA=ON"
    with pytest.raises(ValueError, match=rf"backend: expected one of cpu; .*{how}, got '{backend}'"):
        fp8lab.gemm(a, b, model=MODEL, backend=backend)


@pytest.mark.skipif(not built_with_cuda, reason="built without CUDA")
@pytest.mark.parametrize("backend", ON_A_GPU)
def test_a_gpu_gives_the_bits_of_the_model_or_is_missed(backend):
    a, b = operands()
    try:
        d = fp8lab.gemm(a, b, model=MODEL, backend=backend)
    except ValueError as error:
        assert "no CUDA device" in str(error) or "needs a device" in str(error)
        pytest.skip(str(error))
    np.testing.assert_array_equal(d, fp8lab.gemm(a, b, model=MODEL))


@pytest.mark.skipif(not built_with_cuda, reason="built without CUDA")
def test_a_model_that_the_chip_does_not_have_is_refused():
    a, b = operands()
    with pytest.raises(ValueError, match="backend: expected one that has the product"):
        fp8lab.gemm(a, b, model="exact", backend="cuda")
