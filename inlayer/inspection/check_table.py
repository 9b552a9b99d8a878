"""The table and its config: where the table is stored, and where its size or dtype contradicts the config.

source -> Model -> facts -> [findings] -> Report
- only headers are read here, except for a few rows of a second candidate table
- elsewhere: positions (check_positions.py), other tensors (check_layer_tensors.py), row values (check_row_values.py)
Tested with one damaged checkpoint per finding in tests/inspection/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from inlayer.checkpoint.model import Model
from inlayer.errors import ConfigError, InlayerError
from inlayer.families import FAMILIES, describe
from inlayer.families.table import NESTED
from inlayer.families.weights import table_candidates
from inlayer.files import printable, quoted
from inlayer.inspection.findings import MAX_NUMBER, Finding, shorten
from inlayer.inspection.report import TableSummary

__all__ = ["MAX_NAME", "table_facts", "table_findings", "text_config"]

MAX_NAME = 200  # characters of a tensor name that are shown
MAX_CANDIDATES = 16  # more are not candidates: no tensor has a table's name, so all were listed
FILE_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "half": "F16", "float": "F32"}


def text_config(config: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of the text model, completed by those of the outer level."""
    outer = config or {}
    nested = outer.get("text_config")
    return outer | nested if isinstance(nested, dict) else outer


def table_facts(model: Model) -> TableSummary:
    stored, spec, config = model.table_info, model.spec, text_config(model.config)
    rows, width = stored.shape
    total = _model_parameters(model)
    architectures = config.get("architectures")
    config_rows, config_width = _integer(config, "vocab_size"), _integer(config, "hidden_size", "n_embd")
    if spec is not None:
        config_rows, config_width = spec.vocab_size, spec.row_width or spec.n_embd
    return TableSummary(
        model_type=spec.family if spec is not None else _string(config.get("model_type")),
        architecture=_string(architectures[0]) if isinstance(architectures, list) and architectures else None,
        tensor=shorten(stored.name, MAX_NAME),
        file=shorten(stored.file, MAX_NAME),
        offset=stored.offset,
        bytes=stored.nbytes,
        dtype=stored.dtype,
        rows=rows,
        width=width,
        config_vocab_size=config_rows,
        config_width=config_width,
        config_dtype=_string(config.get("torch_dtype") or config.get("dtype")),
        scale=spec.scale * spec.multiplier if spec is not None else None,
        parameters=rows * width,
        model_parameters=total,
        parameter_share=rows * width / total if total else None,
        other_candidates=tuple(shorten(name, MAX_NAME) for name in _other_candidates(model)),
    )


def table_findings(model: Model, facts: TableSummary) -> Iterator[Finding]:
    """Contradictions between the table and the config."""
    yield from _config_findings(model)
    if facts.config_vocab_size not in (None, facts.rows):
        message = f"the table has {facts.rows:,} rows, but vocab_size in the config is {facts.config_vocab_size:,}"
        yield Finding("error", "vocab-size-mismatch", message)
    if facts.config_width not in (None, facts.width):
        message = f"the table has {facts.width:,} channels, but the config expects {facts.config_width:,}"
        yield Finding("error", "hidden-size-mismatch", message)
    if facts.config_dtype in FILE_DTYPES and FILE_DTYPES[facts.config_dtype] != facts.dtype:
        message = f"the table is stored as {facts.dtype}, but the config names {facts.config_dtype}"
        yield Finding("note", "dtype-mismatch", message)
    others = [name for name in _other_candidates(model) if _is_second_table(model, name)]
    if others and model.spec is not None:  # without a known family, encoder and decoder may have their own tables
        message = f"{quoted(others[0])} has the same shape as {facts.tensor}, which was used, but different rows"
        yield Finding("warning", "ambiguous-table", message, len(others))


def _config_findings(model: Model) -> Iterator[Finding]:
    if model.config is None or model.spec is not None:
        return
    try:
        describe(model.config)
    except ConfigError as error:
        model_type = text_config(model.config).get("model_type")
        known = isinstance(model_type, str) and (model_type in FAMILIES or model_type in NESTED)
        message = shorten(str(error).split("; known are")[0], 300)
        yield Finding("error", "invalid-config", message) if known else Finding("note", "unknown-model-type", message)


def _model_parameters(model: Model) -> int | None:
    try:
        return model.store.parameters()
    except InlayerError:  # a missing or damaged shard matters only if one of its tensors is needed
        return None


def _other_candidates(model: Model) -> list[str]:
    """Other tensors with a table's name. Only names are compared, so that no further header or remote index is read."""
    if model.store.remote:
        return []
    candidates = table_candidates(dict.fromkeys(model.store.names(), model.table_info.shape), *model.table_info.shape)
    return [name for name in candidates if name != model.table_info.name] if len(candidates) <= MAX_CANDIDATES else []


def _is_second_table(model: Model, name: str) -> bool:
    """Whether a tensor of the table's size has different rows. T5 stores the same table under three names."""
    try:
        if model.store.find(name).shape != model.table_info.shape:
            return False
        sample = np.unique(np.linspace(0, model.table_info.shape[0] - 1, 16).astype(np.int64))
        ours, theirs = (table.rows(sample).astype(np.float64) for table in (model.table, model.store.table(name)))
        return not np.array_equal(ours, theirs)
    except InlayerError:
        return False


def _integer(config: dict[str, Any], *names: str) -> int | None:
    values = (value for value in map(config.get, names) if type(value) is int)
    return next((max(-MAX_NUMBER, min(value, MAX_NUMBER)) for value in values), None)


def _string(value: object) -> str | None:
    return printable(value[:60]) if isinstance(value, str) else None
