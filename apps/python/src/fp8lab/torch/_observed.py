"""Products as a call in a table of `fp8lab-cuda observe`."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fp8lab._kernels import call_in_table
from fp8lab._registry import find_model
from fp8lab.torch._platforms import Floats, Platform, product


def table_call(splitk: str, fast: bool) -> str:
    """`FILE.csv` or `FILE.csv:FIELD=VALUE,...` with the accumulation that the caller asks for."""
    end = splitk.rfind(".csv") + len(".csv")
    return f"{splitk[:end]}:{'fast' if fast else 'slow'}{splitk[end:].replace(':', ',', 1)}"


def as_observed(
    chip: Platform, call: str, a: NDArray[Any], b: NDArray[Any], formats: tuple[str, str], out_format: str,
    scales: dict[str, Any],
) -> Floats:
    """The sum as a call in a table was observed on a chip."""
    for name in ("a_scales", "b_scales"):
        if scales[name].size > 1:
            raise ValueError(f"splitk: expected one scale for each operand with a table, got {scales[name].size}")
    shape = (a.shape[0], b.shape[0], a.shape[1])
    model, interval, order, split = call_in_table(call, shape, formats, out_format)
    accumulator = find_model(model).accumulator
    if accumulator != find_model(chip.model).accumulator:
        raise ValueError(f"splitk: expected a table of {chip.name} ({chip.model}), got one of {model}")
    return product(
        a, b, a_format=formats[0], b_format=formats[1], model=accumulator, promotion_interval=interval,
        a_scales=scales["a_scales"], b_scales=scales["b_scales"], scale_order=order, split_k=split,
    )
