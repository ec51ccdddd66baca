"""What moves a model when it forgets: the forces behind a request, and the nodes behind each force.

Usage: python examples/explain.py [OUT.png]
"""

import sys
from pathlib import Path

import unweave as uw
from unweave.experiments.plots import plot_explanation


def main() -> None:
    data = uw.load("demo", seed=0)
    model = uw.models.GCN(data.num_features, data.num_classes)
    uw.train(model, data, seed=0, weight_decay=1e-4)
    found = uw.explain(model, data, uw.draw("nodes:0.02", data), weight_decay=1e-4)
    print(found)
    plot_explanation(found, Path(sys.argv[1] if len(sys.argv) > 1 else "explain.png"))


if __name__ == "__main__":
    main()
