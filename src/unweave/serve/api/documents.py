"""What may be sent: every field has bounds, and none is unknown."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

__all__ = [
    "Asking",
    "Before",
    "Current",
    "HookBody",
    "Key",
    "Limit",
    "Listing",
    "ModelName",
    "PolicyBody",
    "Reason",
    "Registration",
    "Sequence",
    "TokenBody",
    "VersionName",
]

NAME, HEX = "^[a-z0-9][a-z0-9-]{0,63}$", "^[0-9a-f]{32}$"
LARGEST = 2**31 - 1
"""The largest number that a column of a database takes."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("there are characters in it that cannot be printed")
    return text


def _lines(text: str) -> str:
    _printable(text.replace("\n", "").replace("\r", "").replace("\t", ""))
    return text


Id = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(_printable)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(_lines)]
Place = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_printable)]
Seconds = Annotated[float, Field(ge=0, le=1e10)] | Annotated[str, StringConstraints(pattern=r"^[0-9.]{1,20}[smhd]$")]
Number = Annotated[int, Field(ge=1, le=LARGEST)]

ModelName = Annotated[str, Path(pattern=NAME, description="Of a model.")]
Key = Annotated[str, Path(pattern=HEX, description="As it was given when it was made.")]
VersionName = Annotated[str, Path(pattern="^(current|[1-9][0-9]{0,8})$", description="A number, or `current`.")]
Before = Annotated[int | None, Query(ge=0, le=LARGEST, description="What `next` of the page before said.")]
Sequence = Annotated[int, Query(ge=0, le=LARGEST, description="Entries that follow this one.")]
Limit = Annotated[int, Query(ge=1, le=200)]

State = Literal[
    "received", "waiting", "queued", "applied", "verified", "audited", "erased", "done", "refused", "aside", "open"
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


Value = Annotated[float, Field(allow_inf_nan=False)]
Row = Annotated[list[Value], Field(min_length=1, max_length=100_000)]
Columns = Annotated[dict[Id, Value], Field(min_length=1, max_length=100_000)]
Label = Annotated[int, Field(ge=0, le=LARGEST)] | Value | Row
Pair = Annotated[list[Id | Value], Field(min_length=2, max_length=3)]


class Newcomer(_Body):
    """Somebody new, with features as a row or by column, and neighbours by their ids."""

    id: Id
    features: Row | Columns
    label: Label | None = None
    mask: Literal["train", "val", "test"] | None = None
    edges: Annotated[
        list[Id | Annotated[list[Id | Value], Field(min_length=2, max_length=2)]], Field(max_length=10_000)
    ] = []


class Adding(_Body):
    """What comes."""

    nodes: Annotated[list[Newcomer], Field(max_length=10_000)] = []
    edges: Annotated[list[Pair], Field(max_length=10_000)] = []


class Correcting(_Body):
    """What is put right."""

    features: Annotated[dict[Id, Row | Columns], Field(max_length=10_000)] = {}
    labels: Annotated[dict[Id, Label], Field(max_length=10_000)] = {}
    edge_weights: Annotated[list[Pair], Field(max_length=10_000)] = []


class Asking(_Body):
    """What is to be forgotten, added and corrected, by the owner's ids."""

    subjects: Annotated[list[Id], Field(max_length=10_000)] = []
    edges: Annotated[list[Annotated[list[Id], Field(min_length=2, max_length=2)]], Field(max_length=10_000)] = []
    features: Annotated[
        dict[Id, Literal["all"] | Annotated[list[Id], Field(min_length=1, max_length=10_000)]],
        Field(max_length=10_000),
    ] = {}
    labels: Annotated[list[Id], Field(max_length=10_000)] = []
    add: Adding | None = None
    correct: Correcting | None = None
    note: Text | None = None


class PolicyBody(_Body):
    """How requests are carried out; what is left out is as by default."""

    method: Literal["auto", "certified", "gif", "replay", "retrace", "retrain"] = "auto"
    budget: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?%?$")] | None = None
    at_least: Annotated[float, Field(ge=0, le=1)] | None = None
    within: Seconds = 0.0
    batch: Annotated[int, Field(ge=1, le=10_000)] = 50
    deadline: Seconds = 30 * 86400.0
    screen: bool = True
    audit: Literal["off", "quick", "full"] = "off"
    keep: Annotated[int, Field(ge=0, le=1000)] = 0
    purge: bool = True
    memory_mib: Annotated[float, Field(gt=0, le=1e9)] | None = None

    def given(self) -> dict[str, Any]:
        """What was not left out."""
        return self.model_dump(exclude_unset=True)


class Registration(_Body):
    """A run that is to be known by a name; places are below the folder that the settings name."""

    name: Annotated[str, StringConstraints(pattern=NAME)]
    run: Place
    ids: Annotated[dict[Id, Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1)]
    columns: list[Id] = []
    policy: PolicyBody = PolicyBody()
    graph: Place | None = None


class Current(_Body):
    """Which version is to be served."""

    version: Number


class HookBody(_Body):
    """Who is told of new versions."""

    url: Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(_printable)]


class Reason(_Body):
    """Why a request is refused; it stays in the ledger, so it must name nobody."""

    reason: Text


class TokenBody(_Body):
    """A new token."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_printable)]
    scopes: Annotated[list[Literal["submit", "read", "operate", "administer"]], Field(min_length=1, max_length=4)]
    models: (
        Annotated[list[Annotated[str, StringConstraints(pattern=NAME)]], Field(min_length=1, max_length=1000)] | None
    ) = None
    seconds: Annotated[float, Field(gt=0, lt=100 * 366 * 86400)] | None = None


class Listing(BaseModel):
    """Which requests are to be listed."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, StringConstraints(pattern=NAME)] | None = None
    state: State | None = Field(None, description="`open` for all that have not ended.")
    before: Annotated[int, Field(ge=0, le=LARGEST)] | None = Field(None, description="`next` of the page before.")
    limit: Annotated[int, Field(ge=1, le=200)] = 50
