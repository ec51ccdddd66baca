"""Proof of forgetting: tests that can tell unlearning from doing nothing, one file each.

Data flows one way: request → items in question (:mod:`~unweave.audit.case`) → models to compare with
(:mod:`~unweave.audit.population`) → a number from each test → :class:`Evidence` → :class:`Audit` → report.
"""

from unweave.audit.auditing import Audit, audit
from unweave.audit.evidence import Evidence, Reading
from unweave.audit.hard import memorised_request
from unweave.audit.population import Upbringing

__all__ = ["Audit", "Evidence", "Reading", "Upbringing", "audit", "memorised_request"]
