"""Every number that decides about a step, with the evidence for it, in one place.

A group for each decision, and one instance of it all: ``TUNING.damping.share``. To change a rule for good, change its
number here. To try another, in a test or a probe::

    with tuned(damping={"share": 0.01}):
        run.forget(request)

Receipts have the digest of all of it, and the numbers of the groups that their method names (:meth:`Tuning.used`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from unweave._core.document import document_digest

__all__ = ["TUNING", "Tuning", "tuned"]


@dataclass(frozen=True)
class Spectrum:
    """How much of the curvature is looked at (:mod:`unweave.curvature.solvers.lanczos`)."""

    rank: int = 32
    """Largest eigenpairs that are kept, at least; for 3 to 20 classes 64 are hardly better."""

    per_class: float = 1.5
    """How many for each class: the curvature of a classifier has about one outlier for each. Of WordNet's 45 classes
    (8,000 nodes, GCN, 5 % of the edges) 30 gradients closed 0.92 of the gap with 32 eigenpairs and 0.98 with 68; on all
    of it 15 closed 0.47 with 32 and 0.92 with 64."""

    spare: int = 8
    """Products beyond the rank."""

    rest: float = 2.0
    """Times the smallest kept eigenvalue: the curvature of all other directions. Deliberately no share of the largest,
    which may be an outlier a hundred times above the second. Measured against 1 and 4 (forgettable GCN and SGC on Cora,
    CiteSeer and PubMed): 1 is rejected by the line search half of the time, 4 is slow."""

    again: float = 0.7
    """Share of a vector's length that one orthogonalisation must leave, or it is done again (Daniel et al., 1976)."""

    look: int = 5
    """Products between two looks at how far a Krylov space has come."""

    bend_products: int = 20
    """Products of the search for the smallest Hessian eigenvalue."""


@dataclass(frozen=True)
class Minimum:
    """When a model counts as trained to a minimum, and when its prepared state as worn."""

    gain: float = 2e-3
    """A model is at a minimum when going on would lower its objective by less than this share."""

    saddle: float = -0.01
    """Smallest Hessian eigenvalue, as a share of the largest, below which a stationary point is a saddle."""

    worn: float = 0.2
    """Share of the edges or training nodes that may go before the curvature is computed anew. Over a thousand requests
    that took a fifth of the edges, four gradients with the old curvature gained 91.5 % of what thirty do, with a new
    one 94.1 %."""


@dataclass(frozen=True)
class Damping:
    """How much an influence step is damped (:mod:`unweave.curvature.damping`)."""

    share: float = 0.003
    """Of the curvature eigenvalue ``place``: the least damping."""

    place: int = 5
    """Which eigenvalue that is, counted from the largest, which may be an outlier, a hundred times the second
    (PubMed)."""

    early_stop: float = 4.0
    """Times the ridge at which training stopped (:func:`unweave.curvature.damping.least_damping`)."""

    raised_by: float = 10**0.5
    """What the damping is multiplied by where a step does not keep its promise."""

    tries: int = 14
    """Dampings tried for a request without a prepared state."""

    kept: float = 0.25
    """Share of the promised change of the objective that a step must keep."""

    stretch: float = 4.0
    """How many times as far as predicted the outputs of the training nodes may move, measured in mean KL."""

    rehearsed_share: float = 0.05
    """Share of the edges that a rehearsal takes."""

    rehearsed_edges: int = 20_000
    """How many at most."""

    rehearsals: int = 6
    """Dampings tried when a model is prepared, and when a request without a prepared state has a step to refine."""

    left: float = 0.8
    """Share of the gradient of the local problem that a rehearsal may leave, and a refined step. Of 0.65, 0.8 and 1 the
    one that closed most, on average, of the gaps of thirty-two requests (four backbones on Cora, CiteSeer, PubMed and
    CS): 0.39, 0.41 and 0.41. Of twenty-four requests to models that validation stopped early (Cora and the embedded
    graph) ten closed less than 0 where a refined step might leave anything, the lowest −5.2, and three with 0.8, the
    lowest −0.09."""

    caution: float = 10.0
    """Times the least damping, for a deferred step: low-rank curvature is all there is and nobody looks. Tried were 1,
    3, 10 and 30, on 6 to 9 single edges each (GCN and SGC on Cora, all four models on the embedded graph) and 6 single
    nodes (GCN on Cora). 1 closes more on average for GCN and SGC, but one edge of a GAT closed −0.23 of its gap with 1,
    −0.11 with 3 and +0.09 with 10; with 10 the worst was −0.05, of a gap of 2e-8."""

    floor: float = 1.0
    """Times the smallest kept eigenvalue: the damping of a deferred step at a minimum. For a forgettable GCN on the
    embedded graph 0 was worse than nothing on the worst of eight edges (−0.04), and 2 closed two thirds as much as 0
    for single nodes; ½ and 1, in between, were tried on one seed."""


