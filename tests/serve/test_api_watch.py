"""What whoever watches over a service sees of it: health, metrics, its log; and errors without internals."""

import logging
from collections.abc import Iterator

import pytest

from tests.serve.web import V1, Web, problem
from unweave.serve import database, queue
from unweave.serve.service import Service


@pytest.fixture
def web(shop: Service) -> Web:
    return Web(shop)


def test_health_needs_no_token_and_sees_the_database(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweave.serve.api.health.KEPT", 0.0)
    assert web.get("/health", by=None) == {"ok": True}
    with database.writing(web.service.engine) as connection:
        connection.exec_driver_sql(f"UPDATE {database.VERSION} SET version_num = '0001'")
    assert "version" in problem(web("GET", "/health", by=None), 503)["detail"]


def test_metrics_name_models_and_routes_but_nobody(web: Web) -> None:
    name = web.submit("person-3").json()["id"]
    web("GET", f"requests/{name}")
    text = web("GET", "/metrics", by="read").text
    assert 'unweave_requests{model="shop",state="received"} 1.0' in text
    assert 'unweave_oldest_open_seconds{model="shop"}' in text
    assert "unweave_deliveries_pending 0.0" in text
    route = 'method="GET",route="/api/v1/requests/{request}",status="200"'
    assert f"unweave_http_answers_total{{{route}}} 1.0" in text
    assert "unweave_http_seconds_bucket" in text
    assert name not in text
    web("BREW", "/coffee")
    web("GET", "/strange/address")
    text = web("GET", "/metrics").text
    assert 'method="other"' in text
    assert "strange" not in text
    problem(web("GET", "/metrics", by=None), 401)
    problem(web("GET", "/metrics", by="submit"), 403)


@pytest.fixture
def lost(web: Web) -> Iterator[Web]:
    """A service whose tables are gone."""
    with database.writing(web.service.engine) as connection:
        connection.exec_driver_sql("ALTER TABLE requests RENAME TO elsewhere")
    yield web
    with database.writing(web.service.engine) as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO requests")


def test_a_database_that_does_not_serve_is_told_without_internals(lost: Web) -> None:
    found = problem(lost("GET", "requests"), 503)
    assert found["detail"] == "the database does not serve now; try again later"


def test_the_log_has_no_token_no_id_and_no_query(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unweave.serve")
    name = web.submit("person-3").json()["id"]
    web("GET", f"requests/{name}?secret=1")
    web("GET", f"requests?model=shop&before={2**31 - 1}")
    facts = [vars(record)["facts"] for record in caplog.records if record.message == "answered"]
    assert [fact["route"] for fact in facts] == [
        f"{V1}/models/{{model}}/requests", f"{V1}/requests/{{request}}", f"{V1}/requests",
    ]  # fmt: skip
    told = caplog.text + str([vars(record) for record in caplog.records])
    assert not [part for part in (name, "person-3", "secret", "before", *web.tokens.values()) if part in told]


def test_an_error_that_nobody_foresaw_is_told_without_internals(
    web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue, "listed", lambda *_, **__: [].pop())
    answer = web("GET", "requests")
    assert problem(answer, 500)["detail"] == "something went wrong in the service; its log says more"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "pop from empty list" in caplog.text
