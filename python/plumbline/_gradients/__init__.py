"""Gradients of parameters: their sums over micro-batches, what a step leaves, and whether they are complete over the ranks."""
