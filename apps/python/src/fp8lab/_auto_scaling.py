"""FP8-LM's automatic scaling of gradients."""

from __future__ import annotations

from fp8lab import _core
from fp8lab._arrays import number, text, whole
from fp8lab._mode import in_own_mode


class AutoScaler:
    """The factor mu that multiplies gradients before an FP8 all-reduce (arXiv 2310.18313, 2.1).

    mu is halved by a step in which more than `threshold` of the elements are at max finite, and
    grows otherwise, without a bound. The defaults are those of the paper; the listing that
    summarises it has a threshold of 1e-3 and `clean_steps=1000`. Arithmetic is binary64.

    >>> import fp8lab
    >>> scaler = fp8lab.AutoScaler(steps_to_double=2)
    >>> for share in (0.0, 0.0, 0.01):
    ...     scaler.update(share)
    ...     print(round(scaler.mu, 6))
    1.414214
    2.0
    1.0
    """

    @in_own_mode
    def __init__(
        self,
        *,
        threshold: float = 1e-5,
        steps_to_double: int = 1000,
        clean_steps: int = 0,
        growth: str = "exponential",
        mu: float = 1.0,
    ) -> None:
        """threshold: a share, 0 to 1. clean_steps: the clean step with this number is the first
        that counts for growth. growth: "exponential" multiplies mu by 2^(1 / steps_to_double),
        "linear" adds mu after the last halving / steps_to_double, "doubling" doubles it after every
        steps_to_double clean steps, "none" leaves it. mu: its initial value, above 0. ValueError
        for other values.
        """
        self._scaler = _core.AutoScaler(
            threshold=number("threshold", threshold),
            steps_to_double=whole("steps_to_double", steps_to_double),
            clean_steps=whole("clean_steps", clean_steps),
            growth=text("growth", growth),
            mu=number("mu", mu),
        )

    @property
    def mu(self) -> float:
        """The factor for the gradients of the next step."""
        return float(self._scaler.mu)

    @in_own_mode
    def update(self, saturated_share: float) -> None:
        """Take one step. share: the share, 0 to 1, of scaled elements at max finite."""
        self._scaler.update(number("saturated_share", saturated_share))
