"""One of two processes that compute gradients together: `python -m support.two_processes FOLDER RANK COUNT`.

For every model that learns, the gradients of three training steps. Written to `gradients-RANK.safetensors`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from conformance.conftest import build, make_stream, parted, variants
from dsrd.history.past import Past
from dsrd.models import TemporalModel, model_class
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.processes import Processes, connected
from dsrd.train import checkpoint, parallel

SIZES = (151, 48, 1)  # of the batches: uneven shares, and one that cannot be shared out


def learned_variants() -> list[str]:
    return [name for name in variants() if not model_class(parted(name)[0]).card.rule]


def trained(name: str, processes: Processes) -> dict[str, Tensor]:
    """Gradients and loss of each step, and the weights after all steps."""
    stream = make_stream()
    model: TemporalModel = build(name, stream).train()
    parallel.join(model, processes)
    past = Past(stream.events, edge_x=stream.edge_x, node_x=stream.node_x)
    negatives = TrainingNegatives(stream.events, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(3)
    start, losses, found = 0, [], dict[str, Tensor]()
    for number, size in enumerate(SIZES):
        batch = stream.events[start : start + size]
        optimizer.zero_grad()
        losses.append(parallel.backward(model, batch, negatives, past.during(batch), processes))
        found |= {
            f"{number}.{weight_name}": weight.grad.clone()
            for weight_name, weight in model.named_parameters()
            if weight.grad is not None
        }
        model.observe(batch, past)
        optimizer.step()
        model.state.detach_()
        start += size
    weights = {f"weight.{weight_name}": weight.clone() for weight_name, weight in model.state_dict().items()}
    return {**found, **weights, "losses": torch.tensor(losses)}


def main() -> None:
    folder, processes = Path(sys.argv[1]), Processes(int(sys.argv[2]), int(sys.argv[3]))
    with connected(processes, folder / "meeting"):
        found = {name: trained(name, processes) for name in learned_variants()}
    checkpoint.save(folder / f"gradients-{processes.rank}.safetensors", found, {})


if __name__ == "__main__":
    main()
