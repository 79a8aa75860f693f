"""FSDP on two ranks against one process that computes the batches of both, bit for bit."""

import contextlib
import copy

import pytest
import torch
import torch.distributed as dist
from conftest import assert_same_bits
from ranks import RANKS, on_ranks

import fp8lab.torch

transformers = pytest.importorskip("transformers")
fsdp = pytest.importorskip("torch.distributed.fsdp")
if not hasattr(fsdp, "fully_shard"):
    pytest.skip("needs fully_shard (PyTorch 2.6)", allow_module_level=True)

SMALL = dict(
    vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, use_cache=False, tie_word_embeddings=False,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))


def mixtral():
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)
    return transformers.MixtralForCausalLM(config)


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(3, 64, (1, 16), generator=generator)


def reduced(model, recipe):
    """What a step of a recipe with a history needs."""
    return fp8lab.torch.reduced_amaxes(model) if recipe == "te-delayed" else contextlib.nullcontext()


def loss_of(model, step, rank):
    ids = batch(step, rank)
    return model(input_ids=ids, labels=ids).loss


def shard(model, **how):
    for layer in model.model.layers:
        fsdp.fully_shard(layer, **how)
    return fsdp.fully_shard(model, **how)


def full_state(model):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def train(model, recipe, rank, steps, first=0):
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(first, first + steps):
        with reduced(model, recipe):
            loss_of(model, step, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def before(make, recipe, rank, steps):
    return train(shard(fp8lab.torch.convert(make(), recipe)), recipe, rank, steps)


def after(make, recipe, rank, steps):
    """Converted when it is sharded, one layer as a unit of its own."""
    model = make()
    fsdp.fully_shard(model.model.layers[0].mlp.down_proj)
    fp8lab.torch.convert(shard(model), recipe)
    layer = model.model.layers[0].mlp.down_proj
    assert isinstance(layer, fsdp.FSDPModule) and isinstance(layer, fp8lab.torch.Fp8Linear)
    return train(model, recipe, rank, steps)


def mixed(make, recipe, rank, steps):
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return train(shard(fp8lab.torch.convert(make(), recipe), mp_policy=policy), recipe, rank, steps)


def meta(make, recipe, rank, steps):
    """Built without memory, which it gets in shards."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    whole = make()
    with torch.device("meta"):
        model = make()
    model = shard(fp8lab.torch.convert(model, recipe))
    model.to_empty(device="cpu")
    set_model_state_dict(model, whole.state_dict(), options=StateDictOptions(full_state_dict=True, strict=False))
    for (_, mine), (_, theirs) in zip(model.named_buffers(), fp8lab.torch.convert(whole, recipe).named_buffers(), strict=True):
        if mine.dtype.is_floating_point:  # of rotary embeddings, which to_empty left without values
            mine.copy_(theirs)
    return train(model, recipe, rank, steps)


def saved(make, recipe, rank, steps, folder):
    """Through a distributed checkpoint in the middle."""
    import torch.distributed.checkpoint as checkpoint

    model = train(shard(fp8lab.torch.convert(make(), recipe)), recipe, rank, steps // 2)
    checkpoint.save(model.state_dict(), checkpoint_id=folder)
    fresh = shard(fp8lab.torch.convert(make(), recipe))
    state = fresh.state_dict()
    checkpoint.load(state, checkpoint_id=folder)
    fresh.load_state_dict(state)
    return train(fresh, recipe, rank, steps - steps // 2, steps // 2)


def flat(make, recipe, rank, steps):
    """FSDP1."""
    model = fsdp.FullyShardedDataParallel(
        fp8lab.torch.convert(make(), recipe), use_orig_params=True, device_id=torch.device("cpu")
    )
    return train(model, recipe, rank, steps)


CASES = {
    "deepgemm": (before, llama, "deepgemm", 20),
    "te-current": (before, llama, "te-current", 5),
    "te-delayed": (before, llama, "te-delayed", 20),
    "converted later, deepgemm": (after, llama, "deepgemm", 5),
    "converted later, te-delayed": (after, llama, "te-delayed", 5),
    "mixed precision": (mixed, llama, "te-current", 5),
    "meta, te-delayed": (meta, llama, "te-delayed", 5),
    "checkpoint, te-delayed": (saved, llama, "te-delayed", 6),
    "experts": (before, mixtral, "deepgemm", 5),
    "FSDP1, te-current": (flat, llama, "te-current", 5),
}


def rank_of(index, folder):
    dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    states = {}
    for name, (run, make, recipe, steps) in CASES.items():
        more = [f"{folder}/checkpoint"] if run is saved else []
        states[name] = full_state(run(make, recipe, index, steps, *more))
    if index == 0:
        torch.save(states, f"{folder}/states.pt")


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("sharded"))
    on_ranks(rank_of, folder)
    return torch.load(f"{folder}/states.pt")


def alone(make, recipe, steps, dtype=None):
    """One process: gradients of the two batches one after the other, and their mean."""
    master = make()
    model = fp8lab.torch.convert(copy.deepcopy(master), recipe)
    for step in range(steps):
        for own, whole in zip(model.parameters(), master.parameters(), strict=True):
            own.data = whole.detach().to(dtype or whole.dtype)
            own.grad = None
        gradients = []
        with reduced(model, recipe):
            for rank in range(RANKS):
                loss_of(model, step, rank).backward()
                gradients.append([p.grad.float() for p in model.parameters()])
                model.zero_grad()
        with torch.no_grad():
            for whole, *parts in zip(master.parameters(), *gradients, strict=True):
                whole.sub_(sum(parts) / RANKS, alpha=0.05)
    state = model.state_dict()
    state.update(master.state_dict())
    return state


@pytest.mark.parametrize("name", CASES)
def test_steps_have_the_bits_of_one_process(states, name):
    run, make, recipe, steps = CASES[name]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        expected = alone(make, recipe, steps, torch.bfloat16 if run is mixed else None)
    finally:
        dist.destroy_process_group()
    got = states[name]
    assert got.keys() == expected.keys()
    assert ("model.layers.0.mlp.up_proj.fp8_weight_past" in got) == (recipe == "te-delayed")
    for one, value in expected.items():
        assert_same_bits(got[one], value, f"{name}: {one}")
    start = make().state_dict()
    assert all(not torch.equal(got[one], start[one]) for one in start if one.endswith("_proj.weight"))
