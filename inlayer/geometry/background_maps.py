"""Maps of one table for the server: PCA immediately, t-SNE from a separate process once it is ready.

table -> [PCA, then t-SNE] -> facts
- each map is described once, in a thread. A request waits a few seconds for it; after that, the client must retry
- t-SNE uses all cores for minutes, so it runs at low priority in a process that ends with this one, and only one runs
  at a time on a machine. Every process finds the result in the cache; an interrupted run leaves nothing there
Tested with a server that is stopped in tests/web/test_maps.py.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path

from inlayer.errors import InputError
from inlayer.files import locked
from inlayer.formats.row_reader import FileRows
from inlayer.geometry.map_page import MapFacts, map_facts
from inlayer.geometry.projection import (
    Method,
    TableProjection,
    cache_folder,
    load_cached,
    missing_tsne_error,
    project,
    table_fingerprint,
)
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.tables.stored_table import StoredTable
from inlayer.threads import in_thread, on_parent_exit

WAIT = 20.0  # seconds, less than a client waits for a response
MAX_ROWS = 500_000  # largest table that is mapped
MAX_TSNE_ROWS = 262_144
NOT_READY = MapFacts(
    method="", complete=False, is_improving=True, points="", texts=[], neighborhood_preservation="",
    mean_preservation=0.0, preservation_k=0, trustworthiness=0.0, n_omitted=0, omitted_ids=[],
)  # fmt: skip


class BackgroundMaps:
    """Maps of one table. `remote` tables are not mapped, because that would download them."""

    def __init__(self, table: StoredTable, vocabulary: Vocabulary, *, remote: bool = False) -> None:
        self.table, self.vocabulary, self.remote = table, vocabulary, remote
        self._maps: dict[str, Future[tuple[TableProjection, MapFacts]]] = {}
        self._process: multiprocessing.process.BaseProcess | None = None
        self._lock = threading.Lock()

    def get(self, method: Method = "best") -> MapFacts:
        """Describe a map. After WAIT, its points are missing and `is_improving` is true; call again later."""
        ready, is_improving = self._find(method)
        return NOT_READY if ready is None else replace(ready[1], is_improving=is_improving)

    def projection(self, method: Method = "best") -> TableProjection | None:
        """Return the projection that `get` describes, or None if it is not ready or the table cannot be mapped."""
        try:
            ready, _ = self._find(method)
        except InputError:
            return None
        return None if ready is None else ready[0]

    def _find(self, method: Method) -> tuple[tuple[TableProjection, MapFacts] | None, bool]:
        """Return a map, or None if it is not ready, and whether a better one can be expected."""
        if self.remote:
            raise InputError("the table is remote; a map would download all of it")
        if self.table.num_embeddings > MAX_ROWS:
            raise InputError(f"the table has {self.table.num_embeddings:,} rows; a map shows up to {MAX_ROWS:,}")
        if method == "tsne" and find_spec("openTSNE") is None and not self._has_tsne():
            raise missing_tsne_error()
        with self._lock:
            chosen: Method = "tsne" if method != "pca" and self._has_tsne() else "pca"
            if chosen not in self._maps:
                self._maps[chosen] = in_thread(self._describe, chosen, "inlayer-map")
            future = self._maps[chosen]
        wait([future], WAIT)
        if not future.done():
            return None, True
        ready = future.result()  # raises the error if PCA failed; without PCA, there is no t-SNE
        with self._lock:
            return ready, method != "pca" and chosen == "pca" and self._improve()

    def _describe(self, method: Method) -> tuple[TableProjection, MapFacts]:
        projection = project(self.table, method, cache=cache_folder(), fingerprint=self._fingerprint)
        return projection, map_facts(self.table, self.vocabulary, projection)

    @cached_property
    def _fingerprint(self) -> str:
        return table_fingerprint(self.table)

    def _has_tsne(self) -> bool:
        return load_cached(self._fingerprint, "tsne", cache_folder()) is not None

    def _improve(self) -> bool:
        """Start computing t-SNE unless that has been tried; return whether to expect a result."""
        if find_spec("openTSNE") is None or self.table.num_embeddings > MAX_TSNE_ROWS:
            return False
        if self._process is None and isinstance(self.table.source, FileRows):
            self._process = multiprocessing.get_context("spawn").Process(
                target=compute_tsne, args=(self.table, cache_folder()), name="inlayer-tsne", daemon=True
            )
            self._process.start()
        return self._process is not None and (self._process.is_alive() or self._has_tsne())


def compute_tsne(table: StoredTable, cache: Path) -> None:
    """Compute t-SNE in a separate process, which ends with the process that started it."""
    # Turn SIGTERM into SystemExit, so that a partly written file is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_parent_exit(partial(os.kill, os.getpid(), signal.SIGTERM))
    with suppress(AttributeError, OSError):
        os.nice(10)
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock", "another t-SNE is being computed", wait=float("inf")):
        try:
            project(table, "tsne", cache=cache)
        except Exception as error:  # openTSNE and the table may raise anything
            sys.exit(f"inlayer: t-SNE failed, so the map remains PCA: {' '.join(str(error).split())}")
