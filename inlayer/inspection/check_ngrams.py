"""N-gram memories: the tensors, scales and tokenizer that a config requires.

source -> Model -> facts -> [findings] -> Report
- rows are read with the other tables (check_tables.py); this checks that the hashes of the config lead to them
- elsewhere: hashing (tables/ngram.py), opening a memory (checkpoint/memories.py)
Tested with damaged checkpoints in tests/inspection/test_ngrams.py.
"""

from __future__ import annotations

from inlayer.checkpoint.memories import open_memory
from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.inspection.findings import Finding, shorten
from inlayer.inspection.report import NgramSummary


def check_ngrams(model: Model, *, quick: bool) -> tuple[tuple[NgramSummary, ...], list[Finding]]:
    """Facts of every n-gram memory of the config, and a finding for each that the files do not match."""
    facts, findings = list[NgramSummary](), list[Finding]()
    for spec in () if model.spec is None else model.spec.ngrams:
        tensors = 0
        try:
            memory = open_memory(model, spec)
            tensors = len(memory.tensors)
            if not quick:
                _ = memory.token_map
        except InlayerError as error:
            findings.append(Finding("error", "table-rows-mismatch", shorten(str(error), 400)))
        facts.append(
            NgramSummary(
                tensor=spec.tensor,
                layer=spec.layer,
                tensors=tensors,
                rows=spec.rows,
                width=spec.width,
                heads=spec.heads,
                orders=tuple(sorted(set(spec.orders))),
                smallest_head=min(spec.moduli),
                largest_head=max(spec.moduli),
                compressed_size=spec.compressed_size,
            )
        )
    return tuple(facts), findings
