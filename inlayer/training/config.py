"""Training configuration: one dataclass for a run, one for the decoder it trains.

- TrainConfig is the argument of `inlayer.train`. The flags of `inlayer train` are generated from its fields, so this
  module does not import torch
- a field that is None is derived: sizes come from the preset, steps and block size also from the text
  (`fit_to_corpus`), warm-up from the number of steps, and scales from tying
- tables and heads have no weight decay by default: the row of a rare token would shrink between its few updates
- rows are initialized from N(0, 0.02) and multiplied by 1 / 0.02, so they enter the first block at unit scale; a tied
  head multiplies its input by 3. Of all variants in the study, only this one trains well at every learning rate
  (docs/tying.md)
- presets base-768 and large-1024 with architecture gpt have the sizes of GPT-2 and GPT-2 medium
Tested in tests/training/test_config.py.
"""

from __future__ import annotations

import json
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from inlayer.errors import ConfigError
from inlayer.files import check_paths, parse_json, quote, unique_keys
from inlayer.training.lr_schedule import LrSchedule, count_warmup_steps

if TYPE_CHECKING:
    from inlayer.initialization import InitRule

Preset: TypeAlias = Literal["toy", "small", "medium-256", "medium-512", "base-768", "large-1024"]
Architecture: TypeAlias = Literal["gpt", "llama"]
DecoderScheme: TypeAlias = Literal["learned", "sinusoidal", "rotary"]
Precision: TypeAlias = Literal["float32", "bfloat16"]
Device: TypeAlias = Literal["cpu", "cuda", "mps"]
ParallelMode: TypeAlias = Literal["data", "vocab"]
PARALLEL_MODES = get_args(ParallelMode)

