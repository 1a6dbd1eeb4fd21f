"""What is done: Keras's `fit` with exact micro-batches, and an out-of-memory survived in the middle of it."""
