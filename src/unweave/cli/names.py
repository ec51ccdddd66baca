"""Names and numbers that the help speaks of, spelled out so that it needs no torch. A test holds them true."""

__all__ = ["DATA", "DELETIONS", "EXPERIMENTS", "LEAST_ROUNDS", "METHODS", "MODELS"]

DATA = (
    *("demo", "cora", "citeseer", "pubmed", "cs", "physics", "photo", "computers", "dblp", "wordnet"),
    *("mutag", "proteins", "lastfm"),
)
MODELS = ("gat", "gcn", "gin", "lightgcn", "linker", "pooled-sign", "sage", "sgc", "sign")
METHODS = (
    "auto",
    "certified",
    "closed-form",
    "eraser-bekm",
    "eraser-blpa",
    "finetune",
    "gif",
    "gif-published",
    "if",
    "lbfgs",
    "none",
    "replay",
    "retrace",
    "retrain",
)
EXPERIMENTS = ("table2", "efficacy", "ratio", "scale", "ablation", "setups", "erasers")
DELETIONS = 24
LEAST_ROUNDS = 5
