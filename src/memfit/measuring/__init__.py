"""What memory was: meters of devices and processes, and trials in fresh processes."""
