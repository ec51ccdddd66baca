"""What a step of ``gif`` may cost and when it ends, and how ``retrace`` walks."""

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Dear", "Step", "Walk"]


class Dear(NamedTuple):
    """When a restart is no longer cheap, and how much it must promise from there on.

    Attributes:
        nodes: On graphs of how many nodes and more.
        share: Beyond what share of the passes of training.
        least: After how many gradients, however short training was.
        worth: What ``settled`` is from there on.
    """

    nodes: int
    share: float
    least: int
    worth: float


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
    """Gradients of a restart at a minimum, at most: it ends before where as little of its gradient is left as training
    left, or further ones promise no more (``settled``, ``pays``)."""

    settled: float = 3e-5
    """Share of the whole fall of the objective below which what one more step promises is nothing. Measured in the
    fall, not by the gradient, which the stiffest directions make: at a hundredth of its gradient a GCN on Cora (decay
    1e-3, 5 % of the edges) had closed 0.9996 of the gap and a GraphSAGE of three layers (3e-4) 0.978; by this rule
    they close 0.9998 with 10 gradients and 0.997 with 33."""

    pays: float = 0.002
    """Share of the whole fall of the objective that may be left, where falls go on to shrink as they did over the last
    sixteen gradients. Eight gradients that let it fall by less were the end before."""

    unseen: float = 0.1
    """The same as a share of what another seed's minimum differs by, where that is more: a rest so much smaller than
    luck cannot be told from it. On four large cells (``benchmarks/minima.py``) both rules together take 41 gradients
    instead of 64 and close 0.868 of the gap instead of 0.869 (agreement 0.92), 41 instead of 88 and 0.697 instead of
    0.700 (0.76), 89 instead of 64 and 0.907 instead of 0.904 (0.96), 73 instead of 64 and 0.973 both (0.99)."""

    cheap: tuple[Dear, ...] = (Dear(0, 0.02, 6, 1e-3), Dear(50_000, 0.0275, 1, 3e-3))
    """When a restart is no longer cheap, where the passes of training are known. A model that is trained in few
    gradients would be followed for a large share of them. SGC, 5 % of the edges or nodes, without it and with it (one
    seed each): Cora 8.1 and 8.7 % of a retraining, 5.9 and 6.4 %; CiteSeer 7.4 %, 5.7 %; Computers 7.1 and 8.0 %, 4.9
    and 5.3 %. They close 0.9998 to 1.0000 without it, 0.9956 to 0.9994 with it. Less than 3 % are wanted on large
    graphs, and by what twelve restarts there had closed after each gradient 3 % buy 0.98 to 0.99 of the models that
    need most: with the second three GraphSAGEs, three SIGNs and one of three layers end at 2.8 to 3.2 % and 0.984 to
    0.990, with the first alone at 3.3 to 4.3 % and 0.994 to 0.996; SGCs, trained in 360 passes, at 3.5 to 4.1 % and
    0.995 to 0.998 instead of 4.6 % and 0.9994 or more. On small graphs a request takes less than a second either way,
    and some come less near: an SGC on the embedded graph closed 0.956 of a single node with it, 0.989 without."""

    pairs: tuple[Dear, ...] = (Dear(0, 0.04, 6, 0.01),)
    """The same where examples are pairs (``Task.flat``). Tables of a row for every user have a flat spectrum, which
    thirty-two eigenpairs do not cover: a LightGCN on LastFM took 9 % of a retraining to close 0.998 of the gap. With a
    share of 0.05 it was 4.8 to 6.1 % (and 0.994 or more), since a retraining without the data may take less than
    training did; less than 5 % are wanted. For others 0.01 is too rough: an SGC is trained in so few gradients that 4 %
    of them are eight, and one on Computers then closed 0.991 and 0.988 of 5 % of the edges and nodes. Four per cent of
    a training of 350 passes (``demo:links``) are four gradients, which closed 0.97 to 0.99 of the gap, but 0.85 and
    0.90 where a dimension was born; six closed 0.97 or more, or had so much to promise that they went on."""

    most: float = 0.05
    """The same share beyond which it does not go at all where examples are pairs (``Task.flat``): all passes of a
    request are counted, those of checks and of recording too. Who wants to come nearer asks for ``steps``. For all
    models it would be too little: a GIN on the embedded graph, trained for 40 epochs, closed 0.75 instead of 0.8. One
    gradient beyond the six of ``pairs`` is always within it: 5 % of the pairs of ``demo:links`` (342 passes of
    training, one dimension born) closed 0.918 with six at 4.3 % of a retraining, 0.958 with seven at 4.8 %, 0.984 with
    eight at 5.3 %."""

    usual: int = 20
    """How many it takes as a rule, to plan by: 5 to 20 in 21 of 33 measured requests; on WordNet up to 121."""

    small_steps: int = 16
    """Gradients for a request that pulls less than what training left: shares of so small a fall say little. Edges of a
    GraphSAGE on a graph of 240 nodes, polished for 100 gradients (decay 1e-4), closed 0.58, 0.30 and -0.04 so, and -3.5
    to -16 with up to 120. So many too for a larger one where the gradient that training left cannot be kept: with a
    decay of 1e-2 one such edge closed -0.04, and -0.53 with up to 120."""

    unkept: int = 4
    """The same where that gradient cannot be kept: more of them polish, they do not forget."""

    damped_steps: int = 4
    """Gradients on a model that is not at a minimum, once curvature and damping are known: a few more overshoot."""

    corrections: int = 7
    """Gradients spent on making one influence step good, on a model that is neither prepared nor at a minimum."""

    enough: float = 0.01
    """Of the gradient it started from: further steps would not pay. At a minimum most end before, by ``settled``. With
    a tenth there, one edge of Computers, whose pull is nearly all along the stiffest directions, was followed for two
    gradients, which closed 0.44 of the gap of an SGC; with this it is 0.997."""

    kept: float = 0.002
    """Share of what following a request promises beyond which what following the gradient that training left promises
    is not little, and a restart at a minimum keeps that gradient. Five models of a part of the embedded graph (``gcn``,
    ``sage``, ``gin``, and ``sgc`` twice), polished for 40 or 60 gradients: single nodes and edges close 0.26 to 0.998
    so, -150 to 0.998 if it is never kept; of 5 % of the edges or nodes the share is 8e-4 or less and both ways close
    0.96 or more. With 0.02 that GCN took 34 gradients in place of 11 for an edge, and closed 0.986 in place of 0.995
    (without ``small_steps``)."""

    astray: float = 2.0
    """How many times the most that a quadratic model lets the kept gradient gain is too much to be a request's."""

    drift: float = 1.5
    """How many times the promised change is suspicious: Q is then no longer the problem that the request posed."""

    jumping: float = 2 / 3
    """Share of the squared gradient that training left along the direction of largest curvature beyond which it was
    jumping to and fro there (:func:`unweave.methods.confirm.restless`). Trained as usual: a GIN on MUTAG 0.98
    to 1.00, on PROTEINS 0.81, on Cora 0.88 after 60 epochs and 0.7 after 100, on CiteSeer 0.2, on the embedded graph
    0.55; GAT 0.02 to 0.50; GCN, SGC and a model of ``to_hetero`` 0.00."""

    under_way: float = 0.25
    """Share of the summed loss beyond which what may be gained along that direction is no jump, but training that has
    hardly begun. Of jumping GINs it was 0.0007 to 0.20, of regressions that nobody trained 0.31 to 0.53."""

    restless: float = 0.1
    """What may be gained along that direction then, in units of what a step promises, both by quadratic models. Of 14
    requests to such models the 12 with 0.2 to 121 closed −3.4 to +0.01 of the gap, but for one of +0.25, and the two
    with 0.02 and 0.03 closed 0.54 and 0.75 (GIN on MUTAG, PROTEINS and Cora)."""

    saturated: float = 0.02
    """Mean training loss, in nats, below which a step is confirmed by how far it moves the outputs
    (:mod:`unweave.methods.confirm`). The built-in models, trained as usual on the embedded graph and Cora, have 0.025
    or more. An EdgeCNN that was cut off at 0.011 (``benchmarks/overfitted.py``, five edges) closed −0.21 without a
    prepared state and −0.06 with one; confirmed, −0.03 and 0.00."""

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

    unfinished: float = 0.35
    """Share of the objective that training left to be gained, by the quadratic model of a prepared state, beyond which
    it was stopped so early that a retraining, which stops as early, does only a part of what a step does. A step of
    such a model that moves outputs farther than ``farthest`` lets it is shortened until it does not, by that times the
    share that is no longer to be gained. TAGConv, ChebConv, SAGEConv and GCNConv on generated graphs of 800 nodes after
    15 or 30 epochs (0.38 to 0.76 left) closed less than 0 in 38 of 78 requests without it, down to −15. Models of 60 to
    300 epochs (0.06 to 0.33) moved outputs as far and were right to: so bounded, an SGC on Cora with a fifth of the
    labels flipped would close 0.39 instead of 0.91."""

    falling: float = 0.5
    """The same share where nothing is prepared, by what eight gradients really gain: 0.71 to 0.89 of these models that
    were stopped early, 0.14 to 0.42 of the others, 0.64 of a GCN on the embedded graph after 30 epochs."""

    halvings: int = 3
    """How often a prepared step of a model that is not at a minimum is halved, where it leaves more than
    ``damping.left`` of the pull that it was to take back. A GCN on a generated graph of 1,000 nodes, 30 epochs: 5 % of
    the nodes closed −1.0 with all of it left, and +0.1 with half of the step."""

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
