"""What fastbayes claims about speed, as cases that anyone can run: `python -m benchmarks.run`."""