PRESETS: dict[Preset, dict[str, int]] = {
    "toy": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_kv_head": 2, "block_size": 64},
    "small": {"n_embd": 128, "n_layer": 4, "n_head": 4, "n_kv_head": 2, "block_size": 128},
    "medium-256": {"n_embd": 256, "n_layer": 6, "n_head": 8, "n_kv_head": 4, "block_size": 256},
    "medium-512": {"n_embd": 512, "n_layer": 8, "n_head": 8, "n_kv_head": 4, "block_size": 512},
    "base-768": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_kv_head": 4, "block_size": 1024},
    "large-1024": {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_kv_head": 4, "block_size": 1024},
}
# Position schemes of each architecture, the default first.
POSITIONS: dict[Architecture, tuple[DecoderScheme, ...]] = {"gpt": ("learned", "sinusoidal"), "llama": ("rotary",)}
VOCAB_SIZE, TIED_OUTPUT_SCALE = 4096, 3.0
DEFAULT_STEPS, MIN_STEPS, MAX_EPOCHS, MIN_BLOCK_SIZE = 600, 50, 20, 16  # for defaults that depend on the text
NOT_SAVED = ("out", "parallel", "device")  # may change when a run is resumed
FORMAT = 4
MAX_NUMBER = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Architecture of a decoder. Where a size is None, the property in parentheses gives the effective value.

    architecture  "gpt" or "llama"
    n_kv_head     key/value heads, each shared by n_head / n_kv_head queries (`kv_heads`; gpt: n_head)
    n_inner       width of the feed-forward layer (`hidden_width`)
    positions     gpt: "learned" or "sinusoidal"; llama: "rotary" (`position_scheme`)
    theta         base of rotary and sinusoidal positions
    padding_idx   a table row that stays zero; targets with this id are ignored, and the id is never generated
    init          initialization of the table, see Embeddings; init_std also applies to all other weights
    input_scale   multiplier for looked-up rows (Gemma: sqrt(n_embd))
    output_scale  multiplier for the head's input (T5: 1 / sqrt(n_embd))
    input_norm    adds a norm before the first block
    """

    architecture: Architecture = field(metadata={"choices": get_args(Architecture)})
    vocab_size: int
    n_embd: int
    n_layer: int
    n_head: int
    block_size: int
    n_kv_head: int | None = None
    n_inner: int | None = None
    positions: DecoderScheme | None = None
    theta: float = 10_000.0
    norm_eps: float = field(default=1e-5, metadata={"excluded": 0})
    dropout: float = field(default=0.0, metadata={"maximum": 1, "excluded": 1})
    tie: bool = False
    padding_idx: int | None = field(default=None, metadata={"minimum": -MAX_NUMBER})  # checked by Embeddings
    init: InitRule = "normal"  # checked by Embeddings
    init_std: float = 0.02
    input_scale: float = field(default=1.0, metadata={"excluded": 0})
    output_scale: float = field(default=1.0, metadata={"excluded": 0})
    soft_cap: float | None = None
    input_norm: bool = False

    def __post_init__(self) -> None:
        for setting in fields(self):
            check_value(setting, getattr(self, setting.name))
        if self.n_embd % self.n_head:
            raise ConfigError(f"n_embd {self.n_embd} is not divisible by n_head {self.n_head}")
        if self.n_head % self.kv_heads:
            raise ConfigError(f"n_head {self.n_head} is not divisible by n_kv_head {self.kv_heads}")
        if self.architecture == "gpt" and self.kv_heads != self.n_head:
            raise ConfigError(f"n_kv_head is {self.kv_heads}; only llama has grouped-query attention")
        if self.position_scheme not in POSITIONS[self.architecture]:
            allowed = " or ".join(POSITIONS[self.architecture])
            raise ConfigError(f"positions {self.positions!r} does not work with {self.architecture}; use {allowed}")

    @property
    def kv_heads(self) -> int:
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head

    @property
    def hidden_width(self) -> int:
        """4 n_embd for gpt; for llama, 8/3 n_embd rounded up to a multiple of 64, since SwiGLU has a third matrix."""
        if self.n_inner is not None:
            return self.n_inner
        return 4 * self.n_embd if self.architecture == "gpt" else -(-8 * self.n_embd // (3 * 64)) * 64

    @property
    def position_scheme(self) -> DecoderScheme:
        return POSITIONS[self.architecture][0] if self.positions is None else self.positions


def option(default: Any, group: str, **limits: Any) -> Any:
    """Return a field that is also a command-line flag; its help is its entry in the docstring of TrainConfig.

    `limits` may contain `choices`, or `minimum`, `maximum`, and `excluded` (the limit that is itself not allowed).
    """
    return field(default=default, metadata={"group": group, **limits})


DATA, MODEL, OPTIMIZER, RUN = "Data", "Model", "Optimization", "Run"
TYING = "Tying experiments"


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a training run.

    Every field is also a flag of `inlayer train`. Fields that are None are derived from others; `resolved` returns the
    effective values.

    Args:
        files: UTF-8 text files. Default: English text from Python's standard library.
        out: Output folder, created for the trained model.
        tokenizer: "bpe" (trained on the text), "bytes", or a path.
        vocab_size: Exact size of the BPE vocabulary to train. Default: at most 4,096.
        validation_fraction: Fraction of the text held out for validation.
        preset: Model size: toy, small, medium-256, medium-512, base-768, or large-1024. A size you give overrides it.
        architecture: Architecture of the decoder: gpt or llama.
        positions: Position scheme: learned or sinusoidal for gpt, rotary for llama. Default: learned or rotary.
        n_embd: Embedding width. Default: from the preset.
        n_layer: Number of transformer blocks. Default: from the preset.
        n_head: Number of attention heads. Default: from the preset.
        n_kv_head: Number of key/value heads (llama). Default: from the preset.
        n_inner: Width of the feed-forward layers. Default: from the width.
        block_size: Context length in tokens. Default: from the preset, shorter for a small text.
        dropout: Dropout probability.
        tie: Share the embedding table with the output head.
        init_std: Standard deviation of the initial weights.
        input_scale: Factor applied to looked-up rows. Default: 1 / init_std.
        output_scale: Factor applied to the head's input. Default: 3 if tied, else 1.
        steps: Number of training steps. Default: 600, or about 20 passes over a small text.
        batch_size: Sequences per step, over all processes.
        gradient_accumulation_steps: Gradient accumulation: forward/backward passes per step.
        learning_rate: Peak learning rate.
        embedding_lr_scale: Learning-rate multiplier for the embedding table.
        head_lr_scale: Learning-rate multiplier for an untied head.
        weight_decay: Weight decay of the matrices in the blocks.
        embedding_weight_decay: Weight decay of the embedding table, learned positions, and head.
        adam_beta1: AdamW's first beta.
        adam_beta2: AdamW's second beta.
        adam_epsilon: AdamW's epsilon.
        warmup_steps: Steps of linear warm-up. Default: 10% of the steps, at most 50.
        lr_schedule: Learning-rate schedule after warm-up: cosine, linear, or constant.
        min_lr_ratio: Final learning rate as a fraction of the peak.
        max_grad_norm: Maximum gradient norm; 0 turns clipping off.
        precision: Compute dtype: float32, or bfloat16 with autocast.
        z_loss: Weight of the z-loss: the squared log of the softmax normalizer.
        shared_second_moment: Average AdamW's second moment over the vocabulary.
        seed: Random seed; the same seed produces the same losses.
        eval_interval: Steps between validations; 0 validates only at the end.
        eval_sequences: Maximum number of validation sequences.
        save_interval: Steps between saved states; 0 saves only at the end.
        log_interval: Steps between measurements of the table.
        threads: Number of torch CPU threads; it affects the last digits of losses. Default: torch's default.
        device: Device to train on: cpu, cuda, or mps. Default: cuda if available, else cpu.
        parallel: Parallelism under torchrun: FSDP2 (data) or a sharded vocabulary (vocab).

    Raises:
        ConfigError: If a value is out of range, or values contradict each other.

    Example:
        >>> config = TrainConfig(preset="toy", steps=100)
        >>> config.total_steps, config.resolved()["warmup_steps"], config.decoder_config(vocab_size=256).n_embd
        (100, 10, 64)
    """

    files: tuple[str, ...] = ()
    out: str = option("trained", DATA)
    tokenizer: str = option("bpe", DATA)
    vocab_size: int | None = option(None, DATA)
    validation_fraction: float = option(0.05, DATA, maximum=0.5)

    preset: Preset = option("small", MODEL, choices=get_args(Preset))
    architecture: Architecture = option("llama", MODEL, choices=get_args(Architecture))
    positions: DecoderScheme | None = option(None, MODEL, choices=get_args(DecoderScheme))
    n_embd: int | None = option(None, MODEL)
    n_layer: int | None = option(None, MODEL)
    n_head: int | None = option(None, MODEL)
    n_kv_head: int | None = option(None, MODEL)
    n_inner: int | None = option(None, MODEL)
    block_size: int | None = option(None, MODEL)
    dropout: float = option(0.0, MODEL, maximum=1)
    tie: bool = option(True, MODEL)
    init_std: float = option(0.02, MODEL, excluded=0)
    input_scale: float | None = option(None, MODEL)
    output_scale: float | None = option(None, MODEL)

    steps: int | None = option(None, OPTIMIZER)
    batch_size: int = option(16, OPTIMIZER)
    gradient_accumulation_steps: int = option(1, OPTIMIZER)
    learning_rate: float = option(2e-3, OPTIMIZER)
    embedding_lr_scale: float = option(1.0, OPTIMIZER)
    head_lr_scale: float = option(1.0, OPTIMIZER)
    weight_decay: float = option(0.1, OPTIMIZER)
    embedding_weight_decay: float = option(0.0, OPTIMIZER)
    adam_beta1: float = option(0.9, OPTIMIZER, maximum=1, excluded=1)
    adam_beta2: float = option(0.95, OPTIMIZER, maximum=1, excluded=1)
    adam_epsilon: float = option(1e-8, OPTIMIZER, excluded=0)
    warmup_steps: int | None = option(None, OPTIMIZER, minimum=0)
    lr_schedule: LrSchedule = option("cosine", OPTIMIZER, choices=get_args(LrSchedule))
    min_lr_ratio: float = option(0.1, OPTIMIZER, maximum=1)
    max_grad_norm: float = option(1.0, OPTIMIZER)
    precision: Precision = option("float32", OPTIMIZER, choices=get_args(Precision))

    z_loss: float = option(0.0, TYING)
    shared_second_moment: bool = option(False, TYING)

    seed: int = option(0, RUN, minimum=0)
    eval_interval: int = option(100, RUN, minimum=0)
    eval_sequences: int = option(64, RUN)
    save_interval: int = option(100, RUN, minimum=0)
    log_interval: int = option(20, RUN, minimum=0)
    threads: int | None = option(None, RUN, maximum=4096)
    device: Device | None = option(None, RUN, choices=get_args(Device))
    parallel: ParallelMode = option("data", RUN, choices=PARALLEL_MODES)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(map(str, check_paths(self.files))))
        for setting in fields(self):
            if setting.metadata:
                check_value(setting, getattr(self, setting.name))
        if self.batch_size % self.gradient_accumulation_steps:
            raise ConfigError(
                f"batch_size {self.batch_size} is not divisible by gradient_accumulation_steps "
                f"{self.gradient_accumulation_steps}"
            )
        if self.tie and self.head_lr_scale != 1.0:
            raise ConfigError(f"head_lr_scale is {self.head_lr_scale}, but a tied head shares the table's weights")
        if self.vocab_size is not None and self.tokenizer != "bpe":
            raise ConfigError(f"vocab_size is {self.vocab_size}, but the tokenizer {self.tokenizer!r} determines it")
        if self.tokenizer == "bpe":
            from inlayer.tokenizers.bpe_training import check_vocab_size

            check_vocab_size(bpe_vocab_size(self), 2)  # two special tokens: padding and end of text
        self.decoder_config(bpe_vocab_size(self))

    def decoder_config(self, vocab_size: int, padding_idx: int | None = None) -> DecoderConfig:
        """Determine the architecture to train.

        Args:
            vocab_size: Number of ids of the tokenizer.
            padding_idx: Padding id of the tokenizer.

        Returns:
            Sizes and settings of the decoder.

        Raises:
            ConfigError: If sizes contradict each other.

        Example:
            >>> TrainConfig(preset="toy").decoder_config(256).n_layer
            2
        """
        values: dict[str, Any] = {**PRESETS[self.preset], "n_inner": None}
        if self.architecture == "gpt":
            values["n_kv_head"] = None
        values |= {name: getattr(self, name) for name in values if getattr(self, name) is not None}
        values |= {name: getattr(self, name) for name in ("architecture", "positions", "dropout", "tie", "init_std")}
        values["input_scale"] = 1 / self.init_std if self.input_scale is None else self.input_scale
        default = TIED_OUTPUT_SCALE if self.tie else 1.0
        values["output_scale"] = default if self.output_scale is None else self.output_scale
        return DecoderConfig(vocab_size=vocab_size, padding_idx=padding_idx, **values)

    def resolved(self) -> dict[str, Any]:
        """Determine the effective values of all fields.

        Returns:
            All fields by name, with derived values in place of None.

        Example:
            >>> TrainConfig(preset="toy").resolved()["n_embd"]
            64
        """
        decoder, values = self.decoder_config(bpe_vocab_size(self)), asdict(self)
        values |= {name: getattr(decoder, name) for name in values if hasattr(decoder, name)}
        return values | {
            "positions": decoder.position_scheme,
            "n_kv_head": decoder.kv_heads,
            "n_inner": decoder.hidden_width,
            "vocab_size": bpe_vocab_size(self) if self.tokenizer == "bpe" else None,
            "steps": self.total_steps,
            "warmup_steps": count_warmup_steps(self),
        }

    @property
    def total_steps(self) -> int:
        """Number of steps: `steps`, or its default until the text is known."""
        return DEFAULT_STEPS if self.steps is None else self.steps

    def fit_to_corpus(self, training_tokens: int, validation_tokens: int) -> TrainConfig:
        """Derive block size and steps from the size of the text, unless they are given.

        Args:
            training_tokens: Number of tokens to train on.
            validation_tokens: Number of tokens held out.

        Returns:
            The config with both values.

        Example:
            >>> config = TrainConfig().fit_to_corpus(950, 50)
            >>> config.block_size, config.steps
            (49, 50)
        """
        block_size = self.block_size
        if block_size is None:
            block_size = min(PRESETS[self.preset]["block_size"], max(MIN_BLOCK_SIZE, training_tokens - 1))
            if validation_tokens > MIN_BLOCK_SIZE:
                block_size = min(block_size, validation_tokens - 1)
        steps = MAX_EPOCHS * training_tokens // (self.batch_size * block_size)
        return replace(self, block_size=block_size, steps=self.steps or min(DEFAULT_STEPS, max(MIN_STEPS, steps)))


