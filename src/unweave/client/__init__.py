"""A service of unweave from another program: submit requests, follow them, fetch new weights.

Uses nothing but the standard library and :mod:`unweave.errors`: no model, no torch, no extra.
"""

from unweave.client.client import Client

__all__ = ["Client"]
