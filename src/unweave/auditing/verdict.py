"""From what tests found, and from what a model carries unseen, to one conclusion."""

from collections.abc import Sequence
from typing import Literal

from unweave.auditing.after.carried import Carried
from unweave.auditing.evidence import Evidence

__all__ = ["Verdict", "verdict_of"]

Verdict = Literal["remembers", "differs", "gone", "cannot tell"]


def verdict_of(evidence: Sequence[Evidence], carried: Carried | None = None) -> Verdict:
    """The conclusion of all tests together, and of what the model carries unseen.

    ``remembers``: a test that can tell says that the data is still there, or the model holds the weights from before.
    ``differs``: the model is not what retraining gives. ``gone``: no test sees a difference, and some would have.
    ``cannot tell``: no test has power on this request, which is not the same as passing; or the model has something
    that the one before has not, or that is like its weights. Tests have no power over what they do not reach, and
    *gone* with a footnote is read as *gone*.
    """
    found = {entry.finding for entry in evidence}
    carried = carried or Carried()
    if carried.old or "remembers" in found:
        return "remembers"
    if "differs" in found:
        return "differs"
    return "gone" if any(entry.powerful for entry in evidence) and not carried.unseen else "cannot tell"
