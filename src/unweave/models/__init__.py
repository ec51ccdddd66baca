"""The four backbones of the paper, on PyG's layers; any other module works as well."""

from unweave.models.gat import GAT
from unweave.models.gcn import GCN
from unweave.models.gin import GIN
from unweave.models.sgc import SGC

__all__ = ["GAT", "GCN", "GIN", "MODELS", "SGC"]

MODELS = {"gat": GAT, "gcn": GCN, "gin": GIN, "sgc": SGC}
"""Built-in models by the name the command line uses; each is called with (features, classes)."""