@dataclass(frozen=True)
class Step:
    """How an influence step is solved for and followed up (:mod:`unweave.methods.step`, :mod:`unweave.methods.gif`)."""

    products: int = 60
    """Curvature products for the space that serves every damping."""

    tolerance: float = 1e-2
    """Relative residual it is solved to."""

    given_tolerance: float = 1e-4
    """The same where the damping is given, by conjugate gradients."""

    given_iterations: int = 200
    """Their iterations."""

    steps: int = 120
    """Gradients of a restart at a minimum, at most: it ends before where the gradient is as small as training left it,
    or further ones promise no more (``settled``, ``pays``)."""

    settled: float = 3e-5
    """Share of the whole fall of the objective below which what one more step promises is nothing. Measured in the
    fall, not by the gradient, which the stiffest directions make: at a hundredth of its gradient a GCN on Cora (decay
    1e-3, 5 % of the edges) had closed 0.9996 of the gap and a GraphSAGE of three layers (3e-4) 0.978; by this rule
    they close 0.9998 with 10 gradients and 0.997 with 33."""

    pays: float = 0.002
    """Share of the whole fall of the objective below which eight more gradients do not pay."""

    cheap: float = 0.04
    """Share of the passes of training, where those are known, beyond which a restart is no longer cheap: from there on
    it takes ``dear`` to go on. Tables of a row for every user have a flat spectrum, which thirty-two eigenpairs do not
    cover: a LightGCN on LastFM took 9 % of a retraining to close 0.998 of the gap. With 0.05 it was 4.8 to 6.1 % (and
    0.994 or more), since a retraining without the data may take less than training did; less than 5 % are wanted."""

    dear: float = 0.01
    """What ``settled`` is beyond that: the least share that one more gradient must promise."""

    usual: int = 20
    """How many it takes as a rule, to plan by: 5 to 20 in 21 of 33 measured requests; on WordNet up to 121."""

    small_steps: int = 4
    """Gradients for a request that pulls less than what training left: more of them polish, they do not forget. Over
    two hundred such requests in a row 4 closed 0.998 of the gap at 15 passes each, 15 closed 0.999 at 32."""

    drifted: float = 2.0
    """How many times the gradient that training left may be there before a small request: more, and what the requests
    before it left is made good."""

    damped_steps: int = 4
    """Gradients on a model that is not at a minimum, once curvature and damping are known: a few more overshoot."""

    corrections: int = 7
    """Gradients spent on making one influence step good, on a model that is neither prepared nor at a minimum."""

    enough: float = 0.01
    """Of the gradient it started from, short of a minimum: further steps would not pay."""

    drift: float = 1.5
    """How many times the promised change is suspicious: Q is then no longer the problem that the request posed."""

    saturated: float = 0.01
    """Mean training loss, in nats, below which a step is confirmed by how far it moves the outputs
    (:mod:`unweave.methods.confirm`). The built-in models, trained as usual on the embedded graph and Cora, have 0.025
    or more."""

    believed: float = 0.6
    """The least that the outputs of the training nodes may move, as a share of what the curvature predicts, and the
    inverse of the most. GraphSAGE (64 units, no decay, Cora, training loss 3e-4), 30 small requests: the two prepared
    answers that were clearly worse than nothing (−0.67 and −0.40) moved them by 0.26 and 0.33 of it; shortened until it
    is 0.6, they close +0.49 and +0.53."""

    farthest: float = 0.25
    """How many times as far as the request itself, which changed the graph under the model, its answer may move the
    outputs of all nodes of such a model, in mean KL. As far is what may be too far; half of that length, a quarter of
    the KL, is the best point of a parabola that is back at nothing there. GraphSAGE and TransformerConv at a training
    loss of 1e-3, five small requests (``benchmarks/overfitted.py``), worst of single seeds: −1.9 without a bound (one
    seed), −0.36 with 1 (four seeds), −0.08 with 0.25 (three of them). No other value was tried."""

    shortened: float = 0.7
    """What the length of a step is multiplied by until it can be believed."""

    shortenings: int = 8
    """How often, at most."""

    recording: int = 8
    """Gradients for which recording one of them as a CUDA graph pays."""

    large: float = 0.15
    """Share of the training nodes, edges or feature rows: more is a large request, and the receipt warns."""

    hard: float = 16.0
    """Times the least damping: a first step that had to be damped so much says that the model is far from quadratic,
    and the receipt warns. Of 144 requests of a probe, 31 were; 77 % of those closed less than 0.3 of the gap, 24 % of
    the others."""


