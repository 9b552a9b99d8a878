"""Rules of the decoder. The comparison with transformers is in tests/training/test_export.py."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from inlayer.errors import ConfigError, IdRangeError, PositionRangeError, ShapeError
from inlayer.training.decoder import Decoder
from tests.training.models import VOCABULARY, make_config, make_decoder, make_ids

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("gpt", {}),
    ("gpt", {"positions": "sinusoidal", "tie": True}),
    ("llama", {"n_kv_head": 2}),
    ("llama", {"tie": True, "padding_idx": 0, "input_norm": True, "soft_cap": 20.0}),
]
every_variant = pytest.mark.parametrize(("architecture", "settings"), VARIANTS)
two_variants = pytest.mark.parametrize(("architecture", "settings"), [VARIANTS[1], VARIANTS[2]])


# ---- forward


@every_variant
def test_attention_is_causal(architecture: str, settings: dict[str, Any]) -> None:
    decoder, ids = make_decoder(architecture, **settings), make_ids()
    changed = ids.clone()
    changed[:, 12:] = (changed[:, 12:] + 1) % VOCABULARY
    before, after = decoder.logits(ids), decoder.logits(changed)
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.isclose(before[:, 12:], after[:, 12:]).all(-1).any()  # control: all later tokens differ


@every_variant
def test_order_matters(architecture: str, settings: dict[str, Any]) -> None:
    decoder, ids = make_decoder(architecture, **settings), make_ids()
    swapped = ids[:, [1, 0, *range(2, ids.shape[1])]]
    assert not torch.isclose(decoder(ids)[:, 5:], decoder(swapped)[:, 5:]).all(-1).any()


@every_variant
def test_sequences_of_a_batch_are_independent(architecture: str, settings: dict[str, Any]) -> None:
    decoder, ids = make_decoder(architecture, **settings), make_ids()
    alone = torch.cat([decoder.logits(row[None]) for row in ids])
    torch.testing.assert_close(decoder.logits(ids), alone, rtol=0, atol=1e-5)


def test_grouped_query_attention() -> None:
    grouped, full = make_decoder("llama", n_kv_head=2), make_decoder("llama", n_kv_head=4)
    width = grouped.config.head_dim
    state = grouped.state_dict()
    for name, rows in state.items():
        if name.endswith("qkv.weight"):
            q, k, v = rows.split((4 * width, 2 * width, 2 * width))
            repeated = [part.view(2, width, -1).repeat_interleave(2, 0).flatten(0, 1) for part in (k, v)]
            state[name] = torch.cat((q, *repeated))
    full.load_state_dict(state)
    torch.testing.assert_close(grouped(make_ids()), full(make_ids()), rtol=0, atol=1e-5)


def test_only_learned_positions_are_limited_to_block_size() -> None:
    longer = make_ids(tokens=30)
    assert make_decoder("llama")(longer).shape == (3, 30, 32)
    assert make_decoder("gpt", positions="sinusoidal")(longer).shape == (3, 30, 32)
    with pytest.raises(PositionRangeError, match=r"position 29 .* block_size is 24"):
        make_decoder("gpt")(longer)


def test_bad_ids() -> None:
    decoder = make_decoder("gpt")
    with pytest.raises(IdRangeError, match="96"):
        decoder(torch.tensor([[1, VOCABULARY]]))
    with pytest.raises(ShapeError, match=r"expected \(batch, tokens\)"):
        decoder(torch.tensor([1, 2]))


def test_dropout_only_in_training() -> None:
    for architecture in ("gpt", "llama"):
        decoder, ids = make_decoder(architecture, dropout=0.5), make_ids()
        assert torch.equal(decoder(ids), decoder(ids))
        decoder.train()
        assert not torch.equal(decoder(ids), decoder(ids))


# ---- loss


@every_variant
def test_loss_is_cross_entropy_of_the_logits(architecture: str, settings: dict[str, Any]) -> None:
    decoder, ids, targets = make_decoder(architecture, **settings), make_ids(), make_ids(seed=1)
    targets[0, :4] = -100
    ours = decoder.loss(ids, targets)
    ignored = targets if decoder.embeddings.padding_idx is None else targets.masked_fill(targets == 0, -100)
    theirs = functional.cross_entropy(decoder.logits(ids).flatten(0, 1), ignored.flatten())
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    each = decoder.loss(ids, targets, reduction="none")
    torch.testing.assert_close(each.sum() / (ignored != -100).sum(), theirs, rtol=1e-6, atol=0)
    assert not torch.isclose(decoder.loss(ids, ids), theirs)  # control


@every_variant
def test_every_parameter_has_a_gradient(architecture: str, settings: dict[str, Any]) -> None:
    decoder, ids = make_decoder(architecture, **settings), make_ids()
    decoder.loss(ids, make_ids(seed=1)).backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_gradient_of_a_tied_table_skips_only_padding() -> None:
    decoder = make_decoder("llama", tie=True, padding_idx=3)
    decoder.loss(make_ids(), make_ids(seed=1)).backward()
    grad = decoder.embeddings.token_embedding.weight.grad
    assert (grad.abs().amax(-1) > 0).tolist() == [row != 3 for row in range(VOCABULARY)]


@two_variants
def test_decoder_can_memorize_a_text(architecture: str, settings: dict[str, Any]) -> None:
    decoder, ids = Decoder(make_config(architecture, n_layer=1, **settings), seed=0), 1 + make_ids(1, 17) % 90
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=1e-2)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = decoder.loss(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(VOCABULARY), abs=0.5)
    assert losses[-1] < 0.2


# ---- initialization


@every_variant
def test_seed_is_deterministic_and_local(architecture: str, settings: dict[str, Any]) -> None:
    config = make_config(architecture, **settings)
    state = torch.get_rng_state()
    made, same, other = (Decoder(config, seed=seed).state_dict() for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(made[name], same[name]) for name in made)
    assert not any(torch.equal(made[name], other[name]) for name in made if "norm" not in name and "bias" not in name)


def test_without_seed_uses_the_global_generator() -> None:
    config = make_config("llama")
    torch.manual_seed(3)
    made, two = Decoder(config).state_dict(), Decoder(config).state_dict()
    torch.manual_seed(3)
    again = Decoder(config).state_dict()
    assert all(torch.equal(made[name], again[name]) for name in made)
    assert not torch.equal(made["head.weight"], two["head.weight"])


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_initial_weights_follow_the_architecture(architecture: str) -> None:
    decoder = Decoder(make_config(architecture, n_embd=128, n_layer=8, padding_idx=1), seed=0)
    back = 0.02 / math.sqrt(16) if architecture == "gpt" else 0.02
    for name, parameter in decoder.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            expected = back if name.endswith(("attention.out.weight", "feed_forward.down.weight")) else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name
            assert abs(parameter.mean().item()) < 0.1 * expected, name
    assert not decoder.embeddings.token_embedding.weight[1].any()


def test_other_initialization_of_the_table() -> None:
    rows = Decoder(make_config("llama", init="scaled", n_embd=64, tie=True), seed=0).head.weight
    assert rows.std().item() == pytest.approx(1 / 8, rel=0.05)


def test_input_and_output_scale() -> None:
    plain, scaled = make_decoder("llama", tie=True), make_decoder("llama", tie=True, input_scale=4.0, output_scale=0.5)
    scaled.load_state_dict(plain.state_dict())
    ids = make_ids()
    assert torch.equal(scaled.embeddings(ids), 4 * plain.embeddings(ids))
    assert torch.equal(scaled.head(plain(ids)), plain.head(0.5 * plain(ids)))


@pytest.mark.parametrize("tie", [True, False])
def test_tie_survives_a_copy(tie: bool) -> None:
    decoder = copy.deepcopy(make_decoder("gpt", tie=tie)).double()
    assert (decoder.head.weight is decoder.embeddings.token_embedding.weight) == tie
    assert ("head.weight" in decoder.state_dict()) != tie
    assert decoder.logits(make_ids()).dtype == torch.float64


@pytest.mark.parametrize(
    ("architecture", "settings", "message"),
    [
        ("rnn", {}, "architecture is 'rnn'; it must be one of gpt, llama"),
        ("gpt", {"n_layer": 0}, "n_layer is 0"),
        ("gpt", {"vocab_size": True}, "vocab_size is True"),
        ("gpt", {"n_head": 5}, "n_embd 32 is not divisible by n_head 5"),
        ("llama", {"n_kv_head": 3}, "n_head 4 is not divisible by n_kv_head 3"),
        ("gpt", {"n_kv_head": 2}, "only llama has grouped-query attention"),
        ("gpt", {"positions": "rotary"}, "does not work with gpt; use learned or sinusoidal"),
        ("llama", {"positions": "learned"}, "does not work with llama; use rotary"),
        ("llama", {"dropout": 1.0}, "dropout is 1.0; it must be a number from 0 to 1, excluding 1"),
        ("llama", {"norm_eps": 0.0}, "norm_eps is 0.0; it must be a number of at least 0, excluding 0"),
        ("llama", {"output_scale": 0.0}, "output_scale is 0.0; it must be"),
        ("llama", {"input_scale": math.inf}, "input_scale is inf"),
        ("llama", {"output_scale": 10**400}, "output_scale is 1000"),
        ("llama", {"dropout": 1.5}, "dropout is 1.5; it must be a number from 0 to 1"),
        ("llama", {"dropout": "0.1"}, "dropout is '0.1'"),
        ("gpt", {"norm_eps": None}, "norm_eps is None"),
        ("gpt", {"positions": 3}, "positions is 3; it must be a string"),
        ("gpt", {"tie": "yes"}, "tie is 'yes'; it must be True or False"),
    ],
)
def test_invalid_config(architecture: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(architecture, **settings)


def test_derived_sizes() -> None:
    gpt, llama = make_config("gpt"), make_config("llama", n_embd=768, n_head=12)
    assert (gpt.hidden_width, gpt.kv_heads, gpt.head_dim, gpt.position_scheme) == (128, 4, 8, "learned")
    assert (llama.hidden_width, llama.kv_heads, llama.head_dim, llama.position_scheme) == (2048, 12, 64, "rotary")
    assert make_config("llama", n_inner=50).hidden_width == 50


# ---- generate


@two_variants
def test_generate_is_deterministic_and_within_the_vocabulary(architecture: str, settings: dict[str, Any]) -> None:
    decoder, ids = make_decoder(architecture, dropout=0.3, **settings).train(), make_ids(2, 4)
    made, same, other = (
        decoder.generate(ids, 25, top_k=20, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(made, same)
    assert not torch.equal(made, other)
    assert made.shape == (2, 29)
    assert torch.equal(made[:, :4], ids)
    assert 0 <= int(made.min()) <= int(made.max()) < VOCABULARY
    assert decoder.training  # restored


def test_greedy_generation() -> None:
    decoder, ids = make_decoder("llama"), make_ids(2, 3)
    expected = ids
    for _ in range(30):  # beyond block_size only the last tokens count
        expected = torch.cat((expected, decoder.logits(expected[:, -24:])[:, -1].argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(decoder.generate(ids, 30, temperature=0.0), expected)
    assert torch.equal(decoder.generate(ids, 30, top_k=1), expected)
    assert torch.equal(decoder.generate(ids, 30, temperature=1e-30), expected)


def test_padding_is_never_generated() -> None:
    decoder, ids = make_decoder("gpt", padding_idx=7), make_ids(4, 3)
    with torch.no_grad():
        decoder.head.weight[7] = 100 * decoder(ids)[0, -1]  # the most likely id
    assert int(decoder.logits(ids)[0, -1].argmax()) == 7
    assert not (decoder.generate(ids, 30)[:, 3:] == 7).any()


def test_sampling_follows_the_probabilities() -> None:
    decoder, ids = make_decoder("llama"), make_ids(1, 5)
    drawn = decoder.generate(ids.expand(4000, -1), 1, top_k=3, generator=torch.Generator().manual_seed(0))[:, -1]
    best = decoder.logits(ids)[0, -1].topk(3)
    shares = torch.stack([(drawn == candidate).float().mean() for candidate in best.indices])
    assert shares.sum() == 1
    torch.testing.assert_close(shares, best.values.softmax(0).detach(), rtol=0, atol=0.03)
