"""Entry point of the command line: `inlayer` and `python -m inlayer`. Ctrl-C exits quietly, even during imports.

Waiting threads of torch sleep unless the user decides otherwise: on a busy machine, busy waiting makes a training step
twenty times slower (docs/log.md). This has to be set before torch is imported.
"""

import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    try:
        from inlayer.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
