"""Requests from people: a ledger that forgets and still proves. Uses everything but the command line.

Needs the extra ``unweave[serve]``.
"""
