"""How much memory may be used, and who said so."""
