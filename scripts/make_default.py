"""Make the sample that inlayer carries: a small tokenizer and table, from a text with one sentence a line.

    python -m scripts.make_default CORPUS.txt inlayer/samples/default

text -> ids -> rows -> [a body that is thrown away] -> head
- tokenizer: a byte-level BPE; a sentence begins with a space, so that a word is the same token wherever it stands
- rows begin as what counting gives: which tokens stand near each other more often than chance (positive pointwise
  mutual information), factorised. Ten seconds of that are worth hours of gradient steps on so little text
- then they are trained as the input and, tied, as the output of a model: guess a token from those around it. The model
  in between weighs the neighbours' rows by their place and adds them up, and so leaves all the meaning to the rows
- frequent tokens are thinned out (word2vec's rule), in counting and in training
- one thread and one seed: the same text gives the same files on the same machine
- not here: a real trainer, which will replace this
The result is checked in tests/test_samples.py.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from inlayer import Embeddings, Head, train_bpe
from inlayer.text import Tokenizer

VOCAB_SIZE, WIDTH = 6144, 128
PADDING, END = "<pad>", "<|endoftext|>"
WINDOW = 5  # neighbours on either side
FREQUENT = 1e-3  # tokens with a larger share of the text are thinned out
HELD_OUT = 1000  # sentences
STEPS, BATCH, LEARNING_RATE, SEED = 4000, 512, 1e-3, 0

# A sample that opens by itself should teach no slurs and no swearing: sentences with them are left out.
LEFT_OUT = re.compile(r"nigg|fuck|shit|bitch|cunt|whore|slut|fagg", re.IGNORECASE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the sample that inlayer carries.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    sentences = [
        f" {line.strip()}"
        for line in given.corpus.read_text(encoding="utf-8").splitlines()
        if not LEFT_OUT.search(line)
    ]
    tokenizer = make_tokenizer(sentences, given.out)
    held_out, stream = (make_stream(tokenizer, part) for part in (sentences[:HELD_OUT], sentences[HELD_OUT:]))

    model = Model(tokenizer)
    print(f"loss of random rows {model.evaluate(held_out):.3f}")
    with torch.no_grad():
        model.rows.copy_(factorise(stream, model.padding_idx, generator))
    print(f"loss of counted rows {model.evaluate(held_out):.3f}")
    train(model, stream, generator)
    print(f"loss of trained rows {model.evaluate(held_out):.3f}")
    write(given.out, model)


def make_tokenizer(sentences: list[str], out: Path) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("\n".join(sentences), encoding="utf-8")
        return train_bpe(text, VOCAB_SIZE, out, special_tokens=[PADDING, END])


def make_stream(tokenizer: Tokenizer, sentences: list[str]) -> Tensor:
    """All ids in a row; between sentences as much padding, whose row is zero, as a token can see."""
    ids = tokenizer.encode_batch(sentences)
    (padding,), (end,) = tokenizer.encode(PADDING), tokenizer.encode(END)
    gap = np.array([end] + [padding] * WINDOW)
    parts = np.split(np.asarray(ids.flat, np.int64), np.asarray(ids.offsets[1:-1]))
    return torch.from_numpy(np.concatenate([gap, *(piece for part in parts for piece in (part, gap))]))


def thin_out(stream: Tensor, padding_idx: int, generator: torch.Generator) -> Tensor:
    """The stream with fewer of its frequent tokens: sqrt(FREQUENT / share) of them stay."""
    counts = torch.bincount(stream, minlength=VOCAB_SIZE)
    counts[padding_idx] = 0
    kept = (FREQUENT * counts.sum() / counts).sqrt().clamp(max=1)  # padding: 1 / 0, all of it
    return stream[torch.rand(len(stream), generator=generator) < kept[stream]]


def factorise(stream: Tensor, padding_idx: int, generator: torch.Generator) -> Tensor:
    """Rows whose products follow how much oftener than chance two tokens are neighbours."""
    near = torch.zeros(VOCAB_SIZE**2)
    stream = thin_out(stream, padding_idx, generator)
    for distance in range(1, WINDOW + 1):
        pairs = torch.bincount(stream[:-distance] * VOCAB_SIZE + stream[distance:], minlength=VOCAB_SIZE**2)
        near += pairs * (1 - (distance - 1) / WINDOW)  # nearer ones count more
    near = near.view(VOCAB_SIZE, VOCAB_SIZE)
    near = near + near.T
    near[padding_idx] = near[:, padding_idx] = 0
    by_chance = near.sum(0) ** 0.75  # flatter than the truth, or rare neighbours would decide everything
    by_chance = near.sum(1, keepdim=True) * by_chance / by_chance.sum()
    information = (near / by_chance).log().nan_to_num(0, neginf=0).clamp(min=0)
    torch.manual_seed(SEED)  # svd_lowrank takes no generator
    directions, strengths, _ = torch.svd_lowrank(information, q=WIDTH)
    rows = directions * strengths**0.25  # the first directions say little more than that a token is frequent
    return rows / rows.norm(dim=1).mean()


class Model(nn.Module):
    """Guess a token from its neighbours: the layer, a body that weighs them, and the head, tied to the layer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        (self.padding_idx,), (self.end,) = tokenizer.encode(PADDING), tokenizer.encode(END)
        self.layer = Embeddings(VOCAB_SIZE, WIDTH, padding_idx=self.padding_idx, seed=SEED)
        self.places = torch.tensor([place for place in range(-WINDOW, WINDOW + 1) if place != 0])
        self.weights = nn.Parameter(torch.full((len(self.places), WIDTH), len(self.places) ** -0.5))
        self.head = Head(WIDTH, VOCAB_SIZE, bias=True)  # how frequent a token is goes there, not into its row
        self.layer.tie(self.head)

    @property
    def rows(self) -> Tensor:
        return self.layer.token_embedding.weight

    def loss(self, stream: Tensor, targets: Tensor) -> Tensor:
        neighbours = self.layer(stream[targets[:, None] + self.places])
        return self.head.loss((neighbours * self.weights).sum(1), stream[targets])

    @torch.no_grad()
    def evaluate(self, stream: Tensor) -> float:
        batches = find_targets(stream, self.padding_idx).split(BATCH)
        return sum(float(self.loss(stream, batch)) * len(batch) for batch in batches) / sum(map(len, batches))


