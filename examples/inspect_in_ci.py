"""Fail a CI job if a checkpoint's embedding layer has defects.

Run it on the model that a job produced: python inspect_in_ci.py path/to/model. The exit code is 0 if the layer passes,
1 if it has defects, and 2 if it cannot be read.
"""

import sys

import inlayer

# Notes that this project accepts. Every other finding fails the job, even one that inlayer reports only as a note, such
# as random-initialization: a trained model must not have it.
ACCEPTED = {"undertrained-tokens", "padding-row-nonzero"}

try:
    report = inlayer.inspect(sys.argv[1] if len(sys.argv) > 1 else "default")
except inlayer.InlayerError as error:
    print(f"cannot be read: {error}", file=sys.stderr)
    sys.exit(2)

print(f"{report.source}: {report.table.rows:,} x {report.table.width:,} {report.table.dtype}")
print(f"row norms from {report.rows.norm_min:.2f} to {report.rows.norm_max:.2f}")
for finding in report.findings:
    print(f"{'ok  ' if finding.code in ACCEPTED else 'FAIL'} {finding.code}: {finding.message}")
failed = [finding for finding in report.findings if finding.code not in ACCEPTED]
print("passed" if not failed else f"failed: {len(failed)} finding(s)")
sys.exit(1 if failed else 0)