@dataclass(frozen=True)
class Search:
    """The quasi-Newton line search (:mod:`unweave.curvature.solvers.quasi_newton`)."""

    sufficient: float = 1e-4
    """Share of the slope that a step must keep (Armijo)."""

    shrink: tuple[float, float] = (0.1, 0.6)
    """Between which a rejected length is multiplied."""

    shortest: float = 1e-5
    """Length below which a direction is given up."""

    first: int = 8
    """Evaluations that finding a first step may take."""

    window: int = 8
    """Evaluations over which it is asked whether they pay."""

    memory: int = 30
    """Pairs of steps and gradient differences that are remembered."""


@dataclass(frozen=True)
class Newton:
    """Newton's method on a convex objective (:mod:`unweave.curvature.solvers.newton`)."""

    sufficient: float = 1e-4
    """Share of the slope that a step must keep."""

    loosest: float = 0.1
    """Relative residual of the first linear system."""

    halvings: int = 40
    """Of a step, at most."""


@dataclass(frozen=True)
class Walk:
    """The walk along the path of training (:mod:`unweave.methods.retrace`)."""

    caution: float = 2.0
    """λ at the first step. 1 is the implicit Euler step, which overshoots where the path bends (measured: GCN, GAT)."""

    least: float = 1.0
    """λ is never lower."""

    most: float = 4.0
    """λ is never raised by more at a time."""

    ease: float = 1.5
    """What λ is lowered by after a step that took less than half of the pull along it."""

    rank: int = 8
    """Eigenpairs of the prepared curvature that are used; 16 or 32 close no more than 0.01 beyond (GCN, GAT, SGC)."""

    along: float = 0.05
    """The least cosine between a step and the curvature that was missing on it for that to be believed (SR1)."""

    worse: float = 0.5
    """By what share of it the answer may raise the objective of doing nothing; beyond that the walk went astray."""


@dataclass(frozen=True)
class Ending:
    """When an ordinary training has ended (:mod:`unweave.training.ending`)."""

    look: int = 10
    """Epochs between two looks at the validation nodes."""

    patience: int = 50
    """Epochs without a better one after which it ends; half as many as the best took, where that is more."""

    most: int = 1000
    """Epochs after which it is cut off."""


@dataclass(frozen=True)
class Polish:
    """Training to a minimum (:mod:`unweave.training.polish`)."""

    evaluations: int = 2400
    """Gradients that a polish may take."""

    pays: float = 3e-4
    """Share of what following a typical deletion lowers the objective by: the least that ``refresh`` more gradients
    must lower it by, or the polish has ended. What is left is then little for requests a hundred times as small, too:
    with 3e-3 a GraphSAGE on WordNet stopped at 240 gradients, and 200 requests of 0.04 % closed 0.92 of the gap."""

    usual: int = 600
    """Gradients that one takes as a rule, to plan by; measured were 300 (Cora) to 2,400 (WordNet)."""

    choosing: int = 60
    """Gradients of the polishes by which the weight decay is chosen."""

    decays: tuple[float, ...] = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
    """Weight decays to choose from."""

    unit_decay: float = 3e-3
    """The largest that is tried for features of length 1, then those below it while they pay. Features that are s times
    as long need s times as much: L2 on both factors of a product is a nuclear norm on the product."""

    given_up: float = 0.01
    """Validation F1 that may be given up for a minimum that is one; twice the ``evidence`` where that is more."""

    evidence: float = 1.0
    """Standard errors of the difference by which the validation F1 of a smaller decay must be better; the nodes are the
    same ones, so that only those count that one model has right and the other wrong."""

    knows: float = 0.01
    """Share of the loss of a model that knows nothing by which a weight decay must leave it lower on validation nodes
    to be chosen. A LightGCN with 512 columns and a decay of 1e-3 had embeddings near 0, a loss of ln 9 for 9 candidates
    (2.1972), and still ranked half of them first by what was left."""

    agreement: float = 0.9
    """The share of a typical deletion's effect that another seed must leave for the minimum to be called one."""

    sought: float = 0.99
    """The same share where a larger decay is no longer tried for. A GraphSAGE on a graph of hubs had 0.963, and ``gif``
    closed 0.883 of the gap of 5 % of the nodes; one on WordNet 0.984 and 0.960 (5 % of the edges)."""

    typical: float = 0.05
    """Share of the edges that a typical deletion takes; of the training nodes where there are no edges."""

    refresh: int = 60
    """Gradients after which the curvature is computed anew."""

    tolerance: float = 1e-4
    """Share of the first gradient at which the polish is done."""

    lost: float = 0.01
    """Validation F1 that may be lost without a warning."""


