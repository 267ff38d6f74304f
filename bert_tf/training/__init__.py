"""Training: the loop, a step of it, the optimizer, the devices."""
