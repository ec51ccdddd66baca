"""The objective in parts of a graph: blocks of nodes, or the neighbourhood of a few. Uses objective and below."""
