"""Damaged checkpoints: small whole ones of every format, and changes drawn from a seed.

Run as a program it opens and uses them in a process of its own, with a bound on its memory, so that a crash, a hang or
a greedy allocation is seen:
    python -m tests.checkpoint.fuzz <folder> <first seed> <count>
The last line is JSON: how many were read and refused, the slowest one, the memory at the peak, and every answer that is
neither a result nor a typed error of one line.
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

SLOWEST = 2.0  # seconds
MAX_MEMORY = 500  # megabytes more than before the first file
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


def write_whole(folder: Path) -> dict[str, Path]:
    """One whole checkpoint of every format; each opens."""
    torch.manual_seed(0)
    weights = {
        "transformer.wte.weight": torch.randn(300, 8),
        "transformer.wpe.weight": torch.randn(16, 8),
        "lm_head.weight": torch.randn(300, 8).to(torch.bfloat16).float(),
        "transformer.h.0.ln_1.weight": torch.randn(8),
    }
    made = {name: folder / name for name in ("sharded", "single", "pytorch", "gguf")}
    for path in made.values():
        path.mkdir()
    names = list(weights)
    for number, part in enumerate((names[:1], names[1:]), 1):
        save_file({name: weights[name] for name in part}, made["sharded"] / f"model-{number}-of-2.safetensors")
    weight_map = {name: f"model-{1 if name == names[0] else 2}-of-2.safetensors" for name in names}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (made["sharded"] / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file(weights, made["single"] / "model.safetensors", metadata={"format": "pt"})
    torch.save(weights, made["pytorch"] / "pytorch_model.bin")
    for name in ("sharded", "single", "pytorch"):
        (made[name] / "config.json").write_text(json.dumps(CONFIG))
        inlayer.train_bpe([_corpus(folder)], 270, made[name] / "tokenizer.json", special_tokens=["<s>"])
    _write_gguf(made["gguf"] / "model.gguf", weights)
    return made


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
    """Change one file of a copy; says which and how."""
    file = rng.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    data = bytearray(file.read_bytes())
    ways = [cut, flip, put_number, stuff, repeat, swap]
    if file.suffix == ".json":
        ways += [change_json] * 6
    if file.suffix == ".safetensors":
        ways += [change_header] * 8
    way = rng.choice(ways)
    file.write_bytes(way(data, rng))
    return f"{file.name}: {way.__name__}"


def cut(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.choice([0, 4, 8, 9, rng.randrange(len(data)), len(data) - 1])])


def flip(data: bytearray, rng: random.Random) -> bytes:
    reach = rng.choice([16, 200, 2000, len(data)])  # most of what can go wrong stands in front
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(min(reach, len(data)))] = rng.randrange(256)
    return bytes(data)


def put_number(data: bytearray, rng: random.Random) -> bytes:
    place = rng.randrange(min(rng.choice([32, 2000, len(data)]), len(data)))
    packed = struct.pack(rng.choice(["<Q", ">Q"]), rng.choice(NUMBERS) % 2**64)[: rng.choice([4, 8])]
    data[place : place + len(packed)] = packed
    return bytes(data)


def stuff(data: bytearray, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.choice(
        [b"\0" * 64, b"\xff\xfe", b"[" * 5000, b'"', rng.randbytes(32), b"{", b",", b"9" * 5000]
    )
    return bytes(data)


def repeat(data: bytearray, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    part = data[start : start + rng.randint(1, 400)]
    return bytes(data[:start] + part * rng.randint(2, 4) + data[start:])


def swap(data: bytearray, rng: random.Random) -> bytes:
    return bytes(
        rng.choice([data[::-1], b"", b"\x80\x04K\x01.", b"GGUF", b"PK\x03\x04" + data[4:], b"{}", b"[]", b"null"])
    )


def change_json(data: bytearray, rng: random.Random) -> bytes:
    value = json.loads(bytes(data))
    for _ in range(rng.randint(1, 3)):
        value = change_value(value, rng)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def change_header(data: bytearray, rng: random.Random) -> bytes:
    """Another header of an honest length before the same tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(bytes(data[8 : 8 + length]))
    for _ in range(rng.randint(1, 3)):
        header = change_value(header, rng)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + bytes(data[8 + length :])


def change_value(value: Any, rng: random.Random) -> Any:
    """Go down a random way and change what is there."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        action = rng.random()
        if action < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        if action < 0.2:
            return value | {rng.choice(["x", "", "transformer.wte.weight", "../x"]): value[key]}
        return value | {key: change_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], change_value(value[place], rng), *value[place + 1 :]]
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice([-1, 1, 8, 4096])
    return rng.choice(VALUES)


def use(folder: Path) -> None:
    """Everything a user would do with a checkpoint. The doctor comes first: it looks on where a lookup would end."""
    model = inlayer.load(folder)
    json.dumps(inspect(model).to_dict(), allow_nan=False)
    rows = model.table_info.shape[0]
    ids = [0, rows - 1] if model.tokenizer is None else [*model.tokenizer.encode(TEXT)[:8], rows - 1]
    model.embeddings(torch.tensor([ids]))
    if model.head is not None:
        model.head(torch.zeros(1, 8))
    model.store.parameters()


def at_the_command_line(folder: Path) -> str:
    """What is wrong with how `inlayer inspect` answers; empty where nothing is."""
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
    whole = write_whole(folder / "whole")
    for path in whole.values():
        use(path)  # control: undamaged, each of them opens
    before, copy = _peak_mb(), folder / "copy"
    counts: Counter[str] = Counter()
    slowest, wrong = (0.0, ""), []
    for seed in range(first, first + count):
        rng = random.Random(seed)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole[rng.choice(list(whole))], copy)
        what = f"{seed} {damage(copy, rng)}"
        start = time.perf_counter()
        try:
            use(copy)
            counts["read"] += 1
        except InlayerError as error:
            counts["refused"] += 1
            if len(str(error).splitlines()) != 1 or len(str(error)) > 1500:
                wrong.append(f"{what}: {str(error)[:300]!r}")
        except Exception as error:  # that is what is looked for
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
        if seed % 40 == 0 and (answer := at_the_command_line(copy)):
            wrong.append(f"{what}: {answer}")
        slowest = max(slowest, (time.perf_counter() - start, what))
    return {"counts": counts, "slowest": slowest, "memory_mb": _peak_mb() - before, "wrong": wrong}


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "whole").mkdir(parents=True)
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(run(place, int(sys.argv[2]), int(sys.argv[3]))) + "\n")