def bpe_vocab_size(config: TrainConfig) -> int:
    """Return the vocabulary size of the tokenizer to train; it is an upper bound unless `vocab_size` is given."""
    return VOCAB_SIZE if config.vocab_size is None else config.vocab_size


def config_to_json(config: TrainConfig) -> bytes:
    """Encode the config for a run folder, without the fields in NOT_SAVED."""
    values = {name: value for name, value in asdict(config).items() if name not in NOT_SAVED}
    return (json.dumps({"format": FORMAT, **values}, indent=2) + "\n").encode()


def config_from_json(data: bytes, **not_saved: Any) -> TrainConfig:
    """Read the output of `config_to_json`. Raises ValueError if it is damaged."""
    values = parse_json(data, "it", ConfigError, unique_keys)
    if values.pop("format", None) != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    if different := {setting.name for setting in fields(TrainConfig)} - {*NOT_SAVED} ^ values.keys():
        raise ValueError(f"{quote(min(different))} is missing or unknown")
    if not isinstance(values["files"], list) or not all(isinstance(file, str) for file in values["files"]):
        raise ValueError("files is not a list of paths")
    return TrainConfig(**{**values, "files": tuple(values["files"])}, **not_saved)


def is_due(config: TrainConfig, every: int, step: int) -> bool:
    """Return whether an action is due after this step: every `every` steps, and always after the last step."""
    return step == config.total_steps or (every > 0 and step % every == 0)


def check_value(setting: Field[Any], value: Any) -> None:
    """Raise ConfigError if a value is not of the field's type, or outside its limits."""
    kind, _, optional = str(setting.type).partition(" | ")
    limits = setting.metadata
    if value is None and optional:
        return
    if "choices" in limits:
        valid, allowed = value in limits["choices"], f"one of {', '.join(limits['choices'])}"
    elif kind == "bool":
        valid, allowed = isinstance(value, bool), "True or False"
    elif kind not in ("int", "float"):
        valid, allowed = isinstance(value, str), "a string"
    else:
        types, allowed = ((int,), "an integer") if kind == "int" else ((int, float), "a number")
        minimum, maximum = limits.get("minimum", int(kind == "int")), limits.get("maximum", MAX_NUMBER)
        valid = isinstance(value, types) and not isinstance(value, bool) and minimum <= value <= maximum
        valid = valid and value != limits.get("excluded")
        allowed += f" from {minimum} to {maximum:,}" if "maximum" in limits else f" of at least {minimum}"
        allowed += f", excluding {limits['excluded']}" if "excluded" in limits else ""
    if not valid:
        raise ConfigError(f"{setting.name} is {value!r}; it must be {allowed}")
