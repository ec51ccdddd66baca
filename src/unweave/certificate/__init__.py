"""What is proved of a result: bounds, and the exact (ε, δ) of Gaussian noise. Uses curvature, receipt and below."""
