"""What goes wrong: what makes memory grow, why it ran out, and what would help."""
