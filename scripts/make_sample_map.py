"""Compute the t-SNE map of the bundled sample model: `python -m scripts.make_sample_map`.

The file is named after the content of the table, as in the cache: if the table changes, it is no longer used, and
tests/test_samples.py fails until this script has been run again. It takes about a minute.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import inlayer
from inlayer.geometry.projection import BUNDLED, measure_distortion, project, table_fingerprint


def main(folder: Path = BUNDLED) -> None:
    table = inlayer.load("default").table
    for old in folder.glob("*-tsne.npz"):
        old.unlink()
    points = project(table, "tsne").points
    path = folder / f"{table_fingerprint(table)}-tsne.npz"
    k, ids, kept, trustworthiness, *_ = measure_distortion(table, points, sample=len(points))
    np.savez(
        path, points=points, explained=np.nan, k=k, ids=ids.astype(np.int32), kept=kept.astype(np.float16),
        trustworthiness=trustworthiness,
    )  # fmt: skip
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
