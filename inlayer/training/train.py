"""Entry point of training: `inlayer.train` runs a config and reports the changes of the table.

- it writes report.json, report.html, and training.png next to the model
- the report's initial rows are drawn again from the seed, and the trained rows come from the last state. Both exclude
  the scales that are multiplied into the saved model
- the saved model generates the text sample, from the first ids of the validation text
- under torchrun, every process calls `train`; only the main one writes files and returns a report
Tested in tests/training/test_resumable_run.py.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace

import numpy as np
import torch

from inlayer.checks import check_type
from inlayer.errors import ConfigError, MissingExtraError
from inlayer.files import base_name, check_path, format_path, quote, write_atomic
from inlayer.shapes import Array, Ids
from inlayer.tokenizers import Tokenizer
from inlayer.training.analysis import compare_before_and_after
from inlayer.training.config import NOT_SAVED, TrainConfig
from inlayer.training.decoder import Decoder
from inlayer.training.encoded_corpus import EncodedCorpus, open_tokens
from inlayer.training.export import TABLE, without_scales
from inlayer.training.parallel import DistributedContext, distributed_context
from inlayer.training.plot import draw
from inlayer.training.resumable_run import Run, TrainingProgress
from inlayer.training.run_paths import is_run, with_absolute_paths
from inlayer.training.run_report import GeneratedText, TrainingReport, to_html, to_json
from inlayer.training.state import load_state, model_tensors

PROMPT_IDS, NEW_IDS = 8, 60
TEMPERATURE, TOP_K = 0.8, 50
FROM_RUN = ("threads", "steps", "block_size")  # if the config has None, a resumed run keeps its value


def train(
    config: TrainConfig, *, resume: bool = False, progress: TrainingProgress | None = None
) -> TrainingReport | None:
    """Train a small language model and report what its embeddings learned.

    The folder `config.out` will contain the model, which `transformers` and `inlayer.load` can open, its metrics, and
    the report. Ctrl-C stops after the current step and saves the state and the model.

    Args:
        config: What to train, on which text, and how.
        resume: Continue the run in `config.out` if there is one. Settings must be the same, except for more steps.
        progress: Receives progress events.

    Returns:
        The report, which is also written to the folder. Under torchrun, None in all processes except the first.

    Raises:
        ConfigError: If the run to resume has different settings.
        InputError: If the text is unusable, or the folder cannot be written.
        MissingFileError: If a file of the text or the tokenizer does not exist.
        DivergedError: If the loss is not finite.
        KeyboardInterrupt: If the run was stopped; the message contains the command that resumes it.

    Example:
        >>> config = inlayer.TrainConfig(files=("book.txt",), out="run", tokenizer="bytes", preset="toy", steps=3)
        >>> report = inlayer.train(config)
        >>> report.training_loss.last < report.training_loss.first
        True
    """
    check_type(config, TrainConfig, "config", ", such as inlayer.TrainConfig(files=['book.txt'])")
    with distributed_context(config.device) as context:
        run = _create_or_open_run(config, resume) if context.is_main else None
        context.barrier()
        run = run or Run.open(config.out, config.parallel)
        run.config = replace(run.config, device=context.device.type)  # type: ignore[arg-type]  # for the report
        try:
            finished = run.train(progress, context)
        except KeyboardInterrupt:  # interrupted before the first step, or a second time
            raise KeyboardInterrupt(_how_to_resume(run, context)) from None
        report = make_report(run) if finished and context.is_main else None
    if not finished:
        saved = " (the model so far is saved and can be used; the report is written after the last step)"
        raise KeyboardInterrupt(_how_to_resume(run, context, saved))
    return report


def _create_or_open_run(config: TrainConfig, resume: bool) -> Run:
    """Create a run, or open the existing one and check that its settings are the same."""
    if not resume or not is_run(check_path(config.out, "out")):
        return Run.create(config)
    run = Run.open(config.out, config.parallel)
    longer = config.steps is not None and config.steps > (run.config.steps or 0)
    kept = [name for name in FROM_RUN if getattr(config, name) is None] + ["steps"] * longer
    same = replace(config, **{name: getattr(run.config, name) for name in kept})
    requested, existing = with_absolute_paths(same).resolved(), run.config.resolved()
    for name, value in requested.items():
        if name not in NOT_SAVED and existing[name] != value:
            change = f"{name.replace('_', '-')} {_format_setting(existing[name])}, not {_format_setting(value)}"
            change = "other files" if name == "files" else change
            raise ConfigError(
                f"{format_path(config.out)} contains a run with {change}. To resume it, omit the changed option; "
                "for other settings, start a new run in another folder"
            )
    if longer:
        run.extend(config.total_steps)
    return run


def _format_setting(value: object) -> str:
    """Return a setting for a message; a setting from an untrusted file may be anything."""
    return format_path(value) if isinstance(value, str) else quote(value)


def _how_to_resume(run: Run, context: DistributedContext, saved: str = "") -> str:
    """Describe where a run stopped, with the command that resumes it; "" in all processes except the first."""
    if not context.is_main:
        return ""
    command = f"inlayer train --out {shlex.quote(str(run.folder))} --resume"
    if context.size > 1:
        command = f"torchrun --nproc-per-node {context.size} -m {command} --parallel {run.config.parallel}"
    return f"stopped at step {len(run.metrics):,} of {run.config.total_steps:,}{saved}; to resume: {command}"


def make_report(run: Run) -> TrainingReport:
    """Return the report on a finished run, and write it to the run's folder."""
    tokenizer, tokens, config = run.open_tokenizer(), open_tokens(run.state_dir / "tokens"), run.config
    state = load_state(run.state_dir)
    assert state is not None  # a finished run has one
    decoder_config = run.decoder_config(tokenizer, tokens)
    weights = model_tensors(state.tensors)
    decoder = Decoder(replace(decoder_config, input_scale=1.0, output_scale=1.0), seed=config.seed)
    table = compare_before_and_after(
        decoder.embeddings.token_embedding.weight,
        weights[TABLE],
        tokens.count_ids(),
        tokenizer,
        padding_idx=decoder_config.padding_idx,
    )
    decoder.load_state_dict(without_scales(decoder_config, weights))
    report = TrainingReport.from_metrics(
        run.metrics,
        name=base_name(run.folder),
        model={**asdict(decoder_config), "parameters": sum(parameter.numel() for parameter in decoder.parameters())},
        settings={name: value for name, value in config.resolved().items() if name not in {"files", "out"}},
        table=table,
        generated_text=generate(decoder, tokenizer, tokens, config.seed),
        warnings=tuple(run.alerts.raised.values()),
    )
    try:
        plot = draw(run.metrics, run.folder / "training.png")
    except MissingExtraError:
        plot = None
    write_atomic(run.folder / "report.json", to_json(report).encode())
    write_atomic(run.folder / "report.html", to_html(report, plot).encode())
    return report


def prompt_ids(tokenizer: Tokenizer, text: Array) -> Ids:
    """Return the first ids of a text, up to a token that starts with a space: a prompt ends with a whole word."""
    starts = (n for n in range(PROMPT_IDS, 2 * PROMPT_IDS) if tokenizer.decode(text[n : n + 1].tolist())[:1].isspace())
    return text[: next(starts, PROMPT_IDS)].astype(np.int64)


def generate(decoder: Decoder, tokenizer: Tokenizer, tokens: EncodedCorpus, seed: int) -> GeneratedText:
    """Generate text after the first ids of the validation text, or of the training text if there is none."""
    ids = prompt_ids(tokenizer, tokens.validation if tokens.validation.size else tokens.train)
    generated = decoder.generate(
        torch.from_numpy(ids)[None],
        NEW_IDS,
        temperature=TEMPERATURE,
        top_k=min(TOP_K, tokens.vocab_size),
        generator=torch.Generator().manual_seed(seed),
    )
    return GeneratedText(
        prompt=tokenizer.decode(ids.tolist()), text=tokenizer.decode(generated[0, len(ids) :].tolist())
    )
