"""One way to forget, with its options: what the ladder chooses between and a calibration measures."""

from dataclasses import dataclass, replace
from typing import Any

from unweave.methods.registry import parse

__all__ = ["GIF", "ONE_STEP", "RETRAIN", "Rung"]


@dataclass(frozen=True)
class Rung:
    """A method by its name, with options; ``str(rung)`` is what files and receipts call it, :meth:`read` reads that.

    Attributes:
        method: The method's name.
        options: Its options, in order; numbers to six digits, as they are written.
        factor: Times the prepared damping with which it was tried, to three digits.
    """

    method: str
    options: tuple[tuple[str, float], ...] = ()
    factor: float = 1.0

    @classmethod
    def of(cls, method: str, **options: float) -> "Rung":
        """A method with options."""
        return cls(method, tuple((name, _digits(value)) for name, value in options.items()))

    @classmethod
    def read(cls, text: str) -> "Rung":
        """A rung by what it is called, e.g. ``replay(share=0.2)`` or ``gif@0.316``."""
        name, _, factor = text.partition("@")
        method, options = parse(name)
        return cls(method, tuple(options.items()), float(factor or 1))

    def __str__(self) -> str:
        told = ", ".join(f"{name}={value:.6g}" for name, value in self.options)
        return self.method + (f"({told})" if told else "") + (f"@{self.factor:.3g}" if self.factor != 1 else "")

    def __getitem__(self, option: str) -> float:
        """The value of an option that it has."""
        return dict(self.options)[option]

    def __contains__(self, option: object) -> bool:
        return option in dict(self.options)

    @property
    def given(self) -> dict[str, Any]:
        """The options, to build the method with."""
        return dict(self.options)

    @property
    def damped(self) -> bool:
        """Whether it is an influence step alone, which other dampings are tried for."""
        return self.method == "gif"

    def at(self, factor: float) -> "Rung":
        """The same, tried with another damping; only an influence step has one."""
        return replace(self, factor=float(f"{factor:.3g}")) if self.damped else self


def _digits(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")


GIF, ONE_STEP, RETRAIN = Rung("gif"), Rung.of("gif", steps=1), Rung("retrain")
