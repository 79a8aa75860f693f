"""Modules that multiply with their own weights in their `forward`: experts, attention, odd linear layers.

Their `forward` runs as it is, under a mode in which each product with a converted weight runs under
the recipe. A weight of several matrices (experts) has one state a matrix, so scales and histories of
its own.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fp8lab._linear import LinearRecipe
from fp8lab.torch._layers import Converted, Fp8Layer, change_class
from fp8lab.torch._tensor_parallel import is_distributed


class Fp8Product(Fp8Layer, nn.Module):
    """The state of a product whose weight belongs to another module."""

    def __init__(self, recipe: LinearRecipe, amax: str = "shard") -> None:
        super().__init__()
        self._fp8_configure(recipe, amax)

    def extra_repr(self) -> str:
        return self.fp8_repr()

    @property
    def recipe(self) -> LinearRecipe:
        return self._fp8_recipe


#: Parameters that hold several matrices one below the other: so many.
_STACKED = {"in_proj_weight": 3}


def parts_of(name: str, weight: Tensor) -> int:
    """How many matrices with scales of their own a parameter holds."""
    return weight.shape[0] if weight.dim() == 3 else _STACKED.get(name, 1)


def part_within(whole: Tensor, view: Tensor, parts: int) -> int | None:
    """The number of the matrix of `whole` at which a view of it begins; None for another tensor."""
    if is_distributed(whole):
        raise NotImplementedError(
            f"expected weights of such a module as tensors, got a DTensor {list(whole.shape)}: FSDP shards "
            "it, tensor parallelism does not"
        )
    base = whole if whole._base is None else whole._base
    if view is not base and view._base is not base:
        place = whole.untyped_storage().data_ptr()
        if not place or view.untyped_storage().data_ptr() != place:
            return None
    offset = view.storage_offset() - whole.storage_offset()
    if not 0 <= offset < max(whole.numel(), 1):
        return None
    part, rest = divmod(offset, max(whole.numel() // parts, 1))
    return None if rest else part


@functools.cache
def unguarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch.nn.functional that does not hand itself to a mode: its products do."""
    scope = {**function.__globals__, "has_torch_function": lambda *tensors: False}
    return types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__)


LINEAR = {functional.linear}
ATTENTION = {functional.multi_head_attention_forward}
MATMUL = {
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm,
}  # fmt: skip
GROUPED = {getattr(torch, "_grouped_mm", None), getattr(functional, "grouped_mm", None)} - {None}
_FALLBACK = "transformers.grouped_mm_fallback"


def is_grouped(function: Any) -> bool:
    is_operator = isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
    return function in GROUPED or (is_operator and str(function).startswith(_FALLBACK))


def parameter(module: nn.Module, name: str) -> Tensor:
    return operator.attrgetter(name)(module)


def _state_name(name: str) -> str:
    return f"fp8_{name.replace('.', '_')}"


def states_of(module: nn.Module, name: str) -> nn.ModuleList:
    """The states of a converted parameter, one a matrix."""
    states: nn.ModuleList = getattr(module, _state_name(name))
    return states


