"""Batched and grouped products: computed, checked and explained group by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fp8lab import _core
from fp8lab._arrays import bad, dense_tensor, several, text, whole
from fp8lab._checks import Comparison
from fp8lab._identify import Identification, SeparatingElement, class_of, names_of
from fp8lab._mode import in_own_mode
from fp8lab._options import OperandOptions, ProductOptions, require_known, with_arguments_of
from fp8lab._products import complete, gemm, make_inputs, make_spec, require_searchable
from fp8lab._registry import InstructionModel
from fp8lab._verify import Cause, VerifyReport, output_of
from fp8lab._warnings import warn


@dataclass(frozen=True)
class Groups:
    """Which rows or terms belong to which group.

    kind: "batched", A [g, m, k] and B [g, n, k]; "row_ends", A [m, k] and B [g, n, k], where values
    are the rows at which groups end, like torch's offs; "row_indices", the same shapes with the
    group of each row, or -1, like DeepGEMM's m_indices; "row_counts", A [g, m, k] and B [g, n, k]
    with the number of rows used in each group, like DeepGEMM's masked_m; "k_ends", A [m, k] and B
    [n, k] with the terms at which groups end. alignment: starts of groups must be multiples of
    this; 0: no check.
    """

    kind: str
    values: Sequence[int] | NDArray[Any] = ()
    alignment: int = 0


@dataclass(frozen=True)
class GroupReport:
    """One group of a `GroupedReport`."""

    group: int
    first_row: int  #: in the output as a matrix of all groups, one below the other
    rows: int
    report: VerifyReport
    findings: tuple[tuple[str, str], ...]  #: names and texts: wrong offsets, counts, another group's output


@dataclass(frozen=True)
class GroupedReport:
    """The verdict on the output of a grouped product. `str(report)` is a readable report."""

    verdict: str  #: "pass", "mismatch" or "no power"
    bit_mismatches: int
    groups: tuple[GroupReport, ...]  #: those with rows
    #: (first row, rows, elements, cause or "") of rows in no group that should be zero
    ungrouped_wrong: tuple[tuple[int, int, int, str], ...]
    text: str
    details: str = ""  #: the whole report: also distances, elements, models, budgets, gates

    def __str__(self) -> str:
        return self.text

    @property
    def wrong_groups(self) -> tuple[int, ...]:
        return tuple(one.group for one in self.groups if one.report.bit_mismatches)


@dataclass(frozen=True)
class GroupedIdentification:
    """The hypotheses that explain every group. `str(identification)` is a readable report."""

    explained: bool
    group: int  #: the largest one, which was searched
    found: Identification  #: for that group, without members that the other groups contradict
    groups: tuple[tuple[int, int, int, int], ...]  #: (group, first row, matches, compared)
    text: str

    def __str__(self) -> str:
        return self.text


def _group_values(values: Any) -> list[int]:
    try:
        return [whole("groups.values", value) for value in values]
    except TypeError:
        raise bad("groups.values", "whole numbers, one a group or row", repr(values)) from None


def _in_groups(groups: Groups) -> dict[str, Any]:
    if not isinstance(groups, Groups):
        raise bad("groups", "an fp8lab.Groups", type(groups).__name__)
    return {
        "kind": text("kind", groups.kind),
        "values": _group_values(groups.values),
        "alignment": whole("alignment", groups.alignment),
    }


def _product(
    inputs: tuple[ArrayLike, ArrayLike],
    groups: Groups,
    model: str | InstructionModel | None,
    given: OperandOptions,
    output: str,
) -> _core.GroupedProduct:
    (a, b), options = several("inputs", "a, b", inputs), complete(given)
    of_groups = _in_groups(groups)
    operands = make_inputs(a, b, options, in_groups=True)
    return _core.GroupedProduct(operands, make_spec(model, operands, options, output), **of_groups)


@in_own_mode
@with_arguments_of(gemm, ProductOptions, before="threads")
def gemm_groups(
    a: ArrayLike,
    b: ArrayLike,
    groups: Groups,
    *,
    model: str | InstructionModel | None = None,
    threads: int = 0,
    **options: Unpack[ProductOptions],
) -> NDArray[np.float32]:
    """D of a batched or grouped product: float32 [g, m, n], or [m, n] for groups of rows.

    Each group's product equals the result of `gemm` on that group; the other arguments are as for
    `gemm`. Rows that are in no group are +0. Scales: one value; one per group, [g] or [g, 1, 1]; or
    [g, ...] with the grid of one group. For an A [m, k]
    with groups of rows, a grid over all rows is accepted too. For groups along k: [g, rows, 1], or
    a grid over all terms in which no group ends inside a tile. Usual tiles (sides of 1, 16, 32, 128
    or all) need no `Scales`; the tensor_scale of `Scales` (NVFP4) is one value for all groups, or
    one per group, [g]. c: the shape of D. bias and column_scales: [n] or [g, n]; row_scales: [m] or
    [g, m].

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a = fp8lab.encode(rng.standard_normal((6, 128), np.float32))
    >>> b = fp8lab.encode(rng.standard_normal((256, 128), np.float32)).reshape(2, 128, 128)
    >>> d = fp8lab.gemm_groups(a, b, fp8lab.Groups("row_ends", [4, 6]), model="sm90.wgmma.e4m3")
    >>> np.array_equal(d[4:], fp8lab.gemm(a[4:], b[1], model="sm90.wgmma.e4m3"))
    True
    """
    product = _product((a, b), groups, model, options, "f32")
    d: NDArray[np.float32] = _core.grouped_gemm(product, whole("threads", threads))
    warn(_core.warning_of_groups(product))
    return d.reshape(product.shape)


def _report(fields: dict[str, Any]) -> VerifyReport:
    fields["comparison"] = Comparison(**fields["comparison"])
    fields["causes"] = tuple(Cause(**cause) for cause in fields["causes"])
    fields["undetected"] = tuple(fields["undetected"])
    fields["measured"] = tuple(fields["measured"])
    fields.pop("warning")
    return VerifyReport(**fields)


@in_own_mode
@with_arguments_of(gemm, ProductOptions, before="threads")
def verify_groups(
    got: ArrayLike,
    inputs: tuple[ArrayLike, ArrayLike],
    groups: Groups,
    *,
    model: str | InstructionModel | None = None,
    got_format: str | None = None,
    check: str = "bitwise",
    ungrouped: str = "any",
    threads: int = 0,
    **options: Unpack[ProductOptions],
) -> GroupedReport:
    """Check the output of a grouped kernel, group by group; arguments as for `gemm_groups`.

    ungrouped: the required contents of rows that are in no group, "any" or "zero". The mistakes
    tried are those of `verify`, and also: weights, their codes or scales, inputs or bias of a
    neighbouring group; wrong offsets, counts and terms; the output of another group; rows that
    should not be written. If the inputs do not distinguish a neighbour's weights from the right
    ones, the verdict is "no power".

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a = fp8lab.encode(rng.standard_normal((24, 128), np.float32))
    >>> b = fp8lab.encode(rng.standard_normal((64, 128), np.float32)).reshape(2, 32, 128)
    >>> groups = fp8lab.Groups("row_ends", [10, 24])
    >>> d = fp8lab.gemm_groups(a, b, groups, model="sm90.wgmma.e4m3")
    >>> fp8lab.verify_groups(d, (a, b), groups, model="sm90.wgmma.e4m3").verdict
    'pass'
    >>> d[10:] = fp8lab.gemm(a[10:], b[0], model="sm90.wgmma.e4m3")
    >>> report = fp8lab.verify_groups(d, (a, b), groups, model="sm90.wgmma.e4m3")
    >>> report.wrong_groups, report.groups[1].report.causes[0].name
    ((1,), 'weight_of_previous_group')
    """
    words, name = output_of(got, got_format, None)
    fields = _core.verify_groups(
        groups=_product(inputs, groups, model, options, name),
        got=dense_tensor(words, name),
        check=text("check", check),
        ungrouped=text("ungrouped", ungrouped),
        threads=whole("threads", threads),
    )
    for one in fields["groups"]:
        one["report"] = _report(one["report"])
        one["findings"] = tuple(one["findings"])
    warn(fields.pop("warning"))
    fields["groups"] = tuple(GroupReport(**one) for one in fields["groups"])
    fields["ungrouped_wrong"] = tuple(fields["ungrouped_wrong"])
    return GroupedReport(**fields)


@in_own_mode
@with_arguments_of(gemm, OperandOptions, before="models")
def identify_groups(
    got: ArrayLike,
    inputs: tuple[ArrayLike, ArrayLike],
    groups: Groups,
    *,
    got_format: str | None = None,
    models: Sequence[str | InstructionModel] = (),
    threads: int = 0,
    **options: Unpack[OperandOptions],
) -> GroupedIdentification:
    """Find what explains every group: instruction, promotion, scale order, as `identify` does.

    The largest group is searched; hypotheses that explain it are tried on the others.

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a = fp8lab.encode(rng.standard_normal((48, 512), np.float32)).reshape(2, 24, 512)
    >>> b = fp8lab.encode(rng.standard_normal((32, 512), np.float32)).reshape(2, 16, 512)
    >>> d = fp8lab.gemm_groups(a, b, fp8lab.Groups("batched"), model="sm90.wgmma.e4m3")
    >>> fp8lab.identify_groups(d, (a, b), fp8lab.Groups("batched")).explained
    True
    """
    require_known(options, OperandOptions)
    words, name = output_of(got, got_format, None)
    (a, b), known = several("inputs", "a, b", inputs), complete(options)
    operands = make_inputs(a, b, known, in_groups=True)
    require_searchable(operands)
    product = _core.GroupedProduct.of_unknown_model(
        operands, make_spec(None, operands, known, name), **_in_groups(groups)
    )
    warn(_core.warning_of_groups(product))
    fields = _core.identify_groups(
        groups=product,
        got=dense_tensor(words, name),
        threads=whole("threads", threads),
        models=names_of(models),
    )
    found = fields["found"]
    found["ranking"] = tuple(class_of(one) for one in found["ranking"])
    found["separating"] = tuple(SeparatingElement(**one) for one in found["separating"])
    fields["found"] = Identification(**found)
    fields["groups"] = tuple(fields["groups"])
    return GroupedIdentification(**fields)
