"""Amaxes reduced over ranks: the state that one process would have with all the rows."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import assert_same_bits, log_normal
from ranks import RANKS, on_ranks
from torch import nn

import fp8lab.torch

STEPS, ROWS = 3, 16


def model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))
    return fp8lab.torch.convert(net, "te-delayed", rule="all")


def batch(step):
    """Rows whose magnitudes differ between the ranks, now the first's larger and now the second's."""
    spread = torch.ones(RANKS * ROWS, 1)
    spread[ROWS * (step % 2) :][:ROWS] = 2.0 ** (3 + step)
    return log_normal(RANKS * ROWS, 32, seed=step) * spread, log_normal(RANKS * ROWS, 16, seed=9 + step) * spread


def pasts(net):
    return {name: one for name, one in net.state_dict().items() if "past" in name}


def rank(index, results, reduces):
    net, seen = model(), []
    mine = slice(ROWS * index, ROWS * (index + 1))
    for step in range(STEPS):
        x, dy = (part[mine] for part in batch(step))
        if reduces:
            with fp8lab.torch.reduced_amaxes(net):
                for half in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):  # two micro-batches
                    y = net(x[half])
                    y.backward(dy[half])
        else:
            y = net(x)
            y.backward(dy)
        seen.append(({name: one.clone() for name, one in pasts(net).items()}, y.detach()[-ROWS // 2 :]))
    results[index] = seen


def seen_on_ranks(reduces):
    with mp.Manager() as manager:
        results = manager.dict()
        on_ranks(rank, results, reduces)
        return [results[index] for index in range(RANKS)]


def test_every_rank_has_the_scales_of_one_process_with_all_rows():
    found, whole = seen_on_ranks(reduces=True), model()
    for step in range(STEPS):
        x, dy = batch(step)
        y = whole(x)
        y.backward(dy)
        assert len(pasts(whole)) == 6
        for index in range(RANKS):
            states, last = found[index][step]
            for name, expected in pasts(whole).items():
                assert torch.equal(states[name], expected), f"step {step}, rank {index}, {name}"
            end = ROWS * (index + 1)
            assert_same_bits(last, y.detach()[end - ROWS // 2 : end])


def test_without_a_reduction_the_ranks_drift_apart():
    one, other = (seen[-1][0] for seen in seen_on_ranks(reduces=False))
    assert not torch.equal(one["0.fp8_activation_past"], other["0.fp8_activation_past"])


def test_errors():
    with pytest.raises(ValueError, match="group: expected torch.distributed.init_process_group before"):
        with fp8lab.torch.reduced_amaxes(model()):
            pass
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        plain = fp8lab.torch.convert(nn.Sequential(nn.Linear(32, 16)), "te-current")
        with pytest.raises(ValueError, match="model: expected a converted layer with delayed scales, got none"):
            with fp8lab.torch.reduced_amaxes(plain):
                pass
        net = model()
        before = {name: one.clone() for name, one in pasts(net).items()}
        with pytest.raises(RuntimeError, match="mine"), fp8lab.torch.reduced_amaxes(net):
            net(batch(0)[0])
            raise RuntimeError("mine")
        for name, one in pasts(net).items():
            assert torch.equal(one, before[name])
        net(batch(0)[0])
        assert any(not torch.equal(one, before[name]) for name, one in pasts(net).items())
    finally:
        dist.destroy_process_group()
