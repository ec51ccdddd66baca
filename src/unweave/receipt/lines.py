"""A receipt as lines under titles: what everybody has to know first, what an expert wants to know under *Details*."""

from typing import Any

from unweave._core.text import printable
from unweave.receipt.changed import OF_TYPE, describe_asked, describe_changed
from unweave.receipt.record import Record
from unweave.receipt.traces import Trace
from unweave.receipt.words import grounds, verdict
from unweave.request import Request

__all__ = ["DETAILS", "describe_graph", "describe_region", "describe_removed", "describe_traces", "lines"]

Line = tuple[str, str]

DETAILS = "Details"
"""The title after which come lines that only an expert needs."""


def lines(record: Record) -> list[Line]:
    """Titles and texts; a line without a title goes on the one before."""
    ladder = record.ladder
    told = [
        ("Verdict", verdict(record)),
        *_request(record),
        ("Issued", f"{record.time} by unweave {record.version}"),
        *(_done(record) if record.carried_out else []),
        *([("Screened", str(record.screening["statement"]))] if record.screening else []),
        *([] if ladder is None else _under("Because", grounds(ladder, record.remembers, record.certificate))),
        *describe_traces(record.remembers),
        *_under("Warning", record.warnings),
        *_details(record),
    ]
    return [(title, printable(text)) for title, text in told]


def _request(record: Record) -> list[Line]:
    """What was asked, as it was received, and by whom."""
    if record.kind not in ("request", "change"):
        return []
    change = record.kind == "change"
    what = describe_asked(record.asked) if change else Request.from_dict(record.asked).describe()
    asked = f"{what}  ({record.kind} {str(record.request_digest)[:12]})"
    found = [("Asked", asked if record.id is None else f"{record.id}: {asked}")]
    found += [("Note", record.note)] if record.note else []
    if record.status != "done":
        found.append(("Status", record.status + (f": {record.reason}" if record.reason and record.carried_out else "")))
    return found


def _done(record: Record) -> list[Line]:
    """What went; of a change also what came and what was corrected."""
    if record.kind == "change":
        return describe_changed(record.removed)
    return [("Forgotten", describe_removed(record.removed))]


def _details(record: Record) -> list[Line]:
    """What only an expert needs."""
    found = [
        *([("Graph", describe_graph(record.graph))] if record.graph.get("stored_edges_before") is not None else []),
        *([("Affected", describe_region(record.region, shared=_shared(record)))] if record.region else []),
        *([("Method", _method(record))] if record.method else []),
        *_solved(record),
        *_moved(record),
        *([("Objective", _objective(record))] if record.method or record.objective else []),
        *([("How near", _nearness(record))] if record.method or record.objective else []),
        *([("Certified", _certified(record.certificate))] if record.certificate else []),
        *([("Cost", _cost(record))] if record.passes else []),
        *([("Follows", f"receipt {record.previous[:12]}")] if record.previous else []),
        *([("About", ", ".join(f"receipt {digest[:12]}" for digest in record.speaks_of))] if record.speaks_of else []),
    ]
    return [(DETAILS, ""), *found] if found else []


def _solved(record: Record) -> list[Line]:
    if not record.solve:
        return []
    settings = ", ".join(f"{k} {_short(v)}" for k, v in record.solve["settings"].items())
    text = f"{record.solve['solver']} ({settings}): {record.solve['iterations']} iterations"
    return [("Solved", f"{text}, the linear system to {record.solve['relative_residual']:.2g}")]


def _moved(record: Record) -> list[Line]:
    if not record.carried_out or "count" not in record.parameters:
        return []
    known = record.parameters
    share = record.step_norm / max(known["norm_before"], 1e-30)
    text = f"{known['count']:,} parameters by {record.step_norm:.4g} ({share:.2%} of their length)"
    return [("Moved", f"{text}; {known['digest_before'][:12]} → {known['digest_after'][:12]}")]


def _certified(certificate: dict[str, Any]) -> str:
    text, together = str(certificate["statement"]), certificate.get("together")
    if not together:
        return text
    return f"{text}; all {together['models']} models since training seen together: ε {together['epsilon']:.3g}"


def _objective(record: Record) -> str:
    before, after = (record.objective.get(f"remaining_{when}") for when in ("before", "after"))
    if after is None:
        return "not evaluated"
    moved = record.objective.get("function_change")
    return (
        ("" if before is None else f"{before:.6g} → ")
        + f"{after:.6g} on the remaining graph"
        + (f"; outputs there moved by {moved:.3g} nats on average" if moved is not None else "")
        + _terms(record.objective)
    )


