"""What the tests of fp8lab.torch share; `./dev torch` runs them."""

import numpy as np
import pytest
import torch


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a GPU that torch sees, and a build with CUDA")


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)
    torch.manual_seed(1)


def bits(x):
    """The words of a tensor, for comparisons that tell -0 from 0."""
    word = {1: np.uint8, 2: np.uint16, 4: np.uint32}[x.element_size()]
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()]
    return x.detach().cpu().contiguous().view(integer).numpy().view(word)


def assert_same_bits(got, expected, what=""):
    assert got.dtype == expected.dtype and got.shape == expected.shape, what
    different = bits(got) != bits(expected)
    if different.any():
        at = tuple(int(i) for i in np.argwhere(different)[0])
        pytest.fail(
            f"{what}: {different.sum()} of {different.size} differ; first at {at}: "
            f"expected {expected[at]} ({bits(expected)[at]:#x}), got {got[at]} ({bits(got)[at]:#x})"
        )


def log_normal(*shape, seed=0, spread=1.5):
    """Values over several binades, so that scales, underflow and truncation all matter."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator)
    return x * torch.exp(spread * torch.randn(*shape, generator=generator))
