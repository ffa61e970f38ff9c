"""The parts of a watch."""
