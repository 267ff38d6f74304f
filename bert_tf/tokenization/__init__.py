"""Text -> words -> word pieces -> ids, as the original has them, as TensorFlow operations."""
