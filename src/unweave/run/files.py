"""The files of a run: what each holds, and how a run is put together from them again.

On disk a run is a folder of safetensors and JSON, written beside its place and moved there in one step
(:mod:`unweave.run.folder`). ``manifest.json`` holds the digest of every file, so a truncated or edited one is noticed.
Who can write the folder can write those digests as well, so what a file says is checked before it is used: kinds of
values, sizes, and that the parts fit each other. Nothing in a run is ever executed.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors, save as save_tensors
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.digest import graph_digest, to_json
from unweave._core.kinds import check_fields, fits
from unweave._core.text import printable
from unweave.curvature.prepared import Prepared
from unweave.datasets import load
from unweave.errors import DataError, MethodError, ModelError, RequestError, RunError
from unweave.graph.edit import MASKS
from unweave.graph.index import is_undirected
from unweave.graph.removal import remove
from unweave.methods.ladder.calibration import Calibration
from unweave.objective.losses import AnyLoss
from unweave.objective.objective import Forward
from unweave.objective.parameters import trained
from unweave.run.config import Config, GraphConfig, built, loss_of, read_json
from unweave.run.folder import read_folder
from unweave.run.receipts import Receipts
from unweave.run.state import Origin, State
from unweave.training.checkpoints import Checkpoint, read_checkpoints, write_checkpoints
from unweave.training.recipe import Training

__all__ = ["MALFORMED", "calibration_in", "files_of", "metrics_in", "state_of", "tensors_in", "training_in"]

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What goes wrong where a document is read as what it is not."""

REFUSED = (*MALFORMED, SafetensorError, DataError, MethodError, ModelError, RequestError)


def files_of(state: State) -> dict[str, bytes]:
    """A run as files, by name; its receipts are added to those that are there (:mod:`unweave.run.receipts`)."""
    data = state.data
    split = {
        mask.removesuffix("_mask"): data[mask].nonzero().flatten().tolist()
        for mask in MASKS
        if data.get(mask) is not None
    }
    weights = {key: value.detach().cpu().contiguous().clone() for key, value in state.model.state_dict().items()}
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
        config, metrics = Config.read(files["config.json"]), metrics_in(files)
        training, calibration, checkpoints = training_in(files, config), calibration_in(files), _checkpoints(files)
        loss = loss_of(config.loss, loss)
        module = built(config.model, tensors_in(files, "weights.safetensors"), model)
        prepared = _prepared(files, module)
    except RunError as error:
        raise RunError(f"{path}: {error}") from error
    except REFUSED as error:
        raise RunError(f"{path} does not hold what a run holds: {printable(str(error))}") from error
    graph = _remaining(path, config.data, receipts, data, root)
    return State(
        model=module,
        graph=graph,
        training=training,
        metrics=metrics,
        receipts=receipts,
        prepared=None if prepared is None else prepared.on(graph, loss, forward),
        loss=loss,
        forward=forward,
        checkpoints=checkpoints,
        origin=Origin(path, len(receipts), opened.digest),
        calibration=calibration,
        seed=config.seed,
    )


def tensors_in(files: Mapping[str, bytes], name: str) -> dict[str, Tensor]:
    """The tensors of a file; none where there is no such file."""
    return load_tensors(files[name]) if name in files else {}


def metrics_in(files: Mapping[str, bytes]) -> dict[str, float]:
    """The scores of a run."""
    metrics = read_json(files["metrics.json"])
    if not fits(metrics, dict[str, float]):
        raise TypeError("metrics.json holds something else than numbers by name")
    return dict(metrics)


def training_in(files: Mapping[str, bytes], config: Config) -> Training:
    """How the model was trained."""
    training = Training.from_dict(config.training, tensors_in(files, "decay.safetensors"))
    if training.recipe is not None:
        check_fields(training.recipe)
    return training


def calibration_in(files: Mapping[str, bytes]) -> Calibration | None:
    """What was measured, where it was."""
    if "calibration.json" not in files:
        return None
    found = Calibration.from_dict(read_json(files["calibration.json"]))
    check_fields(found)
    for deletion in found.deletions:
        if min(deletion.shape.shares) < 0 or (deletion.rungs and not (deletion.gap > 0 and deletion.shape.size > 0)):
            raise ValueError("calibration.json has a deletion of no size, or with nothing to close")
    return found


def _checkpoints(files: Mapping[str, bytes]) -> tuple[Checkpoint, ...]:
    found = read_checkpoints(files) if "checkpoints.json" in files else ()
    for state in found:
        check_fields(state)
    return found


def _prepared(files: Mapping[str, bytes], model: nn.Module) -> Prepared | None:
    """The prepared state, of the size that the model has."""
    if "prepared.json" not in files:
        return None
    found = Prepared.from_files(files)
    check_fields(found)
    size, rank = sum(p.numel() for p in trained(model).values()), found.curvature.values.numel()
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "gradient": (found.gradient, (size,)),
        "values": (found.curvature.values, (rank,)),
        "vectors": (found.curvature.vectors, (size, rank)),
    }
    if found.pending is not None:
        shapes |= {"pull": (found.pending.pull, (size,)), "step": (found.pending.step, (size,))}
    for name, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape or not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name!r} of the prepared state has not the numbers that belong to {size:,} parameters")
    if not rank or not bool((found.curvature.values > 0).all()) or min(found.edges, found.nodes, found.age) < 0:
        raise ValueError("the prepared state has no curvature, or sizes below 0")
    return found


def _remaining(path: Path, known: GraphConfig, receipts: Receipts, given: Data | None, root: str | Path | None) -> Data:
    """The graph as the run left it: what is given or stored, without all that the run's requests took, at once."""
    graph = given
    if graph is None:
        if known.name is None:
            raise RunError(f"{path} was made with a graph of your own; pass it as data=")
        if known.split_seed is None or known.split_seed < 0:
            raise RunError(f"{path} does not hold what a run holds: {known.split_seed!r} is no seed of a split")
        graph = load(known.name, seed=known.split_seed, root=root)
    wrong = RunError(
        f"the graph is not the one that {path} was made with; give as data= the original graph, or the one that "
        "remained"
    )
    if graph_digest(graph) == known.digest:
        return graph
    try:
        request = receipts.taken.as_request(undirected=is_undirected(graph))
        graph = graph if request is None else remove(graph, request).data
    except (*MALFORMED, RequestError) as error:
        raise wrong from error
    if graph_digest(graph) != known.digest:
        raise wrong
    return graph
