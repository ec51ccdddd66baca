"""Curvature of the objective: products, damping, solvers, and what is prepared once. Uses objective and below."""
