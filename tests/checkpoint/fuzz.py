"""Fuzzing: small checkpoints of every format, damaged by random changes with a fixed seed.

As a program it opens and uses them in a process of its own, which makes crashes and excessive memory use visible:
    python -m tests.checkpoint.fuzz <folder> <first seed> <count>
Its last line is JSON: how many checkpoints were read and rejected, the slowest one, the peak memory, and every outcome
other than a result or a typed one-line error.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import resource
import shutil
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import inlayer
from inlayer.cli import main
from inlayer.errors import InlayerError
from inlayer.inspection import inspect

MAX_SECONDS = 2.0  # CPU time per checkpoint
MAX_MEMORY_MB = 500  # beyond the memory in use before the first checkpoint
TEXT = "the cat <s> 🙂"

CONFIG = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 300, "n_embd": 8, "n_positions": 16,
    "n_head": 2, "eos_token_id": 2, "tie_word_embeddings": False, "rope_scaling": None,
}  # fmt: skip
NUMBERS = (0, -1, 1, 2**31, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, float("nan"), float("inf"), *NUMBERS, 10**400, "", "x", "../../etc/passwd", "\0",
    "\ud800", "é" * 50, [], {}, [[]], [0, 0], [2**62, 2**62], {"a": {}}, "F32", "BF16", "llama", "bert",
)  # fmt: skip


def write_intact(folder: Path) -> dict[str, Path]:
    """Write one intact checkpoint per format."""
    torch.manual_seed(0)
    weights = {
        "transformer.wte.weight": torch.randn(300, 8),
        "transformer.wpe.weight": torch.randn(16, 8),
        "lm_head.weight": torch.randn(300, 8).to(torch.bfloat16).float(),
        "transformer.h.0.ln_1.weight": torch.randn(8),
    }
    paths = {name: folder / name for name in ("sharded", "single", "pytorch", "gguf")}
    for path in paths.values():
        path.mkdir()
    names = list(weights)
    for number, part in enumerate((names[:1], names[1:]), 1):
        save_file({name: weights[name] for name in part}, paths["sharded"] / f"model-{number}-of-2.safetensors")
    weight_map = {name: f"model-{1 if name == names[0] else 2}-of-2.safetensors" for name in names}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (paths["sharded"] / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file(weights, paths["single"] / "model.safetensors", metadata={"format": "pt"})
    torch.save(weights, paths["pytorch"] / "pytorch_model.bin")
    for name in ("sharded", "single", "pytorch"):
        (paths[name] / "config.json").write_text(json.dumps(CONFIG))
        inlayer.train_bpe([_corpus(folder)], 270, paths[name] / "tokenizer.json", special_tokens=["<s>"])
    _write_gguf(paths["gguf"] / "model.gguf", weights)
    return paths


def _corpus(folder: Path) -> Path:
    path = folder / "corpus.txt"
    path.write_text("the cat sat on the mat and the dog sat on the cat\n" * 50)
    return path


def _write_gguf(path: Path, weights: dict[str, torch.Tensor]) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_embedding_length(8)
    writer.add_context_length(16)
    writer.add_head_count(2)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(
        ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdefghijklmno", "▁the"]
    )
    writer.add_token_scores([0.0] * 276)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * 17])
    writer.add_tensor("token_embd.weight", weights["transformer.wte.weight"].numpy())
    writer.add_tensor("position_embd.weight", weights["transformer.wpe.weight"].numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def damage(folder: Path, rng: random.Random) -> str:
    """Change one file of a copy; returns which file, and how."""
    file = rng.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    data = bytearray(file.read_bytes())
    changes = [truncate, flip_bytes, overwrite_number, insert_bytes, repeat_bytes, replace_all]
    if file.suffix == ".json":
        changes += [change_json] * 6
    if file.suffix == ".safetensors":
        changes += [change_header] * 8
    change = rng.choice(changes)
    file.write_bytes(change(data, rng))
    return f"{file.name}: {change.__name__}"


def truncate(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.choice([0, 4, 8, 9, rng.randrange(len(data)), len(data) - 1])])


def flip_bytes(data: bytearray, rng: random.Random) -> bytes:
    reach = rng.choice([16, 200, 2000, len(data)])  # headers, where most can go wrong, come first
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(min(reach, len(data)))] = rng.randrange(256)
    return bytes(data)


def overwrite_number(data: bytearray, rng: random.Random) -> bytes:
    position = rng.randrange(min(rng.choice([32, 2000, len(data)]), len(data)))
    packed = struct.pack(rng.choice(["<Q", ">Q"]), rng.choice(NUMBERS) % 2**64)[: rng.choice([4, 8])]
    data[position : position + len(packed)] = packed
    return bytes(data)


def insert_bytes(data: bytearray, rng: random.Random) -> bytes:
    position = rng.randrange(len(data) + 1)
    data[position:position] = rng.choice(
        [b"\0" * 64, b"\xff\xfe", b"[" * 5000, b'"', rng.randbytes(32), b"{", b",", b"9" * 5000]
    )
    return bytes(data)


def repeat_bytes(data: bytearray, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    part = data[start : start + rng.randint(1, 400)]
    return bytes(data[:start] + part * rng.randint(2, 4) + data[start:])


def replace_all(data: bytearray, rng: random.Random) -> bytes:
    return bytes(
        rng.choice([data[::-1], b"", b"\x80\x04K\x01.", b"GGUF", b"PK\x03\x04" + data[4:], b"{}", b"[]", b"null"])
    )


def change_json(data: bytearray, rng: random.Random) -> bytes:
    value = json.loads(bytes(data))
    for _ in range(rng.randint(1, 3)):
        value = change_value(value, rng)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def change_header(data: bytearray, rng: random.Random) -> bytes:
    """Change the header, with a correct length, and keep the tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(bytes(data[8 : 8 + length]))
    for _ in range(rng.randint(1, 3)):
        header = change_value(header, rng)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + bytes(data[8 + length :])


