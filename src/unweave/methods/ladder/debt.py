"""Where a model stands after some requests: what was asked of it since training, and what is believed left.

What one request leaves of its gap is weighed by its size. An influence step or fine-tuning goes on from where the last
request led, so that what is left adds up. Replay and ``retrace`` go back to before all of them, and a restart at a
minimum ends where one request for all of them together would have: they are judged by that request, and retraining
leaves nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from unweave.methods.ladder.calibration import Calibration
from unweave.methods.ladder.size import Shape, shape_of
from unweave.receipt.changed import touched_by
from unweave.receipt.estimate import Estimate
from unweave.receipt.receipt import Receipt
from unweave.request import Request

__all__ = ["Standing", "age_of", "standing_of"]

NOTHING = Shape()


@dataclass(frozen=True)
class Standing:
    """What is left of all that was asked since training.

    Attributes:
        requests: How many requests.
        shape: What they took together.
        left: What is believed left: the sum of (1 − gap closed) · size.
        least: The same by the better end of every interval, where there is one.
        most: The same by the worse end.
        unknown: Of the requests, how many were carried out in a way that nothing is known of; they count as not
            forgotten at all.
    """

    requests: int = 0
    shape: Shape = NOTHING
    left: float = 0.0
    least: float | None = 0.0
    most: float | None = 0.0
    unknown: int = 0

    def after(self, shape: Shape, estimate: Estimate | None) -> "Standing":
        """One more request, by a way that goes on from where the model is; ``None`` where nothing is known of it."""
        size, together = shape.size, Shape.total([self.shape, shape])
        if estimate is None:
            return Standing(self.requests + 1, together, self.left + size, None, None, self.unknown + 1)
        return Standing(
            requests=self.requests + 1,
            shape=together,
            left=self.left + (1 - estimate.closed) * size,
            least=None if self.least is None or estimate.high is None else self.least + (1 - estimate.high) * size,
            most=None if self.most is None or estimate.low is None else self.most + (1 - estimate.low) * size,
            unknown=self.unknown,
        )

    def anew(self, shape: Shape, estimate: Estimate | None) -> "Standing":
        """One more request, by a way whose answer is that of one request for all of them."""
        return replace(self, requests=self.requests + 1, shape=Shape.total([self.shape, shape])).renewed(estimate)

    def renewed(self, estimate: Estimate | None) -> "Standing":
        """The same requests, judged as one."""
        size = self.shape.size
        if estimate is None:
            return replace(self, left=size, least=None, most=None, unknown=self.requests)
        least, most = (None if end is None else (1 - end) * size for end in (estimate.high, estimate.low))
        return Standing(self.requests, self.shape, (1 - estimate.closed) * size, least, most)

    @property
    def estimate(self) -> Estimate:
        """Of the gap between a model that nothing was done to and a retrained one, what is believed closed."""
        size = self.shape.size
        if not size:
            return Estimate(1.0, 1.0, 1.0)
        low, high = (None if end is None else 1 - end / size for end in (self.most, self.least))
        return Estimate(1 - self.left / size, low, high)

    def to_dict(self) -> dict[str, Any]:
        """For a receipt."""
        return asdict(self)


def standing_of(receipts: Sequence[Receipt]) -> Standing:
    """Where the receipts of a model leave it: what one of the ladder tells of all before it is not asked again."""
    since: list[Receipt] = []
    found = Standing()
    for receipt in reversed(receipts):
        if _retrained(receipt):
            break
        if receipt.ladder is not None:
            known = receipt.ladder["standing"]
            found = Standing(**{**known, "shape": Shape(**known["shape"])})
            break
        if receipt.carried_out:
            since.append(receipt)
    for receipt in reversed(since):
        found = found.after(_shape(receipt), None)
    return found


def age_of(calibration: Calibration, receipts: Sequence[Receipt]) -> dict[str, Any]:
    """How old a calibration is: requests since, and whether the model was retrained since then.

    What it measured is that of the model before; a retrained one has the same recipe and almost the same graph, so that
    it is used all the same, and said.
    """
    ago, retrained = 0, False
    for number in range(len(receipts) - 1, calibration.requests - 1, -1):
        receipt = receipts[number]
        ago, retrained = ago + receipt.carried_out, retrained or _retrained(receipt)
        known = (receipt.ladder or {}).get("calibration") or {}
        if known.get("made_after") == calibration.requests:  # it tells of all before it
            ago, retrained = ago + known["requests_ago"], retrained or known["retrained_since"]
            break
    return {"requests_ago": ago, "retrained_since": retrained, "made_after": calibration.requests}


def _retrained(receipt: Receipt) -> bool:
    """Whether a request was carried out by training from the start, under whatever name."""
    return receipt.carried_out and receipt.anew


def _shape(receipt: Receipt) -> Shape:
    """The shape of a request that was carried out."""
    return shape_of(
        Request.from_dict(touched_by(receipt.request) if receipt.kind == "change" else receipt.request),
        stored_edges=receipt.graph["stored_edges_before"],
        undirected=receipt.graph["undirected"],
        training_nodes=receipt.graph["training_nodes_before"],
    )
