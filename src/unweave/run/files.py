"""The files of a run: what each holds, and how a run is put together from them again.

On disk a run is a folder of safetensors and JSON, written beside its place and moved there in one step
(:mod:`unweave.run.folder`). ``manifest.json`` holds the digest of every file, so a truncated or edited one is noticed.
Nothing in a run is ever executed.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors, save as save_tensors
from torch import nn
from torch_geometric.data import Data

from unweave._core.digest import graph_digest, to_json
from unweave.curvature.prepared import Prepared
from unweave.datasets import load
from unweave.errors import MethodError, ModelError, RequestError, RunError
from unweave.graph.edit import MASKS
from unweave.graph.index import is_undirected
from unweave.graph.removal import remove
from unweave.methods.ladder.calibration import Calibration
from unweave.models import MODELS
from unweave.objective.losses import AnyLoss, as_loss, known_loss
from unweave.objective.objective import Forward
from unweave.run.folder import read_folder
from unweave.run.receipts import Receipts
from unweave.run.state import Origin, State
from unweave.training.checkpoints import read_checkpoints, write_checkpoints
from unweave.training.recipe import Training

__all__ = ["files_of", "state_of"]

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def files_of(state: State) -> dict[str, bytes]:
    """A run as files, by name; its receipts are added to those that are there (:mod:`unweave.run.receipts`)."""
    name = next((key for key, cls in MODELS.items() if type(state.model) is cls), None)
    config = {
        "data": {
            "name": state.data.get("name"),
            "split_seed": state.data.get("split_seed"),
            "nodes": int(state.data.num_nodes),
            "digest": graph_digest(state.data),
        },
        "model": {
            "name": name or type(state.model).__qualname__,
            "built_in": name is not None,
            "config": state.model.config if name else None,
        },
        "training": state.training.to_dict(),
        "seed": state.seed,
        "loss": state.loss.settings,
    }
    split = {
        mask.removesuffix("_mask"): state.data[mask].nonzero().flatten().tolist()
        for mask in MASKS
        if state.data.get(mask) is not None
    }
    weights = {key: value.detach().cpu().contiguous().clone() for key, value in state.model.state_dict().items()}
    files = {
        "weights.safetensors": save_tensors(weights),
        "config.json": to_json(config),
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


def state_of(
    path: Path,
    model: nn.Module | None,
    data: Data | None,
    root: str | Path | None,
    loss: AnyLoss | None,
    forward: Forward,
) -> State:
    """The run in a folder; see :meth:`unweave.Run.open`."""
    opened = read_folder(path)
    files, receipts = opened.files, Receipts(opened.receipts)
    try:
        config, metrics = json.loads(files["config.json"]), json.loads(files["metrics.json"])
        decays = load_tensors(files["decay.safetensors"]) if "decay.safetensors" in files else None
        training, seed = Training.from_dict(config["training"], decays), int(config["seed"])
        module = _module(path, config["model"], model)
        prepared = Prepared.from_files(files) if "prepared.json" in files else None
        states = read_checkpoints(files) if "checkpoints.json" in files else ()
        measured = files.get("calibration.json")
        calibration = None if measured is None else Calibration.from_json(measured)
        told = config["loss"]
        loss = known_loss(told) if loss is None else as_loss(loss)
    except (*MALFORMED, SafetensorError, RequestError, MethodError, ModelError) as error:
        raise RunError(f"{path} does not hold what a run holds: {error}") from error
    if loss is None or loss.settings != told:
        raise RunError(f"{path} was trained with the loss {told!r}; pass it as loss=")
    graph = _remaining(path, config["data"], receipts, data, root)
    try:
        module.load_state_dict(load_tensors(files["weights.safetensors"]))
    except (RuntimeError, SafetensorError) as error:
        raise RunError(f"the weights of {path} do not fit the model: {error}") from error
    return State(
        model=module.eval(),
        graph=graph,
        training=training,
        metrics=metrics,
        receipts=receipts,
        prepared=None if prepared is None else prepared.on(graph, loss, forward),
        loss=loss,
        forward=forward,
        checkpoints=states,
        origin=Origin(path, len(receipts), opened.digest),
        calibration=calibration,
        seed=seed,
    )


def _remaining(
    path: Path, known: dict[str, Any], receipts: Receipts, given: Data | None, root: str | Path | None
) -> Data:
    """The graph as the run left it: what is given or stored, without all that the run's requests took, at once."""
    graph = given
    if graph is None:
        if known["name"] is None:
            raise RunError(f"{path} was made with a graph of your own; pass it as data=")
        graph = load(known["name"], seed=known["split_seed"], root=root)
    wrong = RunError(
        f"the graph is not the one that {path} was made with; give as data= the original graph, or the one that "
        "remained"
    )
    if graph_digest(graph) == known["digest"]:
        return graph
    try:
        request = receipts.taken.as_request(undirected=is_undirected(graph))
        graph = graph if request is None else remove(graph, request).data
    except RequestError as error:
        raise wrong from error
    if graph_digest(graph) != known["digest"]:
        raise wrong
    return graph


def _module(path: Path, known: dict[str, Any], given: nn.Module | None) -> nn.Module:
    if given is not None:
        return given
    if not known["built_in"]:
        raise RunError(f"{path} holds a model of your own ({known['name']}); pass one as model=")
    built: nn.Module = MODELS[known["name"]](**known["config"])
    return built
