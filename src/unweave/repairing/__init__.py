"""Repair: find what is wrong in the data of a model, forget it, keep what helps.

Data flows one way: what the model says unseen (:mod:`~unweave.repairing.unseen`) → how probable each label
(:mod:`~unweave.repairing.labels`) and edge (:mod:`~unweave.repairing.edges`) is wrong → suspects → rounds → a report.
``import unweave as uw`` has the function as ``uw.repair``.
"""

from unweave.repairing.repair import repair
from unweave.repairing.report.page import write_report
from unweave.repairing.result import Repair
from unweave.repairing.suspects import Suspect

__all__ = ["Repair", "Suspect", "repair", "write_report"]
