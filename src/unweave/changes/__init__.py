"""Data that is added or corrected beside what is deleted: one :class:`Change` says all three."""

from unweave.changes.change import Change
from unweave.changes.parts import Added, Corrected, NewGraph, NewNode

__all__ = ["Added", "Change", "Corrected", "NewGraph", "NewNode"]
