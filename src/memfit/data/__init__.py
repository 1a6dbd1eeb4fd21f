"""What the inputs are: how long sequences are, and batches of like lengths."""
