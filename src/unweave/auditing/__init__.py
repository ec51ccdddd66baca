"""Proof of forgetting: tests that can tell unlearning from doing nothing, one file each.

Data flows one way: request → items in question (:mod:`~unweave.auditing.case`) → models to compare with
(:mod:`~unweave.auditing.population`) → a number from each test → :class:`Evidence` → :class:`Audit` → report.

``import unweave as uw`` has the function as ``uw.audit``; what else is here comes by ``from unweave.auditing import
…``.
"""

from unweave.auditing.after.hard import memorised_request
from unweave.auditing.audit import Audit, audit_models
from unweave.auditing.evidence import Evidence, Reading
from unweave.auditing.population import Upbringing
from unweave.auditing.report.page import write_report

__all__ = ["Audit", "Evidence", "Reading", "Upbringing", "audit_models", "memorised_request", "write_report"]
