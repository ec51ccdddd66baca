"""How a service is run: from a file, the environment, and the command line, the later before the earlier."""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from unweave.errors import ServiceError

__all__ = ["Settings"]

PREFIX = "UNWEAVE_SERVE_"


@dataclass(frozen=True)
class Settings:
    """What can be set.

    Attributes:
        home: Folder of the service.
        database: URL of its database, where that is not SQLite in the folder. It may hold a password: give it by the
            environment, and it is in no list of processes.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        workers: Processes that carry requests out, beside the one that answers.
        device: Where they compute: ``cpu``, ``cuda``, ``cuda:1``.
        certificate: File with the certificate for TLS.
        private_key: File with its key.
        behind_proxy: The explicit word that a proxy in front has TLS; without TLS it is needed to be reached by others.
        runs: Folder whose runs may be registered by the API; by default only the command line registers.
        rate: Requests a second that one token, or one address without a token, may send over a while.
        burst: And at once.
        body_kib: Longest body of a request, in KiB.
        logs: ``json``, one document a line, or ``text``.
    """

    home: Path = Path("service")
    database: str | None = None
    host: str = "127.0.0.1"
    port: int = 8722
    workers: int = 1
    device: str = "cpu"
    certificate: Path | None = None
    private_key: Path | None = None
    behind_proxy: bool = False
    runs: Path | None = None
    rate: float = 50.0
    burst: int = 200
    body_kib: int = 1024
    logs: str = "json"

    def __post_init__(self) -> None:
        wrong = next((name for name, fine in self._checks().items() if not fine), None)
        if wrong is not None:
            raise ServiceError(f"the setting {wrong} cannot be {getattr(self, wrong)!r}", status=422)
        if (self.certificate is None) != (self.private_key is None):
            raise ServiceError("TLS needs both certificate and private_key", status=422)
        if not self.local and self.certificate is None and not self.behind_proxy:
            raise ServiceError(
                f"listening on {self.host} would send tokens over the network as they are: give certificate and "
                "private_key, or say behind_proxy where a proxy in front has TLS",
                status=422,
            )

    def _checks(self) -> dict[str, bool]:
        return {
            "port": type(self.port) is int and 0 <= self.port < 65536,
            "workers": type(self.workers) is int and 0 <= self.workers <= 64,
            "host": isinstance(self.host, str) and bool(self.host),
            "rate": isinstance(self.rate, int | float) and self.rate > 0,
            "burst": type(self.burst) is int and self.burst > 0,
            "body_kib": type(self.body_kib) is int and self.body_kib > 0,
            "logs": self.logs in ("json", "text"),
            "behind_proxy": isinstance(self.behind_proxy, bool),
        }

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def read(cls, file: str | Path | None = None, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Settings from all three places.

        Args:
            file: A TOML file with some of them.
            environment: Variables such as ``UNWEAVE_SERVE_PORT``; those of the process by default.
            given: Those of the command line; ``None`` for what was not given.

        Raises:
            ServiceError: One is not known, or cannot be what it is.
        """
        found: dict[str, Any] = {}
        if file is not None:
            try:
                found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise ServiceError(f"cannot read settings from {file}: {error}", status=422) from error
        variables = os.environ if environment is None else environment
        found |= {key[len(PREFIX) :].lower(): value for key, value in variables.items() if key.startswith(PREFIX)}
        found |= {key: value for key, value in given.items() if value is not None}
        known = {field.name: getattr(field.type, "__name__", str(field.type)) for field in fields(cls)}
        if strange := sorted(set(found) - set(known)):
            raise ServiceError(f"there is no setting {strange[0]!r}; there are {', '.join(known)}", status=422)
        return cls(**{key: _as(value, known[key], key) for key, value in found.items()})


def _as(value: Any, kind: str, name: str) -> Any:
    """A value as its setting takes it; texts come from the environment."""
    try:
        if "Path" in kind:
            return Path(value)
        if isinstance(value, str) and kind == "bool":
            return {"1": True, "true": True, "0": False, "false": False}[value.lower()]
        if isinstance(value, str) and kind in ("int", "float"):
            return {"int": int, "float": float}[kind](value)
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError(f"the setting {name} cannot be {value!r}", status=422) from error
    return value
