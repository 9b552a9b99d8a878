"""RayJob: `inlayer embed --engine ray`, which turns Parquet files into vectors on many machines with Ray Data.

row groups -> [one actor per CPU, each with its own rows] -> parts -> one file
- a part contains the rows of one slice of a row group. A worker writes the part to a folder that all machines share,
  and renames it once it is complete. Ray reruns a killed worker's tasks, and a slice that is embedded twice is still
  one file, so no row is lost or repeated
- a part's name contains its slice, its row group, the version of its input file, and its number of rows
- see also: locking, settings, joining (resumable_job.py); reading row groups (reader.py)
Tested on a local cluster with a killed worker in tests/encoding/test_ray.py.
"""

from __future__ import annotations

import json
import logging
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from inlayer.encoding.columns import ColumnTypes
from inlayer.encoding.encode import EncodeSettings
from inlayer.encoding.outputs import write_part
from inlayer.encoding.reader import Reader, parquet_errors, rows_at_once
from inlayer.encoding.resumable_job import PART_BYTES, EmbedJob, Part, embed_rows
from inlayer.encoding.weighting import Weighting
from inlayer.errors import InlayerError, InputError, MissingExtraError
from inlayer.files import atomic_path, format_path


class RowGroup(NamedTuple):
    """A row group of a file, and the index of its first slice among all slices."""

    path: str
    name: str  # name shown in messages
    file_version: int  # changes when the file is written
    file_index: int  # index in its file
    first_slice: int
    n_slices: int


class RayJob(EmbedJob):
    """Embeds the rows of Parquet files on the Ray cluster named by RAY_ADDRESS, or on this machine.

    Args:
        arguments: Positional arguments of `EmbedJob`.
        skip_bad_rows: Skip bad rows instead of stopping at the first.
    """

    def __init__(self, *arguments: Any, overwrite: bool, skip_bad_rows: bool) -> None:
        super().__init__(*arguments, overwrite=overwrite)
        self.skip_bad_rows = skip_bad_rows
        self.slice_rows = max(1, PART_BYTES // (self.width * self.settings.dtype.itemsize))

    def _write_parts(self, progress: Callable[[int], None]) -> int:
        groups = list(self._groups())
        versions = {
            group.first_slice + index: group.file_version for group in groups for index in range(group.n_slices)
        }
        done = {part.start: part.rows for part in self.parts() if versions.get(part.start) == part.checksum}
        if len(done) < len(self.parts()):
            raise self._input_changed_error()
        items = [
            {"group": tuple(group), "done": finished}
            for group in groups
            if len(finished := [n for n in range(group.n_slices) if group.first_slice + n in done]) < group.n_slices
        ]
        for report in self._reports(items) if items else ():
            for location, problem in report["bad"]:
                self.reader.on_bad_row(location, problem)
            if report["error"]:
                raise InputError(report["error"])
            done |= dict(report["written"])
            self.reader.empty_texts += report["empty"]
            self.reader.bytes_read = self.reader.bytes_total * len(done) // len(versions)
            progress(sum(done.values()))
        return sum(done.values())

    def _groups(self) -> Iterator[RowGroup]:
        first_slice = 0
        for source in self.reader.sources:
            if not isinstance(source, Path) or source.suffix != ".parquet":
                raise InputError(f"--engine ray reads only .parquet files, not {format_path(source)}")
            path, name, facts = source.resolve(), format_path(source), source.stat()
            with parquet_errors(name):
                import pyarrow.parquet as pq

                metadata = pq.read_metadata(path)
            version = zlib.crc32(f"{path}:{facts.st_size}:{facts.st_mtime_ns}".encode())
            for index in range(metadata.num_row_groups):
                n_slices = -(-metadata.row_group(index).num_rows // rows_at_once(metadata, self.slice_rows))
                yield RowGroup(str(path), name, version, index, first_slice, n_slices)
                first_slice += n_slices

    def _reports(self, items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the workers' reports about row groups, in any order."""
        try:
            import ray
            import ray.data
        except ImportError:
            raise MissingExtraError("--engine ray needs Ray: pip install 'inlayer[embed,ray]'") from None
        model = Path(self.vector_settings["model"])
        worker = {
            "model": str(model.resolve()) if model.exists() else str(model),  # workers run in other folders
            "weighting": self.encoder.weighting, "settings": self.settings, "slice_rows": self.slice_rows,
            "field": self.reader.field, "keep_columns": self.reader.keep_columns, "skip_bad_rows": self.skip_bad_rows,
            "folder": str(self.folder.resolve()), "suffix": self.out.suffix,
        }  # fmt: skip
        with redirect_stdout(sys.stderr):  # Ray prints to stdout when a worker dies
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR)
                ray.data.DataContext.get_current().enable_progress_bars = False
                logging.getLogger("ray.data").setLevel(logging.ERROR)
                workers = min(len(items), max(1, int(ray.cluster_resources().get("CPU", 1))))
                rows = ray.data.from_items(items, override_num_blocks=len(items)).map(
                    GroupWorker, fn_constructor_kwargs=worker, num_cpus=1, concurrency=(1, workers)
                )
                for row in rows.iter_rows():
                    yield json.loads(row["report"])
            except Exception as error:  # Ray raises a plain Exception if a node does not start in time
                reason = (str(error).strip() or type(error).__name__).splitlines()[-1][:200]
                raise InputError(f"the Ray cluster failed: {reason}") from error
            finally:
                ray.shutdown()


@dataclass
class GroupWorker:
    """An actor that opens the model once and then writes the parts of each row group."""

    model: str
    weighting: Weighting | None
    settings: EncodeSettings
    slice_rows: int
    field: str | None
    keep_columns: bool  # the other columns are stored as well
    skip_bad_rows: bool  # bad rows are skipped; otherwise the run stops at the first
    folder: str  # folder of the parts
    suffix: str

    def __post_init__(self) -> None:
        from inlayer.checkpoint import load

        self.encoder = load(self.model).encoder(self.weighting)

    def __call__(self, item: dict[str, Any]) -> dict[str, str]:
        """Write the missing slices of a row group. Return their ranges, the bad rows, and an error, as JSON."""
        group = RowGroup(*item["group"])
        bad: list[tuple[str, str]] = []
        written: list[tuple[int, int]] = []
        error, empty = "", 0

        def on_bad_row(location: str, problem: str) -> None:
            bad.append((location, problem))
            if not self.skip_bad_rows:
                raise InputError(problem)  # the command reports the problem with its location, and stops

        reader = Reader([], field=self.field, per_file=False, on_bad_row=on_bad_row, keep_columns=self.keep_columns)
        types = ColumnTypes(reader.text_column, on_bad_row) if self.suffix == ".parquet" else None
        slices = reader.parquet_rows(Path(group.path), group.name, group.file_index, self.slice_rows)
        try:
            for index, rows in enumerate(slices):
                if index in item["done"]:
                    continue
                kept, vectors = embed_rows(self.encoder, self.settings, rows, on_bad_row, types)
                part = Part(group.first_slice + index, group.file_index, group.file_version, len(vectors))
                with atomic_path(Path(self.folder) / part.name) as path:
                    write_part(path, self.suffix, [kept], vectors, reader.text_column)
                written.append((part.start, part.rows))
                empty += kept.texts.count("")
        except InlayerError as problem:
            error = str(problem)
        return {"report": json.dumps({"written": written, "bad": bad, "error": error, "empty": empty})}
