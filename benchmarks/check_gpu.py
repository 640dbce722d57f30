"""Does a GPU give what the CPU gives? Scores, losses and gradients of every model that learns. JSON output.

    python benchmarks/check_gpu.py

No release of dsrd has been run on a GPU: without one, this script says so and checks nothing. With one, it exits
with 1 if any relative difference is above 1e-3.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import torch
from torch import Tensor

import dsrd
from dsrd.data.dataset import Dataset
from dsrd.history.past import Past
from dsrd.models import GraphSpec, TemporalModel, create, model_class, names, settings
from dsrd.negatives.sampling import TrainingNegatives

MOST = 1e-3  # relative difference that float32 and another order of sums explain


def built(name: str, stream: Dataset) -> TemporalModel:
    """The small variant of a model, calibrated; without dropout, whose masks differ between devices."""
    torch.manual_seed(0)
    graph = GraphSpec(num_nodes=stream.num_nodes, node_dim=stream.node_dim, edge_dim=stream.edge_dim)
    model = create(name, graph, settings(name, stream.name, "default", model_class(name).card.small))
    model.calibrate(stream.events[:400])
    return model


def results(name: str, stream: Dataset, device: str) -> dict[str, Tensor]:
    """Scores, loss and gradients after a state of 400 events, on a device."""
    model = built(name, stream).to(device)
    past = Past(stream.events, edge_x=stream.edge_x, node_x=stream.node_x).to(device)
    with torch.no_grad():
        for batch in stream.events[:400].batches(50):
            model.observe(batch.to(device), past)
        score = model.eval().score(stream.events[400:500].query().to(device), past)
    torch.manual_seed(1)
    batch = stream.events[400:450]
    loss = model.train().loss(batch, TrainingNegatives(stream.events, 0), past.during(batch))
    loss.backward()
    grads = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    found = {"score": score, "loss": loss.detach().reshape(1), "gradient": torch.cat(grads)}
    return {key: value.double().cpu() for key, value in found.items()}


def differences(name: str, stream: Dataset, device: str) -> dict[str, Any]:
    """Relative differences between the CPU and a device; the error if the device cannot compute it at all."""
    try:
        here, there = (results(name, stream, each) for each in ("cpu", device))
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return {"failed": str(error).splitlines()[0]}
    return {key: float((there[key] - here[key]).norm() / here[key].norm().clamp(min=1e-9)) for key in here}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", default="synth:events=1000")
    arguments = parser.parse_args()
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        print("there is no GPU that torch can use on this machine: nothing was checked")
        return
    stream = dsrd.load(arguments.data)
    learned = [name for name in names() if not model_class(name).card.rule]
    found = {name: differences(name, stream, arguments.device) for name in learned}
    print(json.dumps({"benchmark": "check_gpu", "device": arguments.device, "differences": found}))
    wrong = [name for name, each in found.items() if "failed" in each or max(each.values()) > MOST]
    if wrong:
        print(f"differs from the CPU: {', '.join(wrong)}")
        sys.exit(1)
    print(f"all {len(found)} models give what they give on the CPU")


if __name__ == "__main__":
    main()
