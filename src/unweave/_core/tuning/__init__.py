"""Every number that decides about a step, with the evidence for it, in one place.

A group for each decision, and one instance of it all: ``TUNING.damping.share``. To change a rule for good, change its
number in one of the files here. To try another, in a test or a probe::

    with tuned(damping={"share": 0.01}):
        run.forget(request)

Receipts have the digest of all of it, and the numbers of the groups that their method names (:meth:`Tuning.used`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from unweave._core.document import document_digest
from unweave._core.tuning.curvature import Damping, Minimum, Newton, Search, Spectrum
from unweave._core.tuning.methods import Baselines, Inspection, Ladder
from unweave._core.tuning.steps import Step, Walk
from unweave._core.tuning.training import Ending, Polish, Release

__all__ = ["TUNING", "Tuning", "tuned"]


@dataclass(frozen=True)
class Tuning:
    """All of it, group by group."""

    spectrum: Spectrum = field(default_factory=Spectrum)
    minimum: Minimum = field(default_factory=Minimum)
    damping: Damping = field(default_factory=Damping)
    step: Step = field(default_factory=Step)
    search: Search = field(default_factory=Search)
    newton: Newton = field(default_factory=Newton)
    walk: Walk = field(default_factory=Walk)
    ending: Ending = field(default_factory=Ending)
    polish: Polish = field(default_factory=Polish)
    release: Release = field(default_factory=Release)
    ladder: Ladder = field(default_factory=Ladder)
    baselines: Baselines = field(default_factory=Baselines)
    inspection: Inspection = field(default_factory=Inspection)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every number, by group, as a JSON document."""

        def plain(value: Any) -> Any:
            return [plain(part) for part in value] if isinstance(value, tuple) else value

        return {
            group: {name: plain(value) for name, value in vars(numbers).items()}
            for group, numbers in vars(self).items()
        }

    @property
    def digest(self) -> str:
        """The first twelve digits of the SHA-256 of all numbers."""
        return document_digest(self.to_dict())[:12]

    def used(self, groups: tuple[str, ...]) -> dict[str, Any]:
        """What a receipt tells: the digest of all, and the numbers of the groups that decided about it.

        All of it would be most of a receipt, a hundred thousand times; the digest says whether two receipts come from
        the same rules, and the numbers that mattered can be read without the program.
        """
        every = self.to_dict()
        return {"digest": self.digest, **{group: every[group] for group in groups}}


TUNING = Tuning()


@contextmanager
def tuned(**groups: Mapping[str, Any]) -> Iterator[Tuning]:
    """Other numbers for a while, in this process: ``tuned(damping={"tries": 1})``. For tests and probes."""
    before = {name: getattr(TUNING, name) for name in groups}
    try:
        for name, numbers in groups.items():
            object.__setattr__(TUNING, name, replace(before[name], **numbers))
        yield TUNING
    finally:
        for name, group in before.items():
            object.__setattr__(TUNING, name, group)
