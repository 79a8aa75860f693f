"""Linear layers whose products run as FP8 hardware would run them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor

from fp8lab._linear import LinearRecipe, linear_recipe
from fp8lab.torch import _device, _ops  # noqa: F401  (registers the operators)
from fp8lab.torch._device import require_cpu
from fp8lab.torch._passes import Passes, fingerprint, is_recomputing
from fp8lab.torch._plan import ROLES, plan_of, text_of
from fp8lab.torch._tensor_parallel import is_distributed, linear_of_shards

if TYPE_CHECKING:
    from fp8lab.torch._seeing import LayerStatistics

_SAMPLES = 1024


class _WeightCodes(NamedTuple):
    codes: Tensor
    scales: Tensor
    turned_codes: Tensor
    turned_scales: Tensor


def _is_traced(*tensors: Tensor) -> bool:
    """Whether values cannot be read: compilation, tensors of shapes alone, transforms of torch.func."""
    return torch.compiler.is_compiling() or any(
        x.is_meta or isinstance(x, FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(x)
        for x in tensors
    )


def _refuse_transforms(moves: bool, *tensors: Tensor) -> None:
    """Derivatives of torch.func, and batches of them with scales that move, are not supported."""
    functorch = torch._C._functorch
    for x in tensors:
        while functorch.is_functorch_wrapped_tensor(x):
            if functorch.is_gradtrackingtensor(x):
                raise NotImplementedError(
                    "torch.func.grad, vjp, jvp and jacobians: expected a backward pass of torch.autograd, the only "
                    "derivative that FP8 layers have"
                )
            if moves:
                raise NotImplementedError(
                    "torch.func.vmap: expected a recipe without a history, or eval(), since each sample "
                    "would move the scales of the next"
                )
            x = functorch.get_unwrapped(x)


class Fp8Layer:
    """The state of a module that runs its product under a `LinearRecipe`.

    The amax histories of delayed, windowed and calibrated scales are buffers,
    `fp8_activation_past`, `fp8_weight_past` and `fp8_gradient_past`. They hold bits of binary32 in
    int32, so that `.half()` leaves them unchanged. Recipes that use only the current tensor have
    none, so `state_dict` keys do not change.
    """

    _fp8_recipe: LinearRecipe
    _fp8_text: str
    training: bool

    def _fp8_configure(self, recipe: LinearRecipe, amax: str = "shard") -> None:
        self._fp8_recipe, self._fp8_text = recipe, text_of(recipe)
        self._fp8_amax_of = amax
        self._fp8_calibrating = False
        self._fp8_recorder: Callable[..., None] | None = None
        self._fp8_amaxes: Callable[[Fp8Layer, str, Tensor], None] | None = None
        self._fp8_forget()
        casts = plan_of(self._fp8_text).casts
        self._fp8_has_past = any(cast.past_size for cast in casts.values())
        for role, cast in casts.items():
            past = cast.initial_past()
            self._fp8_set_past(role, past if past.numel() else None)

    def _apply(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A past keeps its values, which `to_empty` drops; one that had none, on the meta device, begins."""
        before = {role: self._fp8_past(role) for role in ROLES}
        made = super()._apply(fn, *args, **kwargs)  # type: ignore[misc]
        for role, old in before.items():
            past = self._fp8_past(role)
            if past is not old and not past.is_meta:
                past.copy_(plan_of(self._fp8_text).casts[role].initial_past() if old.is_meta else old)
        return made

    def _fp8_set_past(self, role: str, past: Tensor | None) -> None:
        name = f"fp8_{role}_past"
        assert isinstance(self, nn.Module)
        if name in self._buffers:
            self._buffers[name] = past
        else:
            self.register_buffer(name, past)

    def _fp8_forget(self) -> None:
        """Drops what can be made again."""
        self._fp8_cache: tuple[Any, _WeightCodes] | None = None
        self._fp8_passes = Passes()

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_fp8_cache": None,
            "_fp8_passes": Passes(),
            "_fp8_recorder": None,
            "_fp8_amaxes": None,
            "_fp8_recording": None,
        }

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """A checkpoint of the model as it was before its conversion has no pasts: they stay."""
        for role in ROLES:
            past = self._fp8_past(role)
            if past.numel():
                state_dict.setdefault(f"{prefix}fp8_{role}_past", past)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)  # type: ignore[misc]
        self._fp8_forget()

    def _fp8_past(self, role: str) -> Tensor:
        past = getattr(self, f"fp8_{role}_past")
        if past is None:
            return torch.empty(0, dtype=torch.int32)
        return past.to_local() if is_distributed(past) else past  # type: ignore[no-any-return]

    def _fp8_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x [..., in], weight [out, in], bias [out] or None, to [..., out] in x's dtype."""
        if is_distributed(x, weight):
            return linear_of_shards(self, x, weight, bias)  # type: ignore[no-any-return]
        device = "cuda" if _device.is_cuda(x) else "cpu"
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            x, bias = x.to(dtype), None if bias is None else bias.to(dtype)
            used = weight.to(dtype)
        else:
            used = weight
        if x.dim() == 0 or x.shape[-1] != used.shape[1]:
            raise ValueError(f"x: expected [..., {used.shape[1]}], got {list(x.shape)}")
        if not torch.compiler.is_compiling():
            _refuse_transforms(self.training and self._fp8_has_past, x, used)
        if self._fp8_calibrating:
            return self._fp8_calibrate(x, used, bias)
        past, weight_past = self._fp8_pasts(x)
        recorder = None if torch.compiler.is_compiling() else self._fp8_recorder
        if recorder is not None:
            past, weight_past = past.clone(), weight_past.clone()
        codes = self._fp8_weight_codes(weight, used, weight_past)
        gradient_past = self._fp8_past("gradient")
        if self._fp8_amaxes is not None or not self.training:
            gradient_past = gradient_past.clone()  # the backward pass moves on what it is given
        # A scale with a past must see each of its operands, also in a pass that is computed again.
        for_wgrad = past.numel() > 0 or (torch.is_grad_enabled() and used.requires_grad)
        y, _, _, new_past = torch.ops.fp8lab.linear(
            x, used, bias, *codes, past, gradient_past, self._fp8_text, for_wgrad
        )
        self._fp8_step("activation", new_past, x)
        if self._fp8_amaxes is not None and y.requires_grad:
            y.register_hook(functools.partial(self._fp8_amaxes, self, "gradient"))
        if recorder is not None:
            recorder(self, x, used, y, past, weight_past)
        return y  # type: ignore[no-any-return]

    def _fp8_pasts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The pasts to cast with. A recomputed pass casts with what the first one had."""
        for role in ROLES:  # they follow the data to its device
            past = self._fp8_past(role)
            if past.numel() and past.device != x.device:
                self._fp8_set_past(role, past.to(x.device))
        past, weight_past = self._fp8_past("activation"), self._fp8_past("weight")
        if not self.training or past.numel() + weight_past.numel() == 0:
            return past, weight_past
        if torch.compiler.is_compiling():
            seen = x.detach()
            of_pass = [torch.ops.fp8lab.past_of_pass(seen, p) if p.numel() else p for p in (past, weight_past)]
            return of_pass[0], of_pass[1]
        if _is_traced(x):
            return past, weight_past
        past, weight_past = self._fp8_passes.pasts(x, past, weight_past)
        return past, weight_past

    def _fp8_step(self, role: str, new_past: Tensor, x: Tensor) -> None:
        """Moves a past on: in training, and once for a pass that is computed twice."""
        if not self.training or new_past.numel() == 0:
            return
        if self._fp8_amaxes is not None:  # `reduced_amaxes` moves it
            self._fp8_amaxes(self, role, x)
            return
        if not torch.compiler.is_compiling() and is_recomputing():
            return
        with torch.no_grad():
            self._fp8_past(role).copy_(new_past)

    def _fp8_weight_codes(self, weight: Tensor, used: Tensor, past: Tensor) -> _WeightCodes:
        """The weight's codes: cast again when it has changed, or its scale has a past that moves.

        On a CUDA device at each call: to find a change the host would wait for the device.
        """
        moves = past.numel() > 0 and self.training
        key = None
        if not moves and not _device.is_cuda(used) and not _is_traced(weight, used):
            key = self._fp8_key(weight, used, past)
            if self._fp8_cache is not None and self._fp8_cache[0] == key:
                return self._fp8_cache[1]
        # Codes of a pass under inference_mode serve later training too.
        with torch.inference_mode(False), torch.no_grad():
            *codes, new = torch.ops.fp8lab.quantize_weight(used.detach(), past, self._fp8_text)
        self._fp8_step("weight", new, used)
        made = _WeightCodes(*codes)
        if key is not None:
            self._fp8_cache = key, made
        return made

    def _fp8_key(self, weight: Tensor, used: Tensor, past: Tensor) -> tuple[Any, ...]:
        """What tells a weight from its next state. `.data` changes a parameter behind its version
        counter: in training all of it is read, else 1024 elements."""
        if weight.is_inference():
            version = 0
        else:
            version = weight._version
        seen = weight.detach()
        if not self.training and not (weight.requires_grad and torch.is_grad_enabled()):
            flat = seen.reshape(-1) if seen.is_contiguous() else seen.t().reshape(-1)
            seen = flat[:: max(1, flat.numel() // _SAMPLES)]
        elif not seen.is_contiguous():
            seen = seen.t()
        return (
            weight.data_ptr(),
            version,
            used.dtype,
            tuple(weight.shape),
            fingerprint(seen),
            fingerprint(past) if past.numel() else 0,
        )

    def _fp8_calibrate(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The plain product, and its input shown to a calibrated scale."""
        plan = plan_of(self._fp8_text)
        past = self._fp8_past("activation")
        if past.numel():
            require_cpu("x", x)
            past.copy_(plan.casts["activation"].observed(plan.matrix(x), past))
        return nn.functional.linear(x, weight, bias)

    def statistics(self) -> LayerStatistics:
        """The statistics of this layer from the last `fp8lab.torch.record`."""
        from fp8lab.torch._seeing import statistics_of

        return statistics_of(self)

    def fp8_repr(self) -> str:
        return f"recipe={self._fp8_recipe.name}"


