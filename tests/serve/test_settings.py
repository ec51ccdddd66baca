"""Settings from a file, the environment and the command line."""

from pathlib import Path

import pytest

from unweave.errors import ServiceError
from unweave.serve.policy import Policy
from unweave.serve.settings import Settings


def test_the_later_come_before_the_earlier(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text('home = "/srv/a"\nport = 1\nworkers = 3\nrate = 2\nlogs = "text"\n')
    given = {"UNWEAVE_SERVE_PORT": "2", "UNWEAVE_SERVE_RATE": "0.5", "UNWEAVE_SERVE_BEHIND_PROXY": "true", "OTHER": "x"}
    found = Settings.read(file, given, workers=4, host=None)
    assert (found.home, found.port, found.workers, found.rate) == (Path("/srv/a"), 2, 4, 0.5)
    assert (found.behind_proxy, found.logs, found.host) == (True, "text", "127.0.0.1")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"UNWEAVE_SERVE_PORT": "many"}, "the setting port"),
        ({"UNWEAVE_SERVE_PORT": "70000"}, "the setting port"),
        ({"UNWEAVE_SERVE_PROT": "1"}, "there is no setting 'prot'"),
        ({"UNWEAVE_SERVE_BEHIND_PROXY": "perhaps"}, "the setting behind_proxy"),
        ({"UNWEAVE_SERVE_HOST": "0.0.0.0"}, "over the network"),
        ({"UNWEAVE_SERVE_CERTIFICATE": "c.pem"}, "both certificate and private_key"),
        ({"UNWEAVE_SERVE_LOGS": "xml"}, "the setting logs"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ServiceError, match=told):
        Settings.read(None, given)


def test_beyond_this_machine_it_wants_tls_or_a_word() -> None:
    assert Settings(host="::1").local
    assert not Settings(host="0.0.0.0", behind_proxy=True).local
    assert Settings(host="0.0.0.0", certificate=Path("c"), private_key=Path("k"))


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"within": "tomorrow"}, "a time is"),
        ({"within": -1}, "within must be"),
        ({"batch": 0}, "batch must be"),
        ({"batch": True}, "batch must be"),
        ({"budget": "cheap"}, "budget must be"),
        ({"budget": "5%", "method": "gif"}, "with the method auto"),
        ({"at_least": 1.5}, "at_least must be"),
        ({"method": "none"}, "method must be"),
        ({"purge": 1}, "purge must be"),
        ({"speed": 1}, "no 'speed'"),
        ({"deadline": float("nan")}, "deadline|a time"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(document: dict[str, object], told: str) -> None:
    with pytest.raises(ServiceError, match=told):
        Policy.of(document)


def test_a_policy_is_read_back_as_it_is() -> None:
    policy = Policy.of({"within": "24h", "deadline": "30d", "budget": "5%", "at_least": 0.9})
    assert (policy.within, policy.deadline) == (86400.0, 2592000.0)
    assert Policy.read(policy.text) == policy
