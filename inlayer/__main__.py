"""The command line: `inlayer`, and `python -m inlayer`. Ctrl-C while it is being imported ends as quietly as later."""

import sys


def main() -> None:
    try:
        from inlayer.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