def product(
    found: tuple[nn.ModuleList, int], x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    states, part = found
    state: Any = states[part]
    y: Tensor = state._fp8_linear(x, weight, bias)
    return y


class _Products(TorchFunctionMode):
    """Runs the products of a module with its converted weights under their recipes."""

    def __init__(self, module: Fp8Products) -> None:
        super().__init__()
        self.module = module
        self.left = set(module._fp8_products)  #: parameters without a product so far

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in ATTENTION:
            with self:
                return unguarded(func)(*args, **kwargs)
        if func in LINEAR:
            return self._linear(func, *args, **kwargs)
        if func in MATMUL:
            return self._matmul(func, *args, **kwargs)
        if is_grouped(func):
            return self._grouped(func, *args, **kwargs)
        return func(*args, **kwargs)

    def _find(self, weight: Any) -> tuple[nn.ModuleList, int] | None:
        for name in self.module._fp8_products:
            own, states = parameter(self.module, name), states_of(self.module, name)
            part = part_within(own, weight, len(states)) if isinstance(weight, Tensor) else None
            if part is not None:
                self.left.discard(name)
                return states, part
        return None

    def _linear(self, func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        found = self._find(weight)
        if found is None:
            return func(input, weight, bias)
        return product(found, input, weight, bias)

    def _matmul(self, func: Any, input: Tensor, mat2: Tensor, **more: Any) -> Tensor:
        if self._find(input) is not None:
            raise ValueError(
                f"{type(self.module).__name__}: expected its weights as the second operand of {func.__name__}, "
                "got the first"
            )
        found = self._find(mat2)
        if found is None:
            return func(input, mat2, **more)
        if mat2.dim() == 2:
            return product(found, input, mat2.t())
        return self._batches(found, input, mat2)

    def _grouped(
        self, func: Any, input: Tensor, mat2: Tensor, offs: Tensor | None = None, **more: Any
    ) -> Tensor:
        found = self._find(mat2)
        if found is None:
            return func(input, mat2, offs=offs, **more)
        y = self._batches(found, input, mat2) if offs is None else self._groups(found, input, mat2, offs.tolist())
        bias, dtype = more.get("bias"), more.get("out_dtype")
        return (y if bias is None else y + bias).to(dtype or y.dtype)

    def _batches(self, found: tuple[nn.ModuleList, int], input: Tensor, mat2: Tensor) -> Tensor:
        """Each matrix of input [groups, rows, k], or the only one, times that of mat2 [groups, k, n]."""
        groups, rows = mat2.shape[0], input.shape[-2]
        x = input.expand(groups, *input.shape[-2:]).flatten(0, 1)
        ends = [rows * (group + 1) for group in range(groups)]
        return self._groups(found, x, mat2, ends).reshape(groups, rows, mat2.shape[2])

    def _groups(
        self, found: tuple[nn.ModuleList, int], x: Tensor, weight: Tensor, ends: list[int]
    ) -> Tensor:
        """Rows of group g times weight[g] [k, n]; rows after the last group are 0."""
        states, first = found
        start, made = 0, []
        for group, (end, one) in enumerate(zip(ends, weight.unbind(0), strict=True)):
            if end > start:
                made.append(product((states, first + group), x[start:end], one.t()))
            start = max(start, end)
        made.append(x.new_zeros((len(x) - start, weight.shape[2])))
        return torch.cat(made)


class Fp8Products(Converted):
    """What `convert` adds to the class of a module that multiplies with its own weights."""

    _fp8_products: tuple[str, ...]  #: names of its converted parameters
    training: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        mode = _Products(self)
        with mode:
            y = super().forward(*args, **kwargs)  # type: ignore[misc]
        if mode.left and all(x.numel() for x in (*args, *kwargs.values()) if isinstance(x, Tensor)):
            names = " and ".join(sorted(mode.left))
            raise RuntimeError(
                f"{type(self).__name__}: expected a product with {names} in its forward pass, got none, so "
                'not all of it ran in FP8; of transformers the experts implementations "eager" and "grouped_mm" '
                'have such products (model.set_experts_implementation("grouped_mm")), others gather weights'
            )
        return y

    forward._torchdynamo_disable = True  # type: ignore[attr-defined]


def convert_products(
    module: nn.Module, names: list[str], recipe: LinearRecipe, amax: str = "shard"
) -> None:
    """Makes a module multiply with these own parameters under a recipe; others stay as they are."""
    if not isinstance(module, Fp8Products):
        change_class(module, Fp8Products)
        module.__dict__["_fp8_products"] = ()
    for name in names:
        count = parts_of(name, parameter(module, name))
        setattr(module, _state_name(name), nn.ModuleList(Fp8Product(recipe, amax) for _ in range(count)))
    kept = [name for name in module._fp8_products if name not in names]
    module.__dict__["_fp8_products"] = (*kept, *names)


def restore_products(module: nn.Module) -> None:
    """Undoes `convert_products`."""
    assert isinstance(module, Fp8Products)
    for name in module._fp8_products:
        delattr(module, _state_name(name))
    original = module.__dict__.pop("_fp8_original")
    del module.__dict__["_fp8_products"]
    module.__class__ = original
