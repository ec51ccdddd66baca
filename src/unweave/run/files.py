"""The files of a run: what each holds, and how a run is put together from them again.

On disk a run is a folder of safetensors and JSON, written beside its place and moved there in one step
(:mod:`unweave.run.folder`). ``manifest.json`` holds the digest of every file, so a truncated or edited one is noticed.
Nothing in a run is ever executed.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors, save as save_tensors
from torch import nn
from torch_geometric.data import Data

from unweave._core.digest import graph_digest, to_json
from unweave.curvature.prepared import Prepared
from unweave.datasets import load
from unweave.errors import MethodError, RequestError, RunError
from unweave.graph.removal import MASKS, remove
from unweave.methods.ladder.calibration import Calibration
from unweave.models import MODELS
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward
from unweave.receipt.receipt import Receipt
from unweave.request import Request
from unweave.run.folder import read_folder
from unweave.training.adam import Recipe
from unweave.training.checkpoints import read_checkpoints, write_checkpoints

if TYPE_CHECKING:
    from unweave.run.run import Run

__all__ = ["files_of", "parts_of"]

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def files_of(run: "Run") -> dict[str, bytes]:
    """A run as files, by name."""
    name = next((key for key, cls in MODELS.items() if type(run.model) is cls), None)
    config = {
        "data": {
            "name": run.data.get("name"),
            "split_seed": run.data.get("split_seed"),
            "nodes": int(run.data.num_nodes),
            "digest": graph_digest(run.data),
        },
        "model": {
            "name": name or type(run.model).__qualname__,
            "built_in": name is not None,
            "config": run.model.config if name else None,
        },
        "recipe": asdict(run.recipe),
        "loss": _name(run.loss),
    }
    split = {
        mask.removesuffix("_mask"): run.data[mask].nonzero().flatten().tolist()
        for mask in MASKS
        if run.data.get(mask) is not None
    }
    weights = {key: value.detach().cpu().contiguous().clone() for key, value in run.model.state_dict().items()}
    files = {
        "weights.safetensors": save_tensors(weights),
        "config.json": to_json(config),
        "split.json": to_json(split),
        "metrics.json": to_json(dict(run.metrics)),
    }
    if run.prepared is not None:
        files |= run.prepared.to_files()
    if run.checkpoints:
        files |= write_checkpoints(run.checkpoints)
    if run.calibration is not None:
        files["calibration.json"] = to_json(run.calibration.to_dict())
    for number, receipt in enumerate(run.receipts, start=1):
        files[f"receipts/{number:04d}.json"] = to_json(receipt.to_dict())
    return files


def parts_of(
    path: Path,
    model: nn.Module | None,
    data: Data | None,
    root: str | Path | None,
    loss: Loss,
    forward: Forward,
) -> dict[str, Any]:
    """The parts of the run in a folder, by the names of its attributes; see :meth:`unweave.Run.open`."""
    files = read_folder(path)
    try:
        config, metrics = json.loads(files["config.json"]), json.loads(files["metrics.json"])
        recipe = Recipe(**config["recipe"])
        receipts = tuple(Receipt.from_json(files[n].decode()) for n in sorted(files) if n.startswith("receipts/"))
        requests = [Request.from_dict(receipt.request) for receipt in receipts]
        module = _module(path, config["model"], model)
        prepared = Prepared.from_files(files) if "prepared.json" in files else None
        states = read_checkpoints(files) if "checkpoints.json" in files else ()
        measured = files.get("calibration.json")
        calibration = None if measured is None else Calibration.from_json(measured)
    except (*MALFORMED, SafetensorError, RequestError, MethodError) as error:
        raise RunError(f"{path} does not hold what a run holds: {error}") from error
    if config["loss"] != _name(loss):
        raise RunError(f"{path} was trained with the loss {config['loss']!r}; pass it as loss=")
    graph = _remaining(path, config["data"], requests, data, root)
    try:
        module.load_state_dict(load_tensors(files["weights.safetensors"]))
    except (RuntimeError, SafetensorError) as error:
        raise RunError(f"the weights of {path} do not fit the model: {error}") from error
    return {
        "model": module.eval(),
        "graph": graph,
        "recipe": recipe,
        "metrics": metrics,
        "receipts": receipts,
        "prepared": None if prepared is None else prepared.on(graph, loss, forward),
        "loss": loss,
        "forward": forward,
        "checkpoints": states,
        "origin": (path, len(receipts)),
        "calibration": calibration,
    }


def _remaining(
    path: Path, known: dict[str, Any], requests: list[Request], given: Data | None, root: str | Path | None
) -> Data:
    """The graph as the run left it, from what is given or stored, with the requests carried out where they are not."""
    graph = given
    if graph is None:
        if known["name"] is None:
            raise RunError(f"{path} was made with a graph of your own; pass it as data=")
        graph = load(known["name"], seed=known["split_seed"], root=root)
    wrong = RunError(
        f"the graph is not the one that {path} was made with; give as data= the original graph, or the one that "
        "remained"
    )
    for request in requests if graph_digest(graph) != known["digest"] else []:
        try:
            graph = remove(graph, request).data
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


def _name(loss: Loss) -> str:
    return getattr(loss, "__name__", type(loss).__name__)
