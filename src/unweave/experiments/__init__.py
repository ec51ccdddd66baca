"""Comparisons, tables and figures; one file each."""
