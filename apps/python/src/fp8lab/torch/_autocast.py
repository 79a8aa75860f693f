"""A context in which a model's products run under a recipe, without changing the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from fp8lab._linear import LinearRecipe, linear_recipe
from fp8lab._warnings import warn
from fp8lab.torch._coverage import HighPrecisionWarning
from fp8lab.torch._plan import plan_of, text_of
from fp8lab.torch._products import ATTENTION, LINEAR, MATMUL, Fp8Product, is_grouped, unguarded

_OTHER_PRODUCTS = MATMUL | {torch.addmm, torch.baddbmm, torch.addbmm, torch.einsum, torch.mv, nn.functional.bilinear}


class autocast(TorchFunctionMode):
    """A context in which `F.linear`, and so `nn.Linear`, runs under a recipe.

    So do the four projections of `nn.MultiheadAttention`. Other products, such as `torch.bmm`, stay
    in high precision, and the first of each kind warns (`HighPrecisionWarning`); `convert` takes
    experts and other modules too. The model is not changed. recipe and hardware as for
    `fp8lab.linear_recipe`; filter: called with a weight [out, in], false leaves its product to torch.
    This object holds the amax histories and the cached codes, one set per weight, so use the same
    object for all steps; a view of a parameter is known by its parameter and place. With activation
    checkpointing (use_reentrant=False) the backward pass must run inside too, since it computes
    forward passes again. ValueError for a recipe whose scales have a history, and a weight that is
    computed in each pass (weight_norm): nothing tells whose history it continues.

    >>> import torch, fp8lab.torch
    >>> layer = torch.nn.Linear(64, 32)
    >>> with fp8lab.torch.autocast("te-current"):
    ...     y = layer(torch.ones(4, 64))
    >>> bool((y == layer(torch.ones(4, 64))).all())
    False
    """

    def __init__(
        self,
        recipe: str | LinearRecipe = "te-current",
        *,
        hardware: str | None = None,
        filter: Callable[[Tensor], bool] | None = None,
    ) -> None:
        super().__init__()
        self.recipe = linear_recipe(recipe, hardware=hardware)
        self._filter = filter
        self._uses: Any = WeakTensorKeyDictionary()
        self._has_past = any(cast.past_size for cast in plan_of(text_of(self.recipe)).casts.values())
        self._warned: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in LINEAR:
            return self._linear(*args, **kwargs)
        if func in ATTENTION:
            with self:
                return unguarded(func)(*args, **kwargs)
        if func in _OTHER_PRODUCTS or is_grouped(func):
            self._warn(func, args)
        return func(*args, **kwargs)

    def _warn(self, func: Any, args: tuple[Any, ...]) -> None:
        """Once for each function; not for products of one term, which rotary embeddings have."""
        name = func.__name__.strip("_")
        operands = [x for x in args if isinstance(x, Tensor)]
        one_term = not operands or operands[0].dim() == 0 or operands[0].shape[-1] == 1
        if name in self._warned or one_term or torch.compiler.is_compiling():
            return
        self._warned.add(name)
        warn(
            f"autocast: {name} runs in high precision, since the context runs linear products alone under "
            f"{self.recipe.name}",
            HighPrecisionWarning,
        )

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.dim() != 2 or (self._filter is not None and not self._filter(weight)):
            return nn.functional.linear(input, weight, bias)
        use = self._use(weight)
        use.training = torch.is_grad_enabled()
        return use._fp8_linear(input, weight, bias)  # type: ignore[no-any-return]

    def _use(self, weight: Tensor) -> Fp8Product:
        """The state of a weight: of a parameter, or of a view of it at this place."""
        base = weight if weight._base is None else weight._base
        place = (weight.storage_offset(), *weight.shape)
        uses = self._uses.get(base)
        if uses is None:
            if self._has_past and (base.grad_fn is not None or not (base.requires_grad or isinstance(base, nn.Parameter))):
                raise ValueError(
                    "weight: expected a parameter or a view of one, since scales of the recipe have a history, got a "
                    "tensor that is computed in the pass (weight_norm does); fp8lab.torch.convert keeps the history "
                    "with the layer"
                )
            uses = self._uses[base] = {}
        if place not in uses:
            uses[place] = Fp8Product(self.recipe)
        return uses[place]  # type: ignore[no-any-return]
