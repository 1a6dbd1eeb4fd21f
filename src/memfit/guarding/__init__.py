"""What goes wrong with memory while a program runs: growth that does not stop, and who is to blame."""
