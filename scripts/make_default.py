"""Make the bundled sample model: a small language model, trained on a text with one sentence per line.

    OMP_NUM_THREADS=1 python -m scripts.make_default CORPUS.txt inlayer/samples/default --evals WORDSIM

text -> ids -> rows -> [decoder] -> head -> loss, and backward
- the tokenizer is a byte-level BPE; sentences start with a space, so a word is the same token at any position
- the rows start from counts of the training text: which tokens occur near a token. Random rows needed more than twice
  the steps for the same loss and had worse neighbors. The run begins with a state of step 0 that contains the rows
- the model is trained by `inlayer train` in --work, where a killed run is resumed; at a lower rate for the table
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
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from inlayer import open_tokenizer, train_bpe
from inlayer.geometry.evaluation import spearman
from inlayer.tokenizers import Tokenizer
from inlayer.training.config import TrainConfig
from inlayer.training.decoder import Decoder
from inlayer.training.encoded_corpus import EncodedCorpus, open_tokens, validation_batches
from inlayer.training.export import TABLE, save_decoder, without_scales
from inlayer.training.parallel import DistributedContext
from inlayer.training.resumable_run import END, PADDING, Run, TrainingProgress
from inlayer.training.run_paths import is_run
from inlayer.training.state import load_state, model_tensors, save_state
from inlayer.training.trainer import Trainer

VOCAB_SIZE = 6144
# A second moment shared by the whole vocabulary gave the best neighbors in short runs, and a lower rate of the table
# keeps what the counts gave it (docs/log.md). Everything else is the default of `inlayer train`.
CONFIG = TrainConfig(
    architecture="llama", tie=True, n_embd=128, n_layer=1, n_head=4, n_kv_head=2, n_inner=344, block_size=64,
    steps=10_000, batch_size=8, learning_rate=8e-3, embedding_lr_scale=0.03, shared_second_moment=True,
    warmup_steps=200, lr_schedule="linear", min_lr_ratio=0.0, seed=0, threads=1,
    eval_interval=1000, save_interval=1000, log_interval=500,
)  # fmt: skip

ROW_DIVISOR = 4.0  # a power of two, so no bit is lost

NEAR, WIDE = 2, 15  # tokens on each side: what may stand next to a token, and what it is about
OVERSAMPLING, ITERATIONS = 32, 4  # for the randomized SVD
UNCOUNTED = 0.01  # norm of the other rows, relative to those with counts

# The default sample should contain no slurs and no swearing: sentences with them are excluded.
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
    made = shrink(trained(run), ROW_DIVISOR).bfloat16()
    reader = open_tokenizer(tokenizer)
    save_decoder(made, out, tokenizer=tokenizer, eos_id=reader.special_tokens[END])
    metrics = measure(run, made.float(), reader, evals)
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
    if load_state(run.state_dir) is None:
        save_state(run.state_dir, 0, untrained(run).state(), run._checksums(metrics=b""))
    if not run.train(ValidationLines()):
        raise SystemExit(f"stopped at step {len(run.metrics)}; run the same command again to resume")
    return run


def untrained(run: Run) -> Trainer:
    """The trainer before its first step: rows from counts; small random rows where nothing was counted."""
    tokenizer, tokens = run.prepare(DistributedContext())
    trainer = Trainer(run.decoder_config(tokenizer, tokens), run.config)
    counted, table_VD = torch.from_numpy(tokens.count_ids() > 0), trainer.table.weight.detach()
    rows_VD = factorize(neighborhoods(np.asarray(tokens.train), len(table_VD)), table_VD.shape[1], run.config.seed)
    rows_VD -= rows_VD[counted].mean(0)
    norm = run.config.init_std * math.sqrt(table_VD.shape[1])  # norm of a random row
    table_VD *= UNCOUNTED
    table_VD[counted] = functional.normalize(rows_VD[counted]) * norm
    return trainer


def neighborhoods(ids: npt.NDArray[Any], vocab_size: int) -> Tensor:
    """Which tokens occur after, before and around each token more often than by chance (V, 3 V)."""
    near_VV = count_pairs(ids, vocab_size, [1.0] * NEAR)
    wide_VV = count_pairs(ids, vocab_size, [1 - distance / WIDE for distance in range(WIDE)])
    return torch.cat([information(near_VV), information(near_VV.T), information(wide_VV + wide_VV.T)], dim=1)


def count_pairs(ids: npt.NDArray[Any], vocab_size: int, weights: list[float]) -> Tensor:
    """How often a token follows another at distance 1, 2, ..., each distance with its weight (V, V)."""
    ids, total = ids.astype(np.int64), np.zeros(vocab_size**2, np.float32)
    for distance, weight in enumerate(weights, 1):
        total += np.float32(weight) * np.bincount(ids[:-distance] * vocab_size + ids[distance:], minlength=total.size)
    return torch.from_numpy(total.reshape(vocab_size, vocab_size))


def information(counts_VV: Tensor) -> Tensor:
    """Positive pointwise mutual information; frequencies of the context are smoothed, as in word2vec."""
    context_V = counts_VV.sum(0) ** 0.75
    expected_VV = counts_VV.sum(1, keepdim=True) * (context_V / context_V.sum())
    return (counts_VV / expected_VV).log_().nan_to_num_(nan=0.0).clamp_(min=0.0)  # 0 / 0 is nan, log 0 is -inf


def factorize(matrix_VC: Tensor, width: int, seed: int) -> Tensor:
    """The first `width` left singular vectors, times the square roots of the singular values."""
    torch.manual_seed(seed)
    left_VK, values_K, _ = torch.svd_lowrank(matrix_VC, q=width + OVERSAMPLING, niter=ITERATIONS)
    return left_VK[:, :width] * values_K[:width].sqrt()


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


def trained(run: Run) -> Decoder:
    """The decoder of the last state, with its scales multiplied in."""
    state = load_state(run.state_dir)
    assert state is not None
    config = run.decoder_config(run.open_tokenizer(), open_tokens(run.state_dir / "tokens"))
    made = Decoder(replace(config, input_scale=1.0, output_scale=1.0), device="meta")
    made.load_state_dict(without_scales(config, model_tensors(state.tensors)), assign=True)
    return made


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
    tokens, counts = open_tokens(run.state_dir / "tokens"), untrained(run).decoder
    losses = {"untrained": counts, "trained": trained(run), "rounded": made}
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
        decoders = {"random": Decoder(counts.config, seed=run.config.seed), "counts": counts, "rounded": made}
        tables = {name: decoder.embeddings.token_embedding.weight.detach() for name, decoder in decoders.items()}
        metrics["similarity"] = {
            name: {
                "pairs": len(pairs := read_pairs(evals / file, tokenizer)),
                **{table: similarity(tables[table], pairs) for table in tables},
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
