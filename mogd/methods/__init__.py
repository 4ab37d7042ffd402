"""One deep paper per file."""
