"""Run benchmarks. Prints a table and writes a plot for each, then prints one JSON line per result."""

from __future__ import annotations

import argparse
import importlib
import time

from rich.console import Console

from benchmarks.measure import Result, as_json, draw, show

NAMES = ("lookup", "tokenize", "encode", "end_to_end", "head_loss", "open_checkpoint", "neighbors", "serve", "train")


def main() -> None:
    """Run the named benchmarks, or all. The exit code is 0 even if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        choices=[[], *NAMES],
        metavar="name",
        help=f"one or more of {', '.join(NAMES)} (default: all)",
    )
    names = parser.parse_args().names or NAMES
    console = Console(width=120)
    results: list[Result] = []
    for name in names:
        start = time.perf_counter()
        for result in importlib.import_module(f"benchmarks.{name}").run():
            results.append(result)
            show(result, console)
            console.print(f"  plot: {draw(result)}", highlight=False)
        console.print(f"  {name} took {time.perf_counter() - start:.0f} s\n", highlight=False)
    for result in results:
        print(as_json(result))


if __name__ == "__main__":
    main()
