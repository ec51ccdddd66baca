"""Which part of the graph did this, and what if it were gone?"""

from unweave.inspection.inspection import Inspection
from unweave.inspection.quantity import Gap

__all__ = ["Gap", "Inspection"]
