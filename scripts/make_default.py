"""Make the bundled sample model: a small language model, trained on a text with one sentence per line.

    OMP_NUM_THREADS=1 python -m scripts.make_default CORPUS.txt inlayer/samples/default --evals WORDSIM

text -> ids -> rows -> [decoder] -> head -> loss, and backward
- the tokenizer is a byte-level BPE; sentences start with a space, so a word is the same token at any position
- the model is trained by `inlayer train` in --work, where a killed run is resumed
- a saved model has the input scale of 50 multiplied into its rows. Here the rows are divided by a power of two, which
  makes them easier to read and keeps the logits of bare rows, as a walk shows them, in the range of a softmax
- weights are then rounded to bfloat16
- one thread and one seed: the same text gives the same files on the same machine
- metrics.json has the losses, and how well the cosine of two rows agrees with human judgments of two words
- see also: the README of the sample; tests/test_samples.py compares its numbers with metrics.json
Tested on a small text in tests/test_samples.py.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from inlayer import open_tokenizer, train_bpe
from inlayer.geometry.evaluation import spearman
from inlayer.tokenizers import Tokenizer
from inlayer.training.config import TrainConfig
from inlayer.training.decoder import Decoder
from inlayer.training.encoded_corpus import EncodedCorpus, open_tokens, validation_batches
from inlayer.training.export import TABLE, load_decoder, save_decoder
from inlayer.training.run_folder import END, PADDING, Run, TrainingProgress, is_run

VOCAB_SIZE = 6144
# A second moment shared by the whole vocabulary gave the best neighbors in short runs (docs/log.md). Everything else
# is the default of `inlayer train`.
CONFIG = TrainConfig(
    architecture="llama", tie=True, n_embd=128, n_layer=1, n_head=4, n_kv_head=2, n_inner=344, block_size=64,
    steps=24_000, batch_size=8, learning_rate=8e-3, shared_second_moment=True, warmup=200, seed=0, threads=1,
    eval_interval=2000, save_interval=1000, log_interval=500,
)  # fmt: skip

ROW_DIVISOR = 64.0  # a power of two, so no bit is lost

# The default sample should contain no slurs and no swearing: sentences with them are left out.
LEFT_OUT = re.compile(r"nigg|fuck|shit|bitch|cunt|whore|slut|fagg", re.IGNORECASE)

# Word pairs with human similarity judgments: word, word, number, separated by tabs.
EVALS = {
    "MEN": "EN-MEN-TR-3k.txt",
    "WordSim-353": "EN-WS-353-ALL.txt",
    "SimLex-999": "EN-SIMLEX-999.txt",
    "RG-65": "EN-RG-65.txt",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the bundled sample model.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--work", type=Path, default=Path("default-work"), help="folder of the run, to resume it")
    parser.add_argument("--evals", type=Path, help="folder with the word pairs")
    arguments = parser.parse_args()
    metrics = make(arguments.corpus, arguments.out, arguments.work, evals=arguments.evals)
    print(json.dumps(metrics, indent=2))


def make(
    corpus: Path,
    out: Path,
    work: Path,
    *,
    vocab_size: int = VOCAB_SIZE,
    config: TrainConfig = CONFIG,
    evals: Path | None = None,
) -> dict[str, Any]:
    """Make the sample; steps already taken in `work` are not repeated."""
    text, tokenizer = work / "text.txt", work / "tokenizer"
    for folder in (out, tokenizer):
        folder.mkdir(parents=True, exist_ok=True)
    text.write_text(choose(corpus.read_text(encoding="utf-8")), encoding="utf-8")
    make_tokenizer(text, tokenizer, vocab_size)
    files = (str(text.resolve()),)
    run = train(replace(config, out=str(work / "trained"), files=files, tokenizer=str(tokenizer.resolve())))
    made = shrink(load_decoder(run.folder), ROW_DIVISOR).bfloat16()
    reader = open_tokenizer(tokenizer)
    save_decoder(made, out, tokenizer=tokenizer, eos_id=reader.special_tokens[END])
    metrics = measure(run, load_decoder(out).float(), reader, evals)
    write_json(out / "metrics.json", metrics)
    return metrics


def choose(text: str) -> str:
    """The sentences to keep, each with a leading space."""
    return "\n".join(f" {line.strip()}" for line in text.splitlines() if not LEFT_OUT.search(line))


def make_tokenizer(text: Path, folder: Path, vocab_size: int) -> None:
    train_bpe(text, vocab_size, folder, special_tokens=[PADDING, END])
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PADDING, "eos_token": END}
    write_json(folder / "tokenizer_config.json", names)


def write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def train(config: TrainConfig) -> Run:
    """Train, or resume training; returns the finished run."""
    run = Run.open(config.out) if is_run(Path(config.out)) else Run.create(config)
    if run.config != config:
        raise SystemExit(f"{config.out} contains a run with other settings; remove it or choose another --work")
    if not run.train(ValidationLines()):
        raise SystemExit(f"stopped at step {len(run.metrics)}; run the same command again to resume")
    return run


class ValidationLines(TrainingProgress):
    """Prints a line with every validation."""

    def stage(self, name: str, total: int | None = None) -> None:
        print(name if total is None else f"{name}: {total:,}", flush=True)

    def warning(self, text: str) -> None:
        print(f"warning: {text}", flush=True)

    def step(self, metrics: dict[str, int | float]) -> None:
        if "validation_loss" in metrics:
            losses = f"loss {metrics['loss']:.3f}, validation {metrics['validation_loss']:.3f}"
            print(f"step {metrics['step']}, {losses}", flush=True)


def shrink(decoder: Decoder, by: float) -> Decoder:
    """An equivalent tied llama with rows divided by `by`; block outputs and the norms' epsilon shrink along."""
    config = replace(decoder.config, norm_eps=decoder.config.norm_eps / by**2)
    state = {name: tensor.clone() for name, tensor in decoder.state_dict().items()}
    for name in state:
        if name == TABLE or name.endswith(("attention.out.weight", "feed_forward.down.weight")):
            state[name] /= by
    state["norm.weight"] *= by  # the head reads the table
    made = Decoder(config, device="meta")
    made.load_state_dict(state, assign=True)
    return made