@dataclass(frozen=True)
class Release:
    """Certified removal (:mod:`unweave.certificate.release`)."""

    tolerance: float = 2.0**-26
    """Residual as a share of ‖∇L'(0)‖: half of the digits of a double, which Newton's method reaches, rounding
    spares."""

    refine: int = 20
    """Newton steps from the trained parameters, before retraining."""

    retrain: int = 200
    """Newton steps from zero."""

    nearly: float = 0.9
    """Of the tolerance, where the search ends; the rest is for rounding."""


@dataclass(frozen=True)
class Ladder:
    """The choice between the methods (:mod:`unweave.methods.ladder`)."""

    usual_budget: float = 0.2
    """Of a retraining: where neither a budget nor a wish is given."""

    alike: float = 0.01
    """Rungs that differ by less are taken as equal, and the cheaper one is used."""

    worth_replaying: float = 0.15
    """The least share of the training whose replay closes more than an influence step, where nothing was measured on
    the model: 5 % of the edges of Cora, averaged over GCN, SGC, GAT and GIN, replay 10 / 20 % 0.40 / 0.58, gif 0.48."""

    longest: int = 40
    """Gradients of the rung that goes on where they do not pay, at a minimum: on small graphs, where ``gif`` takes 5 to
    20, that is longer. It is measured nowhere else."""

    finetunes: tuple[float, ...] = (0.05, 0.1)
    """Lengths of fine-tuning, as shares of the epochs of training."""

    shares: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Checkpoints that serve the ladder: a walk along the whole path of training, and ends to train again."""

    replayed: float = 0.5
    """The largest share that is replayed where there is a path to walk along, which costs a fraction of more."""

    few: int = 5
    """Gradients of the cheapest walk."""

    ends: float = 0.2
    """The largest share that is trained again at the end of a walk."""

    factors: tuple[float, ...] = (1.0, 10**-0.5, 10**0.5)
    """Times the damping that ``prepare`` found, each tried by calibration; the first is that damping itself."""

    clearly: float = 0.05
    """By how much the log of what is left must be less, on average, for another damping than the one prepared."""

    like: int = 5
    """Deletions, at least, that the cost of a request is taken from."""

    smallest: float = 1e-6
    """What is left of a gap, as a share, is not told apart below this."""

    largest: float = 1e3
    """Nor above this."""

    folds: int = 4
    """Parts that the deletions are held back in, to tell how good the estimates are."""

    belief: tuple[float, float, float] = (1e-3, 0.1, 1.0)
    """Ridge of an estimate's constant, of the size, and of what a kind of request has of its own: the size is believed
    at once, that a kind is special takes an example to be half believed."""

    spread: float = 1.0
    """Ridge of the slope of the errors' size: one example, one unit from the others, half believes it."""


@dataclass(frozen=True)
class Baselines:
    """The methods that others are compared with (:mod:`unweave.methods.baselines`)."""

    scale_products: int = 16
    """Products that find the scale of the paper's recursion, where it is to find itself."""

    exact_tolerance: float = 1e-10
    """Relative residual of the closed form's linear system."""

    exact_iterations: int = 5000
    """Its iterations."""

    vote_steps: int = 1000
    """Steps for GraphEraser's learned weights, at most."""

    vote_close: float = 1e-4
    """How many nats a node above their minimum is near enough."""

    rounds: int = 30
    """Of balanced clustering; it stops before where nothing changes."""


@dataclass(frozen=True)
class Inspection:
    """How freely training nodes move their outputs (:mod:`unweave.inspection.leverage`)."""

    samples: int = 32
    """Random vectors that it is estimated from. Of the margins of wrongly predicted nodes the ten largest label scores
    were off by 0.62 of their sizes with a linear step and by 0.26, 0.18 and 0.17 with 24, 32 and 48 (GCN, embedded
    graph, decay 3e-4, sixteen margins); by 0.29, and 0.07, 0.08 and 0.06 (SGC, Cora, decay 3e-5, ten)."""

    tolerance: float = 0.1
    """Relative residual to which each is solved for. With 0.3, 0.1 and less (0.03, 0.01) those were off by 0.24, 0.18
    and 0.23, and by 0.29, 0.08 and 0.07, after 5, 7 and 9 products, and 2, 4 and 7."""

    iterations: int = 50
    """At most."""

    small: int = 8
    """Products that a sample takes: a model with fewer parameters than all of them is taken exactly."""


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
        return {
            group: {name: list(value) if isinstance(value, tuple) else value for name, value in vars(numbers).items()}
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
