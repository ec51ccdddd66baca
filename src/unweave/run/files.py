"""The files of a run: what each holds, and how a run is put together from them again.

On disk a run is a folder of safetensors and JSON, written beside its place and moved there in one step
(:mod:`unweave.run.folder`); what it tells by itself is read in :mod:`unweave.run.peek`, and here becomes a run.
"""

from pathlib import Path

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.document import to_json
from unweave.datasets import load
from unweave.errors import ModelError, RequestError, RunError
from unweave.graph.edit import MASKS
from unweave.graph.removal import take
from unweave.graph.view import GraphView, as_view, digest_of, labels_of
from unweave.objective.losses import AnyLoss, as_loss
from unweave.objective.objective import Forward
from unweave.objective.parameters import trained
from unweave.run.config import Config, GraphConfig, built, loss_of
from unweave.run.peek import MALFORMED, check_prepared, peek, refusing
from unweave.run.receipts import Receipts
from unweave.run.state import Origin, State
from unweave.training.checkpoints import write_checkpoints

__all__ = ["files_of", "state_of"]


def files_of(state: State) -> dict[str, bytes]:
    """A run as files, by name; its receipts are added to those that are there (:mod:`unweave.run.receipts`)."""
    data = labels_of(state.whole)
    split = {
        mask.removesuffix("_mask"): data[mask].nonzero().flatten().tolist()
        for mask in MASKS
        if data.get(mask) is not None
    }
    weights = {key: _dense(key, value).cpu().contiguous().clone() for key, value in state.model.state_dict().items()}
    files = {
        "weights.safetensors": save_tensors(weights),
        "config.json": to_json(Config.of(state).to_dict()),
        "split.json": to_json(split),
        "metrics.json": to_json(dict(state.metrics)),
    }
    if decays := state.training.to_tensors():
        files["decay.safetensors"] = save_tensors(decays)
    if state.prepared is not None:
        files |= state.prepared.to_files()
    if state.checkpoints:
        files |= write_checkpoints(state.checkpoints)
    if state.calibration is not None:
        files["calibration.json"] = to_json(state.calibration.to_dict())
    return files


def _dense(name: str, value: Tensor) -> Tensor:
    """A weight that safetensors can hold."""
    if value.layout is not torch.strided:
        raise ModelError(
            f"{name} of the model is sparse ({value.layout}), and a run is stored as dense tensors; keep its indices "
            "and values as two buffers, or register it with persistent=False and build it anew when the run is opened"
        )
    return value.detach()


def state_of(
    path: Path,
    model: nn.Module | None,
    data: Data | None,
    root: str | Path | None,
    loss: AnyLoss | None,
    forward: Forward,
) -> State:
    """The run in a folder; see :meth:`unweave.Run.open`."""
    kept, given = peek(path), None if loss is None else as_loss(loss)
    with refusing(path):
        loss = loss_of(kept.config.loss, given)
        module = built(kept.config.model, kept.weights, model)
        if kept.prepared is not None:
            check_prepared(kept.prepared, sum(p.numel() for p in trained(module).values()))
    graph = _remaining(path, kept.config.data, kept.receipts, data, root)
    return State(
        model=module,
        graph=graph,
        training=kept.training,
        metrics=kept.metrics,
        receipts=kept.receipts,
        prepared=None if kept.prepared is None else kept.prepared.on(graph, loss, forward),
        loss=loss,
        forward=forward,
        checkpoints=kept.checkpoints,
        origin=Origin(path, len(kept.receipts), kept.digest),
        calibration=kept.calibration,
        seed=kept.config.seed,
    )


def _remaining(
    path: Path, known: GraphConfig, receipts: Receipts, given: Data | None, root: str | Path | None
) -> Data | GraphView:
    """The graph as the run left it: what is given or stored, without all that the run's requests took, at once."""
    taken, changed = receipts.taken_since
    now = "the graph as it is now (Run.data of the run that was saved), or as it was after the last change"
    if changed and given is None:
        raise RunError(
            f"data was added to the graph of {path}, or corrected in it, and a run does not hold it; pass as data= "
            f"(--data) {now}"
        )
    graph: Data | GraphView | None = given
    if graph is None:
        if known.name is None:
            raise RunError(f"{path} was made with a graph of your own; pass it as data= (--data FILE or FOLDER)")
        if known.split_seed is None or known.split_seed < 0:
            raise RunError(f"{path} does not hold what a run holds: {known.split_seed!r} is no seed of a split")
        graph = load(known.name, seed=known.split_seed, root=root)
    wrong = RunError(
        f"the graph{'' if given is not None else f' {known.name}'} is not the one that {path} was made with; give as "
        "data= (--data) the original graph, or the one that remained"
        if not changed
        else f"the graph is not the one that {path} was left with; give as data= (--data) {now}"
    )
    if digest_of(graph) == known.digest:
        return graph
    view = as_view(graph)
    try:
        request = taken.as_request(undirected=view.undirected)
        graph = graph if request is None else take(view, request)[0]
        if isinstance(graph, GraphView) and digest_of(graph) != known.digest:
            graph = graph.data  # a run that was not in bounded memory had it built
    except (*MALFORMED, RequestError) as error:
        raise wrong from error
    if digest_of(graph) != known.digest:
        raise wrong
    return graph
