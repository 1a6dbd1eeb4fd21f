"""Depth checkpointing: keep what crosses a few cuts through a model, compute the rest again on the way back.

A call of a model is traced into a private graph together with its gradient (`tracing_tf`), read as operations
with bytes and seconds (`reading_tf`), cut (`graph`, `cuts`: pure), and laid out again in the graph being
built: the forward pass once, and in the backward pass one segment at a time (`replaying_tf`).
"""
