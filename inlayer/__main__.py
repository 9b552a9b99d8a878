"""The command line: `inlayer`, and `python -m inlayer`. Ctrl-C while it is being imported ends as quietly as later.

Threads of torch that wait for each other sleep, unless somebody says otherwise: on a machine that does other work too,
waiting awake makes a step of training twenty times slower (docs/log.md). It has to be said before torch is imported.
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
