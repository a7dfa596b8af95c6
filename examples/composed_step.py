"""One optimizer step in pool order and in composed waves: loss and gradients are the same.

python examples/composed_step.py    # needs torch; the model is small and runs on the CPU
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from waveplan import Planner, Requests, Sequences, Topology, Training, attention_slices, models
from waveplan.wave import Wave

VOCAB, WIDTH = 64, 32


class Model(nn.Module):
    """One attention layer over packed tokens, which attend as `attention_slices` says."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(512, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return logits [T, vocabulary] of T packed tokens; mask [T, T]: True where one attends."""
        x = self.embed(tokens) + self.place(positions)
        scores = self.query(x) @ self.key(x).T / WIDTH**0.5
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        return self.head(x + weights @ self.value(x))


def wave_loss(
    model: Model, wave: Wave, sequences: Sequences, advantage: torch.Tensor, tokens_of_step: int
) -> torch.Tensor:
    """Return the wave's part of the step's loss, which is divided by the tokens of the step."""
    total = torch.zeros((), dtype=torch.float64)
    for pack in wave.packs:
        packing = pack.packing
        tokens = np.empty(packing.packed_tokens, np.int64)
        for i, request in enumerate(pack.requests):
            tokens[packing.positions(i)] = sequences[request]
        mask = np.zeros((len(tokens), len(tokens)), bool)
        starts, lengths = packing.packed_starts, packing.lengths
        for query, key in zip(*attention_slices(packing), strict=True):
            q = slice(starts[query], starts[query] + lengths[query])
            k = slice(starts[key], starts[key] + lengths[key])
            mask[q, k] = np.tri(lengths[query], dtype=bool) if query == key else True
        positions = torch.from_numpy(packing.position_ids)
        logits = model(torch.from_numpy(tokens), positions, torch.from_numpy(mask))
        for i, request in enumerate(pack.requests):
            at = torch.from_numpy(packing.positions(i))
            losses = nn.functional.cross_entropy(
                logits[at[:-1]], torch.from_numpy(tokens)[at[1:]], reduction="sum"
            )
            total = total + advantage[request] * losses / tokens_of_step
    return total


def step(waves: Iterable[Wave], sequences: Sequences) -> tuple[float, list[torch.Tensor], int]:
    """Return loss, gradients and number of waves of one step, all gradients accumulated."""
    torch.manual_seed(0)
    model = Model().double()
    advantage = torch.linspace(-1, 1, len(sequences), dtype=torch.float64)
    loss, count = 0.0, 0
    for wave in waves:
        part = wave_loss(model, wave, sequences, advantage, len(sequences.tokens))
        part.backward()
        loss, count = loss + part.item(), count + 1
    return loss, [parameter.grad for parameter in model.parameters()], count


def main() -> None:
    """Run the step both ways and compare."""
    random = np.random.default_rng(1)
    prompts = [random.integers(0, VOCAB, 80) for _ in range(4)]
    sequences = Sequences.from_any(
        [np.append(prompts[i % 4], random.integers(0, VOCAB, 20 + i)) for i in range(24)]
    )
    requests = Requests(sequences)
    facts = models.get("qwen3-0.6b"), Topology(), Training(lora_rank=8)
    whole = Planner(*facts, "64GiB").plan(requests).required
    least = max(Planner(*facts, "64GiB").plan([sequence]).required for sequence in sequences)
    planner = Planner(*facts, least + (whole - least) // 3)
    kept = step(planner.waves(requests), sequences)
    free = step(planner.waves(planner.compose(requests)), sequences)
    apart = max(float((a - b).abs().max()) for a, b in zip(kept[1], free[1], strict=True))
    print(f"{kept[2]} waves in order, {free[2]} composed")
    print(f"loss {kept[0]:.12f} and {free[0]:.12f}; gradients differ by {apart:.1e} at most")
    assert abs(kept[0] - free[0]) < 1e-10
    assert apart < 1e-12


if __name__ == "__main__":
    main()
