"""Rules for the weight decay: what they choose, and that they are judged by nodes that they have not seen."""

import decays
import pytest
import torch
from decays import RULES, Told, judged, lowest_loss


def told(right: int, loss: float, nodes: int = 100) -> Told:
    return Told(torch.arange(nodes) < right, torch.full((nodes,), loss))


def test_rules_choose_what_they_say() -> None:
    known = {1e-2: told(80, 0.9), 1e-3: told(88, 0.5), 1e-4: told(90, 0.6), 1e-5: told(91, 0.4)}
    assert {name: rule(known) for name, rule in RULES.items()} == {
        "F1 within a standard error, largest decay": 1e-4,  # three nodes fewer are more than √3 of them, one is not
        "F1 within half of one, largest decay": 1e-5,
        "highest F1": 1e-5,
        "lowest loss": 1e-3,  # the next one is no better
    }
    assert lowest_loss({1e-2: told(80, 0.9), 1e-3: told(80, 0.8)}) == 1e-3


def test_a_rule_is_judged_by_nodes_that_it_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that chooses by luck is lucky with the nodes it saw alone."""
    monkeypatch.setattr(decays, "HALVES", 50)
    generator = torch.Generator().manual_seed(0)
    known = {10.0**-n: Told(torch.rand(400, generator=generator) < 0.5, torch.rand(400)) for n in range(30)}
    lucky = judged(known)["rules"]["highest F1"]
    assert float(known[lucky["decay"]].right.double().mean()) > 0.55
    assert lucky["f1"] < 0.53
