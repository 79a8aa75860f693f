"""Products as a call in a table of `fp8lab-cuda observe`."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from fp8lab._kernels import SplitK, call_in_table
from fp8lab._registry import AccumulatorModel, find_model
from fp8lab.torch._platforms import Floats, Platform, product


class ObservedSum(NamedTuple):
    """How a call sums: what one candidate of the table says."""

    accumulator: AccumulatorModel
    promotion_interval: int
    scale_order: str
    split: SplitK | None


def table_call(splitk: str, fast: bool) -> str:
    """`FILE.csv` or `FILE.csv:FIELD=VALUE,...` with the accumulation that the caller asks for."""
    end = splitk.rfind(".csv") + len(".csv")
    return f"{splitk[:end]}:{'fast' if fast else 'slow'}{splitk[end:].replace(':', ',', 1)}"


def observed_sum(
    chip: Platform, call: str, shape: tuple[int, int, int], formats: tuple[str, str], out_format: str,
    scales: tuple[int, int],
) -> ObservedSum:
    """Of a product [m, n, k] with so many scales. ValueError for what the table does not have."""
    for count in scales:
        if count > 1:
            raise ValueError(f"splitk: expected one scale for each operand with a table, got {count}")
    model, interval, order, split = call_in_table(call, shape, formats, out_format)
    accumulator = find_model(model).accumulator
    if accumulator != find_model(chip.model).accumulator:
        raise ValueError(f"splitk: expected a table of {chip.name} ({chip.model}), got one of {model}")
    return ObservedSum(accumulator, interval, order, split)


def as_observed(
    how: ObservedSum, a: NDArray[Any], b: NDArray[Any], formats: tuple[str, str], scales: dict[str, Any]
) -> Floats:
    """The sum as a call in a table was observed on a chip."""
    return product(
        a, b, a_format=formats[0], b_format=formats[1], model=how.accumulator,
        promotion_interval=how.promotion_interval, scale_a=scales["scale_a"], scale_b=scales["scale_b"],
        scale_order=how.scale_order, split_k=how.split,
    )


def part_ranges(k: int, parts: int, tile: int, contiguous: bool) -> list[list[tuple[int, int]]]:
    """The columns of K of each part as ranges, in the order of its chain: neighbouring tiles, or every parts-th one."""
    tiles = -(-k // tile)
    if contiguous:
        each = -(-tiles // parts)
        owned = [range(min(part * each, tiles), min((part + 1) * each, tiles)) for part in range(parts)]
        return [[(r.start * tile, min(r.stop * tile, k))] if len(r) else [] for r in owned]
    return [[(t * tile, min((t + 1) * tile, k)) for t in range(part, tiles, parts)] for part in range(parts)]


def observed_ranges(how: ObservedSum, k: int) -> list[list[tuple[int, int]]]:
    """The columns of K of each part that has any, as ranges in the order of its chain."""
    if how.split is None:
        return [[(0, k)]]
    parts, tile = how.split.parts, how.split.tile or how.promotion_interval or how.accumulator.terms
    tiles = -(-k // tile)
    if parts > tiles:
        raise ValueError(f"split_k: expected at most {tiles} parts, one per tile of {tile} terms, got {parts}")
    return [ranges for ranges in part_ranges(k, parts, tile, how.split.cut != "modulo") if ranges]
