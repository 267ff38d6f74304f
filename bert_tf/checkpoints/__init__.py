"""Weights of every format, in and out, by the original's names."""
