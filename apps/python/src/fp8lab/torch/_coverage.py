"""Which weights of a model enter products, what `convert` does with each, and how much that is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from fp8lab import _core
from fp8lab.torch._layers import Fp8Conv1D, Fp8Layer, Fp8Linear
from fp8lab.torch._products import Fp8Product, Fp8Products, parts_of

Filter = Callable[[str, nn.Module], bool]

#: Packages whose linear layers already multiply in low precision.
_LOW_PRECISION = (
    "torchao", "bitsandbytes", "auto_gptq", "gptqmodel", "transformer_engine", "optimum", "compressed_tensors",
)  # fmt: skip
_ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight")
#: Where a parameter of two dimensions or more is looked up or added.
_NO_PRODUCT = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
_NO_PRODUCT_NAMES = ("embed", "token", "bias", "table", "norm")
BY_FILTER = "the filter leaves it out"


class HighPrecisionWarning(UserWarning):
    """Products that stay in high precision where FP8 was asked for."""


@dataclasses.dataclass(frozen=True)
class Matrices:
    """A parameter that enters products: one matrix, or several below each other."""

    name: str  #: as `decisions` has it: of its module, and with the parameter's own where others may be
    module: nn.Module
    parameter: str
    weight: Tensor
    kind: str  #: "linear", "products", or why it cannot be converted
    active: float = 1.0  #: the share of its matrices that multiply a token

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.weight.shape[-2:]
        return rows // (3 if self.parameter == "in_proj_weight" else 1), columns


def is_conv1d(kind: type[nn.Module]) -> bool:
    return kind is Fp8Conv1D or (kind.__name__, kind.__module__) == ("Conv1D", "transformers.pytorch_utils")


def original_class(module: nn.Module) -> type[nn.Module]:
    return module.__dict__.get("_fp8_original", type(module))


def _kind_of_linear(module: nn.Module) -> str:
    kind = original_class(module)
    package = kind.__module__.partition(".")[0]
    if package in _LOW_PRECISION:
        return f"a layer of {package}"
    if not module.weight.is_floating_point():  # type: ignore[operator]
        return f"its weight is of {module.weight.dtype}"
    return "linear" if kind.forward in (nn.Linear.forward, Fp8Linear.forward) else "products"


def _is_experts(module: nn.Module) -> bool:
    return "expert" in original_class(module).__name__.lower()


def _active_share(config: Any, weight: Tensor) -> float:
    """The experts of a token over all, where a configuration says it."""
    for name in ("num_experts_per_tok", "moe_topk", "top_k"):
        count = getattr(config, name, None)
        if isinstance(count, int) and count > 0:
            return min(1.0, count / weight.shape[0])
    return 1.0


def _others(name: str, module: nn.Module, config: Any) -> Iterator[Matrices]:
    """The own parameters of a module that is no linear layer."""
    for own, weight in module.named_parameters(recurse=False):
        full = f"{name}.{own}".lstrip(".")
        if weight.dim() < 2 or weight.shape[0] == 1 or isinstance(module, _NO_PRODUCT):
            continue
        if any(part in full.rpartition(".")[2].lower() for part in _NO_PRODUCT_NAMES):
            continue
        if weight.dim() == 3 and _is_experts(module):
            yield Matrices(full, module, own, weight, "products", _active_share(getattr(module, "config", config), weight))
        else:
            yield Matrices(full, module, own, weight, f"a parameter of {original_class(module).__name__}")


def matrices(model: nn.Module) -> list[Matrices]:
    """All weights of a model that enter products, as far as classes and names tell."""
    found: list[Matrices] = []
    of_attention = set()
    for name, module in model.named_modules():
        if isinstance(module, Fp8Product) or module in of_attention:
            continue
        if isinstance(module, nn.MultiheadAttention):
            of_attention.add(module.out_proj)
            own = dict(module.named_parameters())
            found += [
                Matrices(f"{name}.{one}".lstrip("."), module, one, own[one], "products") for one in _ATTENTION if one in own
            ]
        elif isinstance(module, nn.Linear):
            found.append(Matrices(name, module, "weight", module.weight, _kind_of_linear(module)))
        elif is_conv1d(type(module)):
            found.append(Matrices(name, module, "weight", module.weight, "linear"))  # type: ignore[arg-type]
        else:
            found += _others(name, module, getattr(model, "config", None))
    return found


def is_converted(one: Matrices) -> bool:
    if isinstance(one.module, Fp8Products):
        return one.parameter in one.module._fp8_products
    return isinstance(one.module, Fp8Layer)


class Decisions(dict[str, str]):
    """By name of each weight that enters products: why it is not converted, or "" if it is.

    parameters: the share of their elements that is converted; flops: the share of a token's
    multiplications with them, where a token takes as many experts as the configuration says. What
    is looked up (embeddings) and the products of attention have no part in either.
    """

    def __init__(self, reasons: dict[str, str], sizes: dict[str, tuple[int, float]]) -> None:
        super().__init__(reasons)
        self._sizes = sizes

    def share(self, flops: bool = False, filtered: bool = True) -> float:
        """Of the parameters or the FLOPs. filtered: what the filter leaves out counts as left out."""
        counted = [n for n, why in self.items() if filtered or why != BY_FILTER]
        total = sum(self._sizes[name][flops] for name in counted)
        return sum(self._sizes[name][flops] for name in counted if not self[name]) / total if total else 0.0

    @property
    def parameters(self) -> float:
        return self.share()

    @property
    def flops(self) -> float:
        return self.share(flops=True)

    def largest_left(self, count: int = 3) -> list[str]:
        """Names, with reasons, of the largest weights that are left."""
        left = [name for name, why in self.items() if why and why != BY_FILTER]
        left.sort(key=lambda name: -self._sizes[name][0])
        return [f"{name} ({self[name]})" for name in left[:count]]


def tied_to_embedding(model: nn.Module) -> set[int]:
    return {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}


def decided(model: nn.Module, filter: Filter | None, rule: str) -> tuple[Decisions, list[Matrices]]:
    """The decisions, and what they are about, in the same order."""
    found = matrices(model)
    embeddings = tied_to_embedding(model)
    reasons: dict[str, str] = {}
    sizes = {}
    for one in found:
        why = "" if one.kind in ("linear", "products") else one.kind
        why = why or _core.why_not_converted(rule, f"{one.name}.weight", *one.shape)
        if not why and rule == "linear" and id(one.weight) in embeddings:
            why = "the weight is that of an embedding"
        if not why and filter is not None and not filter(one.name, one.module):
            why = BY_FILTER
        reasons[one.name] = why
        sizes[one.name] = (one.weight.numel(), one.weight.numel() * one.active)
    return Decisions(reasons, sizes), found


def decisions_after(decisions: Decisions, found: list[Matrices]) -> Decisions:
    """The same after a conversion: what an earlier one converted counts too."""
    reasons = {one.name: "" if is_converted(one) else decisions[one.name] for one in found}
    return Decisions(reasons, decisions._sizes)


def warning_of(decisions: Decisions) -> str:
    """What stays in high precision unexpectedly: more than half, or hidden layers called output; "" for neither."""
    texts = []
    shares = decisions.share(filtered=False), decisions.share(flops=True, filtered=False)
    if min(shares) < 0.5:
        texts.append(
            f"expected at least half of its products in FP8, got {100 * shares[0]:.0f} % of their weights and "
            f"{100 * shares[1]:.0f} % of a token's multiplications; left out are {', '.join(decisions.largest_left())}"
        )
    hidden = [name for name, why in decisions.items() if why == "the name contains output"]
    if len(hidden) > 1:  # one is the head that the rule means
        such = f"{len(hidden)} layers called output, such as {hidden[0]}"
        texts.append(f'the rule leaves out {such}; rule="linear" converts them')
    if not texts:
        return ""
    return f"model: {'; '.join(texts)}; fp8lab.torch.decisions(model) lists all"
