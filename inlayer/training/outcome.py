"""What came of a run: report.json, report.html and training.png beside the model.

- rows before training are drawn again from the seed, rows after it are of the last state: both as they are trained,
  while the model's file has scales multiplied in
- the continuation comes from the model as it was saved, on from the first ids of the validation text
- without matplotlib (extra `train`) there is no picture, and a note says so
Checked in tests/training/test_run.py.
"""

from __future__ import annotations

from dataclasses import asdict

import torch

from inlayer.errors import CheckpointError, MissingExtraError
from inlayer.paths import last_part, shown
from inlayer.saving import put
from inlayer.tokenizers import Tokenizer
from inlayer.training.analysis import what_was_learned
from inlayer.training.decoder import Decoder
from inlayer.training.plot import draw
from inlayer.training.report import Continuation, Report, to_html, to_json
from inlayer.training.run import Run
from inlayer.training.save import TABLE, load_decoder
from inlayer.training.state import find_state, load_state
from inlayer.training.tokens import Tokens, open_tokens

__all__ = ["report_on"]

PROMPT, MORE = 8, 60  # ids of the text to go on from, and how many more
TEMPERATURE, TOP_K = 0.8, 50


def report_on(run: Run) -> Report:
    """The report of a run that took its steps, also written into its folder."""
    tokenizer, tokens = run.open_tokenizer(), open_tokens(run.inner / "tokens")
    state, settings = find_state(run.inner), run.plan.settings
    if state is None:
        raise CheckpointError(f"{shown(run.folder)} has no state: no step was taken")
    config = run.config(tokenizer, tokens)
    born = Decoder(config, seed=settings.seed)
    learned = what_was_learned(
        born.embeddings.token_embedding.weight.detach(),
        load_state(state)[f"model.{TABLE}"],
        tokens.count_ids(),
        tokenizer,
        padding_idx=config.padding_idx,
    )
    report = Report.of(
        run.metrics,
        name=last_part(run.folder),
        model={**asdict(config), "parameters": sum(parameter.numel() for parameter in born.parameters())},
        settings={**asdict(settings), "tokenizer": run.plan.tokenizer, "validation": run.plan.validation},
        learned=learned,
        continuation=go_on(load_decoder(run.folder), tokenizer, tokens, settings.seed),
        warnings=list(run.signs.told.values()),
    )
    try:
        picture = draw(run.metrics, run.folder / "training.png")
    except MissingExtraError:
        picture = None
    put(run.folder / "report.json", to_json(report).encode())
    put(run.folder / "report.html", to_html(report, run.metrics, picture).encode())
    return report


def go_on(decoder: Decoder, tokenizer: Tokenizer, tokens: Tokens, seed: int) -> Continuation:
    """The first ids of the validation text, or of the training text, and what the model makes of them."""
    ids = (tokens.validation if tokens.validation.size else tokens.train)[:PROMPT].astype("int64")
    drawn = decoder.generate(
        torch.from_numpy(ids)[None],
        MORE,
        temperature=TEMPERATURE,
        top_k=min(TOP_K, tokens.vocab_size),
        generator=torch.Generator().manual_seed(seed),
    )
    return Continuation(prompt=tokenizer.decode(ids.tolist()), text=tokenizer.decode(drawn[0, len(ids) :].tolist()))
