"""How records are shown. It computes nothing: records in, text and pictures out."""
