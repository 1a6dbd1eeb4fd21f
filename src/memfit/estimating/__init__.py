"""What memory will be: a step measured at small shapes, and replayed at the shape that is asked for."""
