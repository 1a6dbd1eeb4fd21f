"""Chooses the fastest way to train within a budget: `memfit.plan`."""
