"""One classical paper per file: numpy, scipy and scikit-learn only."""
