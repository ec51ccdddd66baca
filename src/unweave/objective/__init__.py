"""The training objective as a function of the parameters, and its gradient. Uses graph and below."""
