"""What goes wrong: why memory ran out, and what would help. It decides; it never acts."""