class Converted:
    """A module whose class `convert` made for it, and which no file can name.

    Copies and files keep the class that it was made of.
    """

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(protocol)
        function, (kind, *rest), *state = reduced
        base = next(base for base in kind.__bases__ if issubclass(base, Converted))
        original = self.__dict__["_fp8_original"]
        return _rebuilt, (function, base, original, tuple(rest)), *state


def _rebuilt(function: Callable[..., Any], base: Any, original: Any, rest: tuple[Any, ...]) -> Any:
    return function(converted_class(base, original), *rest)


@functools.cache
def converted_class(base: Any, original: Any) -> Any:
    """The class of converted modules of a class."""
    return type(f"Fp8{original.__name__}", (base, original), {"__module__": original.__module__})


def change_class(module: nn.Module, base: Any) -> None:
    """Makes a module one of `base` and of what it was."""
    original: Any = type(module)
    module.__dict__["_fp8_original"] = original
    module.__class__ = converted_class(base, original)


class Fp8Linear(Fp8Layer, nn.Linear):
    """`nn.Linear` whose three products run under a recipe, bit for bit like the library's layers.

    recipe: a name from `fp8lab.linear_recipes()` or a `LinearRecipe`; hardware as for
    `fp8lab.linear_recipe`. x [..., in_features] in float32, bfloat16 or float16 gives [...,
    out_features] in x's dtype: the bias is added to the FP32 sum, which is then rounded once, to
    nearest even (to BF16 for a float32 x if the recipe has BF16 outputs); recipes with
    bias_after_rounding add the bias then. dX is rounded in the same way. dW and the gradient of the
    bias stay in FP32 until they are converted to the dtype of their parameter.

    Sizes that the system's kernels refuse are padded with zeros. In training, delayed scales are
    updated at each forward (activation, weight) and backward (gradient) pass, as in
    TransformerEngine with one update per pass; `eval()` freezes them. x and the weight are on the
    CPU, or in a build with CUDA on one CUDA device: the same bits, by emulated kernels on torch's
    current stream. ValueError for other tensors, and on a CUDA device
    for recipes whose casts or products are not there.

    >>> import torch, fp8lab.torch
    >>> layer = fp8lab.torch.Fp8Linear(64, 32, recipe="deepgemm", dtype=torch.bfloat16)
    >>> layer(torch.ones(2, 3, 64, dtype=torch.bfloat16)).shape
    torch.Size([2, 3, 32])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        recipe: str | LinearRecipe = "te-current",
        hardware: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._fp8_configure(linear_recipe(recipe, hardware=hardware))

    def forward(self, input: Tensor) -> Tensor:
        return self._fp8_linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.fp8_repr()}"

    @property
    def recipe(self) -> LinearRecipe:
        return self._fp8_recipe


class Fp8LinearLike(Converted, Fp8Linear):
    """A subclass of `nn.Linear` that has its `forward`."""


class Fp8Conv1D(Fp8Layer, nn.Module):
    """GPT-2's `Conv1D`, a linear layer that keeps its weight as [in, out]; `convert` makes it."""

    weight: nn.Parameter
    bias: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        return self._fp8_linear(x, self.weight.t(), self.bias)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, {self.fp8_repr()}"

    @property
    def recipe(self) -> LinearRecipe:
        return self._fp8_recipe
