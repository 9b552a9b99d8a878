"""Make the sample that inlayer carries: a little language model, from a text with one sentence a line.

    OMP_NUM_THREADS=1 python -m scripts.make_default CORPUS.txt inlayer/samples/default --evals WORDSIM

text -> ids -> rows -> [decoder] -> head -> loss -> and all the way back
- tokenizer: a byte-level BPE; a sentence begins with a space, so that a word is the same token wherever it stands
- the rest is a run of `inlayer train`, kept in --work: killed, it goes on where it was
- a saved model has the recipe's factor of 50 multiplied into its rows. The same model with a smaller table has rows
  that are easier to read, and logits straight from them, as a walk shows them, that a softmax can still tell apart
- table and body are then rounded to bfloat16
- one thread and one seed: the same text gives the same files on the same machine
- metrics.json says what came out: losses, and how well the cosine of two rows follows people's judgment of two words
- not here: the README of the sample, written by hand; tests/test_samples.py compares its numbers with metrics.json
The steps are checked on a small text, and the result as it is shipped, in tests/test_samples.py.
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
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from inlayer import open_tokenizer, train_bpe
from inlayer.tokenizers import Tokenizer
from inlayer.training import Plan, Run, Settings, load_decoder
from inlayer.training.decoder import Decoder
from inlayer.training.recipe import recipe
from inlayer.training.run import END, PADDING
from inlayer.training.save import TABLE, write_decoder
from inlayer.training.tokens import Tokens, open_tokens, validation_batches

VOCAB_SIZE = 6144
MODEL: dict[str, Any] = {
    "architecture": "llama", "tie": True, "n_embd": 128, "n_layer": 1, "n_head": 4, "n_kv_head": 2, "n_hidden": 344,
    "block_size": 64,
}  # fmt: skip
# One second moment for the whole vocabulary, else AdamW as ever: the short run that had it made the best neighbors
# (docs/log.md). Everything else is `inlayer train` as it comes.
SETTINGS = Settings(
    steps=24_000, batch_size=8, learning_rate=8e-3, shared_moment=True, warmup=200, seed=0,
    validate_every=2000, save_every=1000, measure_every=500,
)  # fmt: skip

SMALLER = 64.0  # a power of two: no bit is lost

# A sample that opens by itself should teach no slurs and no swearing: sentences with them are left out.
LEFT_OUT = re.compile(r"nigg|fuck|shit|bitch|cunt|whore|slut|fagg", re.IGNORECASE)

# Pairs of words with people's judgment of their likeness: word, word, number, by tabs.
EVALS = {
    "MEN": "EN-MEN-TR-3k.txt",
    "WordSim-353": "EN-WS-353-ALL.txt",
    "SimLex-999": "EN-SIMLEX-999.txt",
    "RG-65": "EN-RG-65.txt",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the sample that inlayer carries.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--work", type=Path, default=Path("default-work"), help="the run, to go on with it")
    parser.add_argument("--evals", type=Path, help="the folder of the word pairs")
    given = parser.parse_args()
    metrics = make(given.corpus, given.out, given.work, evals=given.evals)
    print(json.dumps(metrics, indent=2))


def make(
    corpus: Path,
    out: Path,
    work: Path,
    *,
    vocab_size: int = VOCAB_SIZE,
    model: dict[str, Any] = MODEL,
    settings: Settings = SETTINGS,
    evals: Path | None = None,
) -> dict[str, Any]:
    """The whole way; steps that were taken already, in `work`, are not taken again."""
    text, tokenizer = work / "text.txt", work / "tokenizer"
    for folder in (out, tokenizer):
        folder.mkdir(parents=True, exist_ok=True)
    text.write_text(choose(corpus.read_text(encoding="utf-8")), encoding="utf-8")
    make_tokenizer(text, tokenizer, vocab_size)
    run = train(work / "trained", text, tokenizer, model, settings)
    made = shrink(load_decoder(run.folder), SMALLER).bfloat16()
    reader = open_tokenizer(tokenizer)
    write_decoder(out, made, tokenizer=tokenizer, eos_id=reader.special_tokens[END])
    metrics = measure(run, load_decoder(out).float(), reader, evals)
    write_json(out / "metrics.json", metrics)
    return metrics


def choose(text: str) -> str:
    """The sentences that stay, each with a space before it."""
    return "\n".join(f" {line.strip()}" for line in text.splitlines() if not LEFT_OUT.search(line))


def make_tokenizer(text: Path, folder: Path, vocab_size: int) -> None:
    train_bpe(text, vocab_size, folder, special_tokens=[PADDING, END])
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PADDING, "eos_token": END}
    write_json(folder / "tokenizer_config.json", names)


def write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def train(folder: Path, text: Path, tokenizer: Path, model: dict[str, Any], settings: Settings) -> Run:
    """The run in a folder, with all its steps taken."""
    plan = Plan(
        files=(str(text.resolve()),),
        tokenizer=str(tokenizer.resolve()),
        model={**recipe(tie=model["tie"]), **model},
        settings=settings,
        threads=1,
    )
    run = Run.find(folder) if (folder / "run" / "plan.json").exists() else Run.begin(folder, plan)
    if run.plan != plan:
        raise SystemExit(f"{folder} holds a run with other settings; remove it or give another --work")
    if not run.go(Lines()):
        raise SystemExit(f"stopped at step {len(run.metrics)}; the same command goes on")
    return run


class Lines:
    """A line of progress with every validation."""

    def at(self, stage: str, total: int | None = None) -> None:
        print(stage if total is None else f"{stage}: {total:,}", flush=True)

    def done(self, amount: int) -> None: ...

    def step(self, line: dict[str, int | float], warnings: list[str]) -> None:
        for warning in warnings:
            print(f"warning: {warning}", flush=True)
        if "validation_loss" in line:
            print(f"step {line['step']}, loss {line['loss']:.3f}, validation {line['validation_loss']:.3f}", flush=True)


def shrink(decoder: Decoder, by: float) -> Decoder:
    """The same tied llama with a smaller table: so is then what the blocks add, and what a norm takes for nothing."""
    config = replace(decoder.config, norm_eps=decoder.config.norm_eps / by**2)
    state = {name: tensor.clone() for name, tensor in decoder.state_dict().items()}
    for name in state:
        if name == TABLE or name.endswith(("attention.out.weight", "feed_forward.down.weight")):
            state[name] /= by
    state["norm.weight"] *= by  # the head reads the table
    made = Decoder(config, device="meta")
    made.load_state_dict(state, assign=True)
    return made


# ---- what came out


def measure(run: Run, made: Decoder, tokenizer: Tokenizer, evals: Path | None) -> dict[str, Any]:
    """Losses of the model as it was born, trained and rounded, and the likeness of words in its table."""
    tokens, settings = open_tokens(run.inner / "tokens"), run.plan.settings
    born = Decoder(run.config(tokenizer, tokens), seed=settings.seed)
    losses = {"born": born, "trained": load_decoder(run.folder), "rounded": made}
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
        metrics["likeness"] = {
            name: {
                "pairs": len(pairs := read_pairs(evals / file, tokenizer)),
                "born": likeness(tables["born"], pairs),
                "rounded": likeness(tables["rounded"], pairs),
            }
            for name, file in EVALS.items()
        }
    return metrics


@torch.no_grad()
def validate(decoder: Decoder, tokens: Tokens) -> float:
    """The mean loss over the whole validation text."""
    decoder.eval()
    width = decoder.config.block_size + 1
    total, count = 0.0, 0
    for windows in validation_batches(tokens.validation, rows=32, width=width, most=tokens.validation.size):
        total += float(decoder.loss(windows[:, :-1], windows[:, 1:], reduction="sum"))
        count += windows[:, 1:].numel()
    return total / count


def read_pairs(file: Path, tokenizer: Tokenizer) -> list[tuple[int, int, float]]:
    """Two ids and people's judgment, for pairs of two words that are single tokens."""
    pairs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        first, second, judgment = line.split("\t")
        ids = [tokenizer.encode(f" {word}") for word in (first, second)]
        if first != second and all(len(one) == 1 for one in ids):
            pairs.append((ids[0][0], ids[1][0], float(judgment)))
    return pairs


def likeness(table_VD: Tensor, pairs: list[tuple[int, int, float]]) -> float:
    """Spearman's correlation of cosines and judgments."""
    first, second, judged = (list(column) for column in zip(*pairs, strict=True))
    cosines = functional.cosine_similarity(table_VD[first], table_VD[second])
    return round(spearman(cosines.double().numpy(), np.array(judged)), 2)


def spearman(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Pearson's correlation of the ranks; equal values share the mean of theirs."""
    return float(np.corrcoef(rank(one), rank(other))[0, 1])


def rank(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


if __name__ == "__main__":
    main()
