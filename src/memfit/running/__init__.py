"""An unmodified script with everything on: what goes into its process, and what is made of its end."""
