"""Text -> word pieces -> ids, exactly as the original, as TensorFlow operations."""
