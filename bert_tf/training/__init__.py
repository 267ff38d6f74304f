"""Batches -> updates: the loop, one step of it, the optimizer, the devices."""
