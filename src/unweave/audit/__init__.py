"""Proof of forgetting: tests that can tell unlearning from doing nothing, one file each.

Data flows one way: request → items in question (:mod:`~unweave.audit.case`) → models to compare with
(:mod:`~unweave.audit.population`) → a number from each test → :class:`Evidence` → :class:`Audit` → report.

``import unweave as uw`` has the function as ``uw.audit``; what else is here comes by ``from unweave.audit import …``.
"""

from unweave.audit.auditing import Audit, audit
from unweave.audit.evidence import Evidence, Reading
from unweave.audit.hard import memorised_request
from unweave.audit.population import Upbringing
from unweave.audit.report import write_report

__all__ = ["Audit", "Evidence", "Reading", "Upbringing", "audit", "memorised_request", "write_report"]
