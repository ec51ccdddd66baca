"""A model with its graph, training and receipts, in memory and on disk. Uses auditing and below."""
