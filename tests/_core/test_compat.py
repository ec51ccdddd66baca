"""Private names of torch and PyG are used in one file, and nothing is wrong where they are missing."""

import ast
from pathlib import Path

import pytest
import torch

import unweave
import unweave.models
from unweave._core import compat
from unweave.testing import small_graph

SOURCE = Path(unweave.__file__).parent
FOREIGN = {"torch", "nn", "F", "pyg", "torch_geometric"}
THEIRS = ("_version", "_cdata")


def private_names(path: Path) -> set[str]:
    """Underscored names that are imported or read from torch or PyG, and attributes known to be theirs."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOREIGN:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found |= {name for name in names if name.startswith("_")}
        if isinstance(node, ast.Attribute):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            foreign = isinstance(root, ast.Name) and root.id in FOREIGN
            if node.attr in THEIRS or (foreign and node.attr.startswith("_") and not node.attr.endswith("__")):
                found.add(node.attr)
    return found


def test_private_names_are_used_in_one_file() -> None:
    found = {path: private_names(path) for path in SOURCE.rglob("*.py")}
    assert len(found.pop(SOURCE / "_core" / "compat.py")) >= 2
    assert {str(path): names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("missing", ["_is_wrapped", "_outside"])
def test_without_a_name_the_models_take_the_way_of_pyg(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    data = small_graph()
    model = unweave.models.GCN(8, 3).eval()
    known = model(data.x, data.edge_index)
    monkeypatch.setattr(compat, missing, None)
    assert compat.transformed(data.x)
    with compat.outside_transforms():
        torch.testing.assert_close(model(data.x, data.edge_index), known)


def test_leaves_are_those_of_nested_lists_and_dictionaries() -> None:
    assert list(compat.leaves(([1, {"a": (2, None)}], {}))) == [1, 2, None]
