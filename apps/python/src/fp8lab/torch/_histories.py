"""The amax histories of a converted model apart from its weights, for checkpoints of the model as it was before."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fp8lab.torch._convert import layers
from fp8lab.torch._plan import ROLES


def _places(model: nn.Module) -> dict[str, Tensor]:
    found = {}
    for name, layer in layers(model).items():
        for role in ROLES:
            past = layer._fp8_past(role)
            if past.numel():
                found[f"{name}.fp8_{role}_past".lstrip(".")] = past
    return found


def histories(model: nn.Module) -> dict[str, Tensor]:
    """The entries of a converted model's `state_dict` that the model without conversion does not have.

    Copies, by their names there: bits of binary32 in int32. Empty for recipes that use only the
    current tensor.

    >>> import torch, fp8lab.torch
    >>> model = fp8lab.torch.convert(torch.nn.Sequential(torch.nn.Linear(16, 16)), "te-delayed")
    >>> plain = {n: x for n, x in model.state_dict().items() if n not in fp8lab.torch.histories(model)}
    >>> torch.nn.Sequential(torch.nn.Linear(16, 16)).load_state_dict(plain)
    <All keys matched successfully>
    """
    return {name: past.clone() for name, past in _places(model).items()}


def load_histories(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Loads the histories of a state of the converted model; other entries are left alone.

    `from_pretrained` of a plain model drops them from a checkpoint of a converted one, and
    `convert` begins new ones: load them after it. ValueError for a history that is missing, that has
    no layer, or that has another length; then nothing is loaded.
    """
    places = _places(model)
    given = {name: x for name, x in state.items() if name.rpartition(".")[2] in {f"fp8_{role}_past" for role in ROLES}}
    missing, unknown = sorted(places.keys() - given.keys()), sorted(given.keys() - places.keys())
    if missing or unknown:
        what = f"none for {', '.join(missing[:3])}" if missing else f"{', '.join(unknown[:3])}, which is no history of it"
        raise ValueError(f"state: expected a history for each of the model's {len(places)}, got {what}")
    for name, past in places.items():
        if given[name].shape != past.shape or given[name].dtype != past.dtype:
            got = f"{given[name].dtype} {list(given[name].shape)}"
            raise ValueError(f"state: expected {name} of int32 {list(past.shape)}, got {got}")
    with torch.no_grad():
        for name, past in places.items():
            past.copy_(given[name])
