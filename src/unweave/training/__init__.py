"""How a model was trained: recipe, optimiser, checkpoints, the end at a minimum. Uses certificate and below."""