def find_targets(stream: Tensor, padding_idx: int) -> Tensor:
    """Every place that has neighbours on both sides."""
    return (stream[WINDOW:-WINDOW] != padding_idx).nonzero().squeeze(1) + WINDOW


def draw_batches(stream: Tensor, padding_idx: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Without end: the text, thinned out anew each time, and some places in it."""
    while True:
        thinned = thin_out(stream, padding_idx, generator)
        targets = find_targets(thinned, padding_idx)
        for batch in targets[torch.randperm(len(targets), generator=generator)].split(BATCH):
            yield thinned, batch


def train(model: Model, stream: Tensor, generator: torch.Generator) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    batches = draw_batches(stream, model.padding_idx, generator)
    for step in range(1, STEPS + 1):
        loss = model.loss(*next(batches))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step} of {STEPS}, loss {loss.item():.3f}", flush=True)


def write(out: Path, model: Model) -> None:
    """As transformers writes a model: one without blocks, whose norm is left to its default."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": WIDTH,
        "intermediate_size": 4 * WIDTH,
        "num_hidden_layers": 0,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "pad_token_id": model.padding_idx,
        "bos_token_id": None,
        "eos_token_id": model.end,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PADDING, "eos_token": END}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "tokenizer_config.json").write_text(json.dumps(names, indent=2) + "\n")
    rows = model.rows.detach().bfloat16()
    (out / "model.safetensors").write_bytes(save({"model.embed_tokens.weight": rows}, metadata={"format": "pt"}))


if __name__ == "__main__":
    main()
