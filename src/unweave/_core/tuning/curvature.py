"""How much of the curvature is looked at, when a point is a minimum, and how steps are searched for."""

from dataclasses import dataclass

__all__ = ["Damping", "Minimum", "Newton", "Search", "Spectrum"]


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

    empty: float = 0.01
    """Size of a dimension of an embedding, as a share of the largest, below which weight decay has set it to zero
    (:mod:`unweave.curvature.birth`): 0.0005 and less on three trained models of pairs, where those in use had 0.1 and
    more."""

    trace: float = 1e-3
    """Share of the largest trace of such dimensions above which others tell of their curvature too. Of 28 requests to
    four models of pairs the sign of what traces tell was that of what a gradient beside them finds in all; of four with
    something to be born (``demo:links``) the curvatures were −0.675, −0.184, −0.312 and −0.295, and by such a gradient
    −0.674, −0.154, −0.316 and −0.321."""

    probe: float = 1e-3
    """Size of a probe into such dimensions, all together, as a share of the largest, squared. With 1e-2, 1e-3 and
    1e-4 its curvature was off by 5e-5, 4e-5 and 1e-4 of its size (``demo:links``, against products)."""

    factored: float = 0.1
    """How far that curvature may be from symmetric, and from all that a probe finds, as shares of it. Where pairs are
    scored by dot products both are rounding: 0.01 to 0.07 along the traces (``demo:links``)."""

    born: float = 1e-3
    """How far below zero an eigenvalue must be, as a share of the largest, for a dimension to be born."""

    tried: float = 0.01
    """Size of the trial that tells how large it becomes, as a share of the largest there is, squared."""

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

    memory: int = 60
    """Pairs of steps and gradient differences that are remembered. More of them save gradients, and take time beside
    them."""

    numbers: int = 2**30
    """Numbers that these may take in all, 4 GiB in single precision, twice as many as there are parameters for each."""

    fewest: int = 4
    """Pairs that are remembered however many parameters there are."""


@dataclass(frozen=True)
class Newton:
    """Newton's method on a convex objective (:mod:`unweave.curvature.solvers.newton`)."""

    sufficient: float = 1e-4
    """Share of the slope that a step must keep."""

    loosest: float = 0.1
    """Relative residual of the first linear system."""

    halvings: int = 40
    """Of a step, at most."""