def _terms(objective: dict[str, Any]) -> str:
    """Of which loss and weight decay an objective is the sum, in words; nothing where a receipt does not say."""
    if "weight_decay" not in objective:
        return ""
    decay = objective["weight_decay"]
    if isinstance(decay, dict):
        decay = decay.get("source") or ", ".join(f"{name} {value:g}" for name, value in decay.items()) or "none"
    return f"; {objective['loss']}, weight decay {decay if isinstance(decay, str) else f'{decay:g}'}"


def _method(record: Record) -> str:
    details = ", ".join(f"{key.replace('_', ' ')} {_short(value)}" for key, value in record.details.items())
    return str(record.method["name"]) + (f" ({details})" if details else "")


def _nearness(record: Record) -> str:
    if record.nearness is not None or record.anew:
        return record.nearness or "this is the retrained model itself"
    if record.status == "unverified":
        return "unverified: run `unweave verify RUN` (in Python, Run.verify)"
    left, together = record.residual_influence, len(record.speaks_of)
    if left is None and "local_change" not in record.objective:
        return "not measured"
    if left is None:
        return "no training loss depends on what was removed, so there is no influence to measure"
    larger = ", larger than before" if left > 1 else ""
    return (
        f"residual {left:.3f} of the undamped local problem (1 = nothing done, 0 = solved){larger}"
        + (f", of {together} requests together. " if together > 1 else ". ")
        + "The distance to a retrained model was not measured here; a rehearsal (Run.rehearse) measures it"
    )


def _cost(record: Record) -> str:
    text = f"{record.seconds['total']:.3g} s, {_number(record.passes)} passes over the graph"
    if "device_name" not in record.environment:
        return text
    where = f"{record.environment['device_name']} ({record.environment['device']})"
    return f"{text}, peak {record.peak_mib:.0f} MiB on {where}"


def describe_removed(removed: dict[str, int]) -> str:
    """What a request takes, in words."""
    types = {key.removeprefix(OF_TYPE): number for key, number in removed.items() if key.startswith(OF_TYPE)}
    went = [
        *([_count(number, name) for name, number in types.items()] or [_count(removed["nodes"], "node")]),
        _count(removed["edges"], "edge"),
        f"the features of {_count(removed['feature_rows'], 'node')}" if removed["feature_rows"] else "",
        _count(removed["labels"], "label"),
    ]
    rows = f"; {_count(removed['rows'], 'row')} of embedding tables set to zero" if removed.get("rows") else ""
    return ", ".join(filter(None, went)) + ("; deleted nodes take theirs along" if removed["nodes"] else "") + rows


def describe_graph(graph: dict[str, Any]) -> str:
    """The size of a graph before and after, in words."""
    return (
        f"{graph['nodes']:,} nodes, {graph['stored_edges_before']:,} → {graph['stored_edges_after']:,} stored "
        f"edges, {graph['training_nodes_before']:,} → {graph['training_nodes_after']:,} training nodes"
    )


def _shared(record: Record) -> bool:
    """Whether something that all nodes share moved beside the parameters."""
    return any(t["what"] == "running statistics" and t["state"] == "rewritten" for t in record.remembers)


def describe_region(region: dict[str, Any], *, shared: bool = False) -> str:
    """The nodes that a request reaches by messages, in words; ``shared`` where running statistics move with it."""
    if region["steps"] is None:
        return f"the whole graph is taken as affected ({region['source']})"
    hops = " + ".join(f"{n:,}" for n in region["sizes"])
    return (
        f"{region['nodes']:,} nodes are reached by messages, {region['training_nodes']:,} of them in "
        f"training ({hops} by hops 0 … {region['steps']}; {region['source']})"
        + (f"; {region['halo_nodes']:,} nodes were looked at" if "halo_nodes" in region else "")
        + (f"; {region['rows']:,} rows were looked at" if "rows" in region else "")
        + (f", {region['rows_recomputed']:,} computed anew" if "rows_recomputed" in region else "")
        + ("; running statistics moved for every node" if shared else "")
    )


def describe_traces(remembers: list[Trace]) -> list[Line]:
    """What is gone, what was made anew and what still remembers, in words, under a title each."""
    found = []
    for state, title in (("purged", "Purged"), ("rewritten", "Rewritten"), ("kept", "Remembers")):
        found += _under(title, [f"{t['what']} ({t['where']}): {t['why']}" for t in remembers if t["state"] == state])
    return found


def _under(title: str, texts: list[str]) -> list[Line]:
    return [(title if i == 0 else "", text) for i, text in enumerate(texts)]


def _count(number: int, noun: str) -> str:
    if not number:
        return ""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _number(passes: float) -> str:
    return str(passes) if isinstance(passes, int) else f"{passes:.3g}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
