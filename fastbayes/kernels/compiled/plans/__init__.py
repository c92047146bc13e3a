"""What a kernel is called with: which columns it takes how, and joined tables."""
