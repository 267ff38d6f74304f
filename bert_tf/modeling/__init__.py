"""Ids [B, S] -> vectors [B, S, D] -> logits -> losses; layers in `keras.ops` alone."""
