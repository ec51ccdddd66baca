"""Every error that unweave raises on purpose, and the one category of its warnings.

::

    UnweaveError
    ├── RequestError             the request cannot be carried out on this graph
    │   ├── EmptyRequestError        nothing to forget
    │   ├── ClassLossError           a class would lose its last training node (allow it explicitly)
    │   └── AbnormalRequestError     it would do far more damage than random requests like it
    ├── DataError                the graph cannot be used
    │   ├── DataUnavailableError     files are missing and cannot be downloaded
    │   └── IntegrityError           a data file is not the one it claims to be
    ├── ModelError               the model cannot be unlearned as it is
    ├── MethodError              unknown method, or an option it does not take
    ├── SolverError              the linear system was not solved
    │   ├── DivergenceError          the recursion grows without bound
    │   ├── NegativeCurvatureError   the curvature is not positive
    │   └── NoProgressError          the answer would be a no-op in disguise
    ├── StrictError              what was done is not to be relied on, and strict was asked for
    ├── BudgetError              the memory allowed is too little for a single node
    ├── RankError                one of several processes failed, or cannot be reached
    ├── RunError                 a run folder is missing, taken, truncated or edited
    ├── LedgerError              a ledger was changed, or does not belong to its keys
    └── ServiceError             a service refuses what it was asked for

What a caller should know and no error tells is warned of as an ``UnweaveWarning``, a ``UserWarning``:
``warnings.simplefilter("error", uw.UnweaveWarning)`` makes errors of them.

A stream of requests that is interrupted (Ctrl-C) raises ``InterruptedStream``, a ``KeyboardInterrupt``.

Each message names what was received, what was expected and what to do next.
"""

from typing import Any


class UnweaveError(Exception):
    """Base of every error that unweave raises on purpose.

    Attributes:
        run: The run as far as a stream of requests got, where this ended it on the way.
        told: Whether every rank of a job knows of it.
    """

    run: Any = None
    told: bool = False


class UnweaveWarning(UserWarning):
    """What was made is not what was asked for, or not to be relied on; the sentence says what to do."""


class InterruptedStream(KeyboardInterrupt):
    """A stream of requests was interrupted; what was carried out until then is kept.

    Attributes:
        run: The run as far as it got.
    """

    def __init__(self, message: str, run: Any) -> None:
        super().__init__(message)
        self.run = run


class RequestError(UnweaveError):
    """The request cannot be carried out on this graph."""


class EmptyRequestError(RequestError):
    """The request names nothing, or nothing that the graph still holds."""


class ClassLossError(RequestError):
    """The request would take the last training node of a class."""


class AbnormalRequestError(RequestError):
    """The request is predicted to do far more damage than random requests like it; it was not carried out."""


class DataError(UnweaveError):
    """The graph cannot be used: masks, labels, features or weights are not valid."""


class DataUnavailableError(DataError):
    """The files of a data set are neither on disk nor downloadable."""


class IntegrityError(DataError):
    """A data file does not have the content it is known by, so it was not read."""


class ModelError(UnweaveError):
    """The model cannot be unlearned as it is."""


class MethodError(UnweaveError):
    """No such method, or it does not take the option given."""


class BudgetError(UnweaveError):
    """The memory allowed is too little for the neighbourhood of a single node, or there is not as much as it takes."""


class SolverError(UnweaveError):
    """The linear system could not be solved."""


class DivergenceError(SolverError):
    """The iteration grows instead of settling."""


class NegativeCurvatureError(SolverError):
    """The matrix is not positive definite, so its inverse does not lead to a minimum."""


class NoProgressError(SolverError):
    """The solver barely moved; its answer would look like success and do nothing."""


class StrictError(UnweaveError):
    """By its own figures the answer is worse than doing nothing, moved nothing or no nearer; strict was asked for."""


class RankError(UnweaveError):
    """One of the processes that do a job together failed, cannot be reached, or came to other numbers."""


class RunError(UnweaveError):
    """A run folder is missing, taken, truncated or edited."""


class LedgerError(UnweaveError):
    """A ledger, a checkpoint or a key was changed, or does not belong to the others."""


class ServiceError(UnweaveError):
    """A service refuses what it was asked for, as it stands.

    Args:
        message: Why, and what to do.
        status: The HTTP status that says the same.
        details: Facts for programs.
    """

    def __init__(self, message: str, *, status: int = 409, **details: Any) -> None:
        super().__init__(message)
        self.status, self.details = status, details
