"""t-SNE of a table's principal components, by openTSNE (extra `map`), interruptible with Ctrl-C.

principal components -> [t-SNE points (n, 2)] -> map
- see also: PCA, the cache and the choice of a method (geometry/projection.py)
Tested in tests/geometry/test_projection.py.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import MissingExtraError
from inlayer.render.progress_bar import Progress

TSNE_STEPS, REPORT_EVERY = 750, 10  # openTSNE's steps, and how often the progress is reported
PERPLEXITY = 30.0


def tsne(rows: npt.NDArray[np.float32], progress: Progress | None) -> tuple[npt.NDArray[Any], bool]:
    """Points (n, 2) for rows, and whether they are complete: Ctrl-C returns the points so far.

    Before the first step there are none, and Ctrl-C raises KeyboardInterrupt.
    """
    try:
        from openTSNE import TSNE
    except ImportError as error:
        raise missing_tsne() from error
    latest, calls, interrupted = rows[:, :2], 0, False
    failures: list[BaseException] = []

    def report(step: int, error: float, embedding: Any) -> bool:  # noqa: ARG001
        nonlocal latest, calls, interrupted
        latest, calls = np.array(embedding), calls + 1
        try:
            if progress is not None and not interrupted:
                progress(min(calls * REPORT_EVERY, TSNE_STEPS), TSNE_STEPS)
        except KeyboardInterrupt:
            interrupted = True
        return interrupted  # true ends the computation

    def fit() -> None:
        nonlocal latest
        try:
            latest = np.array(model.fit(rows))
        except BaseException as error:
            failures.append(error)

    perplexity = min(PERPLEXITY, max(1.0, (len(rows) - 1) / 3))
    model = TSNE(
        perplexity=perplexity,
        metric="cosine",
        random_state=0,
        n_jobs=-1,
        callbacks=report,
        callbacks_every_iters=REPORT_EVERY,
    )
    # Finding the neighbors of a large table takes minutes of compiled code that does not react to Ctrl-C.
    worker = threading.Thread(target=fit, name="inlayer-tsne", daemon=True)
    try:
        worker.start()
        worker.join()
    except KeyboardInterrupt:
        interrupted = True
    if interrupted and not calls:
        raise KeyboardInterrupt
    if failures:
        raise failures[0]
    return latest, not interrupted


def missing_tsne() -> MissingExtraError:
    """Return the error if openTSNE is not installed."""
    return MissingExtraError("t-SNE needs openTSNE: pip install 'inlayer[map]'; PCA needs no extra package")
