"""What is answered."""

from typing import Any

from pydantic import BaseModel

__all__ = [
    "Checkpointed",
    "Entries",
    "EntryAnswer",
    "HealthAnswer",
    "HookAnswer",
    "Hooks",
    "LedgerAnswer",
    "ModelAnswer",
    "Models",
    "NewHook",
    "NewToken",
    "Paper",
    "Papers",
    "RequestAnswer",
    "Requests",
    "Submitted",
    "TokenAnswer",
    "Tokens",
    "Told",
    "Verification",
    "VersionAnswer",
    "Versions",
    "Whole",
]


class ModelAnswer(BaseModel):
    """A model: its current version, how many requests it carried out, and how many it has in each state."""

    name: str
    current: int
    weights: str
    forgot: int
    policy: dict[str, Any]
    columns: list[str]
    requests: dict[str, int]
    oldest_open: str | None
    at: str


class Models(BaseModel):
    """All models that a token is for."""

    items: list[ModelAnswer]


class VersionAnswer(BaseModel):
    """A version; of a purged one the files are gone."""

    number: int
    current: bool
    weights: str
    forgot: int
    facts: dict[str, Any]
    at: str
    purged: bool


class Versions(BaseModel):
    """Versions, the newest first; ``next`` is the ``before`` of the next page."""

    items: list[VersionAnswer]
    next: str | None


class HookAnswer(BaseModel):
    """An address that is told of new versions."""

    id: str
    url: str
    made: str


class NewHook(HookAnswer):
    """The same, with the secret that its deliveries are signed with: it is shown this once."""

    secret: str


class Hooks(BaseModel):
    """All hooks of a model."""

    items: list[HookAnswer]


class RequestAnswer(BaseModel):
    """A request; ``age`` and ``left`` are seconds, and ``left`` until the deadline is of one that has not ended."""

    id: str
    model: str
    state: str
    words: str
    at: str
    age: float
    deadline: str
    left: float | None
    counts: dict[str, int]
    version: int | None
    reason: str | None
    token: str | None


class Requests(BaseModel):
    """Requests, the newest first; ``next`` is the ``before`` of the next page."""

    items: list[RequestAnswer]
    next: str | None


class Submitted(RequestAnswer):
    """A request as it was taken; ``gone`` are ids that earlier requests had taken already."""

    gone: list[str]
    new: bool


class Told(BaseModel):
    """An entry of the ledger that tells of a request."""

    sequence: int
    at: str
    kind: str
    body: dict[str, Any]


class Whole(RequestAnswer):
    """All that is known of a request; what was asked only as long as that is known, and to operators."""

    timeline: list[Told]
    asked: dict[str, Any] | None = None


class Paper(BaseModel):
    """A receipt; the digest is of its text, which the evidence has."""

    digest: str
    receipt: dict[str, Any]


class Papers(BaseModel):
    """The receipts of a request."""

    items: list[Paper]


class LedgerAnswer(BaseModel):
    """The ledger: who knows ``first_key`` from elsewhere knows whose it is."""

    id: str
    entries: int
    head: str
    first_key: str
    checkpoint: str


class EntryAnswer(BaseModel):
    """An entry as it was signed, without what is personal."""

    entry: dict[str, Any]
    signature: str


class Entries(BaseModel):
    """Entries in their order; ``next`` is the ``after`` of the next page."""

    items: list[EntryAnswer]
    next: str | None


class Checkpointed(BaseModel):
    """A checkpoint, to be kept elsewhere as it is."""

    checkpoint: dict[str, Any]


class Verification(BaseModel):
    """Whether the ledger is in order, and where not."""

    in_order: bool
    entries: int | None = None
    head: str | None = None
    first_key: str | None = None
    wrong: str | None = None


class TokenAnswer(BaseModel):
    """A token, without what would let anybody use it."""

    id: str
    name: str
    scopes: list[str]
    models: list[str] | None
    made: str
    expires: str | None
    revoked: bool


class NewToken(BaseModel):
    """A token, which is shown this once."""

    id: str
    token: str


class Tokens(BaseModel):
    """All tokens."""

    items: list[TokenAnswer]


class HealthAnswer(BaseModel):
    """Whether the service can work."""

    ok: bool
