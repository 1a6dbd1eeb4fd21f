"""Data from files and generators, a window at a time: `memfit.stream`."""
