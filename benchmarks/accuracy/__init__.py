"""How accurate the models are, and how honest: `python -m benchmarks.accuracy`."""
