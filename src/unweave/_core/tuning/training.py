"""When training ends, how a model is brought to its minimum, and what a certified release is noised with."""

from dataclasses import dataclass

__all__ = ["Ending", "Polish", "Release"]


@dataclass(frozen=True)
class Ending:
    """When an ordinary training has ended (:mod:`unweave.training.ending`)."""

    look: int = 10
    """Epochs between two looks at the validation nodes."""

    patience: int = 50
    """Epochs without a better one after which it ends; half as many as the best took, where that is more."""

    most: int = 1000
    """Epochs after which it is cut off."""

    slower: int = 3
    """How often a third of the learning rate is tried, where training lost what it had learnt."""


@dataclass(frozen=True)
class Polish:
    """Training to a minimum (:mod:`unweave.training.polish`)."""

    evaluations: int = 2400
    """Gradients that a polish may take."""

    pays: float = 3e-4
    """Share of what following a typical deletion lowers the objective by: the least that ``stretch`` more gradients
    must lower it by, or the polish has ended. What is left is then little for requests a hundred times as small, too:
    with 3e-3 a GraphSAGE on WordNet stopped at 240 gradients, and 200 requests of 0.04 % closed 0.92 of the gap. The
    deletion is followed before a polish ends: with little decay, a quadratic model of it promises far too much."""

    usual: int = 600
    """Gradients that one takes as a rule, to plan by; measured were 300 (Cora) to 2,400 (WordNet)."""

    choosing: int = 60
    """Gradients of the polishes by which the weight decay is chosen, by the lowest loss on validation nodes. Judged by
    validation nodes that a rule has not seen (``benchmarks/results/decays``), what it chooses has 0.0023 ± 0.0015 more
    F1 than the largest decay whose F1 is within a standard error of the best, and a lower loss."""

    decays: tuple[float, ...] = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
    """Weight decays to choose from."""

    unit_decay: float = 3e-3
    """The largest that is tried for features of length 1, then those below it while they pay. Features that are s times
    as long need s times as much: L2 on both factors of a product is a nuclear norm on the product."""

    given_up: float = 0.01
    """Validation F1 that may be given up for a minimum that is one; two standard errors of the difference where that is
    more. The nodes are the same ones, so that only those count that one model has right and the other wrong."""

    knows: float = 0.01
    """Share of the loss of a model that knows nothing by which a weight decay must leave it lower on validation nodes
    to be chosen. A LightGCN with 512 columns and a decay of 1e-3 had embeddings near 0, a loss of ln 9 for 9 candidates
    (2.1972), and still ranked half of them first by what was left."""

    agreement: float = 0.9
    """The share of a typical deletion's effect that following it must make good, beside another seed's training without
    the data, for the minimum to be called one."""

    sought: float = 0.99
    """The same share where a larger decay is no longer tried for. 0.97 is to be closed of every request, and what is
    left of two of them may differ by a factor of three and more: a GCN on DBLP left 0.0014 of 5 % of the edges and
    0.0006 of 5 % of the nodes, a SIGN on a graph of hubs 0.024 and 0.002."""

    trainings: int = 5
    few: int = 2500
    """On a graph of n nodes ⌈few/n⌉ trainings from other seeds are asked whether the minimum is one, ``trainings`` at
    most. Of eight seeds of a GCN on a graph of 703 nodes, at a decay of 3e-4, four ended at another minimum than the
    other four; the first to be asked agreed to 0.999, and so did the next two. On a large graph a deletion is many
    small ones, and one training tells enough."""

    typical: float = 0.05
    """Share of the edges that a typical deletion takes; of the training nodes where there are no edges."""

    stretch: int = 60
    """Gradients after which it is asked whether more of them pay."""

    refresh: int = 240
    """Gradients after which the curvature is computed anew, at most: first after a stretch, then after twice as many
    each time, since it changes less and less; and where a stretch does not pay. To compute it takes as many passes as
    40 gradients and more, and what these taught is forgotten."""

    tolerance: float = 1e-4
    """Share of the first gradient at which the polish is done, but for what costs little:"""

    little: float = 1e-9
    """Share of the objective by which one more step may promise to lower it, if ``further`` gradients get that far. A
    node or an edge changes the model of a few thousand nodes by 1e-7 nats and more, and what is left is to be a
    hundredth of that. Where curvature is small, a small gradient does not mean it is: an SGC left 6e-8 on DBLP, and one
    node closed 0.80 of the gap to a retraining, which lay short of the minimum by that much; 10 gradients after its 40
    make it 0.99."""

    further: float = 0.25
    """Gradients for that, as a share of those before. To get there whatever it takes cost a SIGN on PubMed 554 after
    its 67, and SGCs a fifth."""

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
