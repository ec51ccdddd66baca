"""How ``auto`` climbs, what the baselines of the literature use, and how nodes answer an inspection."""

from dataclasses import dataclass

__all__ = ["Baselines", "Inspection", "Ladder"]


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

    samples: int = 128
    """Random vectors that it is estimated from, at most. With 32, chance cost more rank order than what the formula
    leaves out: of 200 nodes removed the Spearman correlation was 0.937 and 0.948 with 32, 0.975 and 0.967 with 128 (GCN
    on CiteSeer, GraphSAGE on Cora, decay 1e-3)."""

    copied: int = 32
    """The same for modules that are called on copies of neighbourhoods, where each is another call of all of them; and
    the fewest that memory must have room for. With 4 or 8 the order of nodes was worse than without (SIGN on Cora)."""

    fewest: int = 4
    """At least so many, which tell how many it takes."""

    precision: float = 0.03
    """How well what a training node pulls with is to be known, relatively, as far as chance goes: where a node decides
    little of its output by itself a few samples do. PubMed takes 4 (SGC) and 5 (GCN), Cora 14 and all."""

    tolerance: float = 0.1
    """Relative residual to which each is solved for. With 0.3, 0.1 and less (0.03, 0.01) those were off by 0.24, 0.18
    and 0.23, and by 0.29, 0.08 and 0.07, after 5, 7 and 9 products, and 2, 4 and 7."""

    iterations: int = 50
    """At most."""

    small: int = 8
    """Products that a sample takes: a model with fewer parameters than all of them is taken exactly."""
