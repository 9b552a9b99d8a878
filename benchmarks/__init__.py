"""Speed and memory against peers, as ratios: `python -m benchmarks [name ...]`."""
