"""The data that a model is trained on."""
