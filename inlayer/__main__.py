"""Entry point of the command line: `inlayer` and `python -m inlayer`. Ctrl-C exits quietly, even during imports.

Idle torch threads sleep instead of spinning, unless the user sets OMP_WAIT_POLICY: on a busy machine, spinning makes a
training step 20 times slower (docs/log.md). AMX instructions are disabled: some virtual machines advertise them and
then kill the process at the first one. Both have to be set before torch is imported.
"""

import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")


def main() -> None:
    try:
        from inlayer.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
