"""Records -> batches: TFRecord files, the order of their records, batches by length."""
