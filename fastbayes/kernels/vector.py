"""Integer vectors as values inside kernels."""