# ---- measurements


def measure(run: Run, made: Decoder, tokenizer: Tokenizer, evals: Path | None) -> dict[str, Any]:
    """Losses before training, after it and after rounding, and the word similarities of the table."""
    tokens = open_tokens(run.inner / "tokens")
    untrained = Decoder(run.decoder_config(tokenizer, tokens), seed=run.config.seed)
    losses = {"untrained": untrained, "trained": load_decoder(run.folder), "rounded": made}
    metrics: dict[str, Any] = {
        "tokens": {"train": tokens.train.size, "validation": tokens.validation.size},
        "tokens_seen": int(run.metrics[-1]["tokens"]),
        "loss": {
            "chance": round(math.log(tokens.vocab_size), 3),
            "frequencies": round(tokens.unigram_loss(), 3),
            **{name: round(validate(decoder, tokens), 3) for name, decoder in losses.items()},
        },
    }
    if evals is not None:
        tables = {name: decoder.embeddings.token_embedding.weight.detach() for name, decoder in losses.items()}
        metrics["similarity"] = {
            name: {
                "pairs": len(pairs := read_pairs(evals / file, tokenizer)),
                "untrained": similarity(tables["untrained"], pairs),
                "rounded": similarity(tables["rounded"], pairs),
            }
            for name, file in EVALS.items()
        }
    return metrics


@torch.no_grad()
def validate(decoder: Decoder, tokens: EncodedCorpus) -> float:
    """Mean loss over the whole validation text."""
    decoder.eval()
    width = decoder.config.block_size + 1
    total, count = 0.0, 0
    for windows in validation_batches(tokens.validation, rows=32, width=width, max_windows=tokens.validation.size):
        total += float(decoder.loss(windows[:, :-1], windows[:, 1:], reduction="sum"))
        count += windows[:, 1:].numel()
    return total / count


def read_pairs(file: Path, tokenizer: Tokenizer) -> list[tuple[int, int, float]]:
    """Two ids and the human judgment, for pairs of words that are single tokens."""
    pairs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        first, second, judgment = line.split("\t")
        ids = [tokenizer.encode(f" {word}") for word in (first, second)]
        if first != second and all(len(one) == 1 for one in ids):
            pairs.append((ids[0][0], ids[1][0], float(judgment)))
    return pairs


def similarity(table_VD: Tensor, pairs: list[tuple[int, int, float]]) -> float:
    """Spearman correlation of cosines and judgments."""
    first, second, judged = (list(column) for column in zip(*pairs, strict=True))
    cosines = functional.cosine_similarity(table_VD[first], table_VD[second])
    return round(spearman(cosines.double().numpy(), np.array(judged)) or 0.0, 2)


if __name__ == "__main__":
    main()
