"""Splits a batch: one optimizer step from many micro-batches, with the gradient of the whole batch."""
