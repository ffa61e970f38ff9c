"""Trainers without a line of code: `plumb run -- python train.py`. docs/attach.md describes it."""
