"""What runs in registers inside kernels: instructions, vectors, their functions, scratch."""
