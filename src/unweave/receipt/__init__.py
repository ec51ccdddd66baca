"""The record of a request: what was done, how well, at what cost, and what else remembers. Uses request and _core."""
