"""What every room stands on: digests, cost, memory, sparse products. Uses errors alone."""
