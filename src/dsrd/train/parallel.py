"""Training in several processes: all observe every event and ask the same questions, each answers its share.

The questions of a batch are drawn alike in all processes (`asks`). Each process scores its share of them and
computes the gradient of that share's loss; the sum over all processes is the gradient of the whole batch. It is
the same to the last bit in all of them, and so are the weights after every step of the optimiser, of which every
process has its own. Observing events is a hundredth of the work: every process does all of it, and states need
not be exchanged.

Without dropout, N processes train what one does, up to rounding. With dropout each process draws masks of its own:
another draw of the same law, the same in every run with as many processes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsrd.data.dataset import digest_of_tensors
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.nn.dropout import Dropout
from dsrd.processes import Processes


def join(model: TemporalModel, processes: Processes) -> None:
    """Start from the weights of the first process, with dropout masks of this one's own."""
    if processes.count == 1:
        return
    if type(model).loss is not TemporalModel.loss:
        raise DsrdError(
            f"{type(model).__name__}: has a `loss` of its own, which cannot be shared out; write `asks` instead, "
            "or train in one process"
        )
    for part in model.modules():
        if isinstance(part, Dropout):
            part.rank = processes.rank
    with torch.no_grad():
        for weight in model.state_dict().values():
            weight.copy_(processes.copy_first_(weight.detach().clone().contiguous()))


def backward(
    model: TemporalModel, batch: Events, negatives: TrainingNegatives, past: Past, processes: Processes
) -> float:
    """The loss of a batch; its gradient is left in the parameters. Every process computes a share of both."""
    if processes.count == 1:
        loss = model.loss(batch, negatives, past)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.item())
    asked = model.asks(batch, negatives)
    loss = model.loss_of([each.share(processes.rank, processes.count) for each in asked], past)
    loss.backward()  # type: ignore[no-untyped-call]
    return sum_gradients(model, loss.detach(), processes)


@torch.no_grad()
def sum_gradients(model: TemporalModel, loss: Tensor, processes: Processes) -> float:
    """Sum the gradients of all processes in one message; returns the sum of the losses.

    A parameter that no process has a gradient of gets none, as in a single process: the optimiser leaves it alone.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    reached = torch.tensor([weight.grad is not None for weight in weights])
    parts = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
    flat = [part.reshape(-1).float().cpu() for part in (*parts, reached, loss)]
    total = torch.split(processes.sum_(torch.cat(flat)), [len(part) for part in flat])
    *gradients, reached_anywhere, losses = total
    for weight, gradient, here in zip(weights, gradients, reached_anywhere.tolist(), strict=True):
        weight.grad = gradient.view_as(weight).to(weight) if here else None
    return float(losses)


def start_epoch(processes: Processes) -> None:
    """Every process continues from the random state of the first one, which is the one that is saved."""
    if processes.count > 1:
        torch.set_rng_state(processes.copy_first_(torch.get_rng_state()))


def end_epoch(model: TemporalModel, processes: Processes) -> None:
    """An error if the processes have not come to the same weights."""
    if processes.count > 1:
        weights = model.state_dict()
        digest = digest_of_tensors(*(weights[name].cpu() for name in sorted(weights)))
        processes.check_equal(torch.tensor(list(digest.encode())), "after an epoch, the weights of the model")
