"""The tables of a service, version by version."""