def change_value(value: Any, rng: random.Random) -> Any:
    """Change a value at a random depth."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        action = rng.random()
        if action < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        if action < 0.2:
            return value | {rng.choice(["x", "", "transformer.wte.weight", "../x"]): value[key]}
        return value | {key: change_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        index = rng.randrange(len(value))
        return [*value[:index], change_value(value[index], rng), *value[index + 1 :]]
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice([-1, 1, 8, 4096])
    return rng.choice(VALUES)


def use(folder: Path) -> None:
    """Use a checkpoint in every way. Inspection comes first: it continues where a lookup would fail."""
    model = inlayer.load(folder)
    json.dumps(inspect(model).to_dict(), allow_nan=False)
    rows = model.table_info.shape[0]
    ids = [0, rows - 1] if not model.has_tokenizer else [*model.tokenizer.encode(TEXT)[:8], rows - 1]
    model.embeddings(torch.tensor([ids]))
    if model.has_head:
        model.head(torch.zeros(1, 8))
    model.store.parameters()


def command_line_problem(folder: Path) -> str:
    """What is wrong with the outcome of `inlayer inspect`, or an empty string."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["inlayer", "inspect", str(folder), "--json"]
    code: object = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code
    lines = err.getvalue().splitlines()
    if code == 2:
        return "" if len(lines) == 1 and not out.getvalue() else f"exit code 2 with {lines[:3]}"
    return "" if code in {0, 1} and not lines else f"exit code {code} with {lines[:3]}"


def run(folder: Path, first: int, count: int) -> dict[str, Any]:
    """Damage and use `count` checkpoints, starting with the seed `first`."""
    (folder / "intact").mkdir(parents=True)
    intact = write_intact(folder / "intact")
    for path in intact.values():
        use(path)  # control: undamaged checkpoints open
    before, copy = _peak_mb(), folder / "copy"
    counts: Counter[str] = Counter()
    slowest, problems = (0.0, ""), []
    for seed in range(first, first + count):
        rng = random.Random(seed)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(intact[rng.choice(list(intact))], copy)
        case = f"{seed} {damage(copy, rng)}"
        start = time.process_time()
        try:
            use(copy)
            counts["read"] += 1
        except InlayerError as error:
            counts["rejected"] += 1
            if len(str(error).splitlines()) != 1 or len(str(error)) > 1500:
                problems.append(f"{case}: {str(error)[:300]!r}")
        except Exception as error:  # an untyped error is what fuzzing looks for
            problems.append(f"{case}: {type(error).__name__}: {str(error)[:200]}")
        if seed % 40 == 0 and (problem := command_line_problem(copy)):
            problems.append(f"{case}: {problem}")
        slowest = max(slowest, (time.process_time() - start, case))
    return {"counts": counts, "slowest": slowest, "memory_mb": _peak_mb() - before, "problems": problems}


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))) + "\n")
