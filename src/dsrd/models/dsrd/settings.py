"""What can be set in DSRD, and which of its learned constants an ablation leaves unused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Ablation = Literal["none", "no_block", "no_temporal_decay", "no_diffusion", "no_state"]
IDLE: Mapping[Ablation, tuple[str, ...]] = {  # constants that an ablation leaves where they started
    "none": (),
    "no_block": ("lambda", "alpha", "gamma", "delta"),
    "no_temporal_decay": ("lambda", "alpha"),
    "no_diffusion": ("delta",),
    "no_state": ("gamma", "delta"),
}


@dataclass(frozen=True, kw_only=True)
class DSRDConfig:
    state: Literal["walks", "dense"] = "walks"  # walks: codes of identities; dense: the paper's matrices
    dim: int = 32  # width of tokens and of what the layers make of a node
    heads: int = 4
    layers: int = 2
    neighbors: int = 20  # events in a node's window
    code_dim: int = 128  # signs in a node's code: more, and the walk counts are less noisy (walks)
    precision: Literal["float32", "bfloat16"] = "float32"  # of walks kept; bfloat16 halves a node's bytes (walks)
    scales: tuple[float, ...] = (1e-4, 1e-2, 1.0)  # of walks, in shares of the training stream's events (walks)
    count_scales: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of exact counts, likewise (walks)
    time_dim: int = 32  # features of an age; of walks half cosines, half soft steps
    dropout: float = 0.1
    pair_random: float = 0.25  # weight of a random negative in the pair head's loss, a pair that met has 1 (walks)
    pair_unmet: float = 0.25  # what is left of that weight while nobody has met the random target (walks)
    stretch: float = 1.0  # of ages in windows while training, by exp(stretch * normal), one draw a batch (walks)
    ablate: Ablation = "none"  # leave one part out
