"""The API from a submission to its evidence, on SQLite and on PostgreSQL."""

import hashlib
import io
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.serve.test_service import work
from tests.serve.web import V1, Web, problem
from unweave.serve import database, queue
from unweave.serve.api.documents import PolicyBody, State
from unweave.serve.ledger import read_checkpoint
from unweave.serve.policy import Policy
from unweave.serve.service import Service
from unweave.serve.tables import models
from unweave.serve.tokens import new_token


@pytest.fixture
def web(shop: Service) -> Web:
    return Web(shop)


def test_a_request_is_followed_from_submission_to_evidence(web: Web) -> None:
    taken = web.submit("person-3", by="submit")
    assert taken.status_code == 202
    said = taken.json()
    assert (said["state"], said["new"], said["gone"], said["counts"]) == ("received", True, [], {"subjects": 1})
    assert taken.headers["location"] == f"{V1}/requests/{said['id']}"
    shown = web.get(taken.headers["location"])
    assert shown["asked"]["subjects"] == ["person-3"]
    assert shown["left"] > 29 * 86400
    assert 0 <= shown["age"] < 60
    assert problem(web("GET", f"requests/{said['id']}/evidence"), 409)["detail"].endswith("once it has ended")
    assert web.get(f"requests/{said['id']}/receipts") == {"items": []}
    work(web.service)
    done = web.get(f"requests/{said['id']}", by="submit")
    assert (done["state"], done["words"], done["version"], done["left"]) == ("done", "is done", 2, None)
    assert [each["kind"] for each in done["timeline"]][-1] == "request done"
    assert web.get(f"requests/{said['id']}")["asked"] is None
    paper = web.get(f"requests/{said['id']}/receipts", by="submit")["items"][0]
    assert "verdict" in paper["receipt"]
    assert "request" not in paper["receipt"], "a receipt is of a batch, and names nodes of others"
    paper = web.get(f"requests/{said['id']}/receipts", by="read")["items"][0]
    assert paper["receipt"]["request"]["nodes"] == [3]
    problem(web("GET", f"requests/{said['id']}/audit"), 404)
    evidence = web("GET", f"requests/{said['id']}/evidence", by="operate")
    assert evidence.headers["content-type"] == "application/zip"
    assert f"receipts/{paper['digest']}.json" in zipfile.ZipFile(io.BytesIO(evidence.content)).namelist()


def test_what_was_asked_is_for_operators_alone(web: Web) -> None:
    name = web.submit("person-3", by="submit").json()["id"]
    assert web.get(f"requests/{name}", by="submit")["asked"] is None
    assert web.get(f"requests/{name}", by="read")["asked"] is None
    both = new_token(web.service, "both", ["read", "operate"])[1]
    assert web.get(f"requests/{name}", by=both)["asked"]["subjects"] == ["person-3"]
    assert "person" not in web("GET", f"requests/{name}", by="read").text


def test_who_submits_sees_their_own_alone(web: Web) -> None:
    mine = web.submit("person-3", by="submit").json()["id"]
    other = web.submit("person-4").json()["id"]
    assert [each["id"] for each in web.get("requests", by="submit")["items"]] == [mine]
    assert [each["id"] for each in web.get("requests", by="read")["items"]] == [other, mine]
    for path in ("", "/receipts"):
        problem(web("GET", f"requests/{other}{path}", by="submit"), 404)


def test_the_same_key_is_answered_with_the_same_request(web: Web) -> None:
    key = {"Idempotency-Key": "mail 7"}
    first, again = web.submit("person-3", headers=key), web.submit("person-3", headers=key)
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["id"] == again.json()["id"]
    assert not again.json()["new"]
    assert web.submit("person-3", headers=key, by="submit").status_code == 202, "a key belongs to a token"
    problem(web.submit("person-4", headers=key), 422)
    for wrong in ("", "x" * 201, "tab\there", "caf\xe9"):
        sent = {"Idempotency-Key": wrong.encode("latin-1")}
        problem(web.submit("person-3", headers=sent), 422)


def test_ids_that_are_gone_or_were_never_there(web: Web) -> None:
    web.submit("person-3")
    work(web.service)
    again = web.submit("person-3")
    assert (again.status_code, again.json()["state"], again.json()["gone"]) == (200, "done", ["person-3"])
    assert web.submit("person-3", "person-4").json()["gone"] == ["person-3"]
    assert problem(web.submit("person-4", "nobody"), 422)["unknown"] == ["nobody"]
    wrong = web("POST", "models/shop/requests", json={"features": {"person-4": ["age"]}})
    assert problem(wrong, 422)["unknown_columns"] == ["age"]


def test_requests_are_listed_by_page_and_by_filter(web: Web) -> None:
    names = [web.submit(f"person-{node}").json()["id"] for node in range(5)][::-1]
    found, page = list[str](), dict[str, Any](next=2**31 - 1)
    while page["next"] is not None:
        page = web.get(f"requests?limit=2&before={page['next']}")
        found += [each["id"] for each in page["items"]]
    assert found == names
    assert len(web.get("requests?state=open&model=shop")["items"]) == 5
    assert web.get("requests?state=done") == {"items": [], "next": None}
    problem(web("GET", "requests?model=nothing"), 404)
    for wrong in ("state=lost", "limit=0", "limit=201", "before=-1", "before=99999999999", "stat=open", "model=%00"):
        problem(web("GET", f"requests?{wrong}"), 422)
    assert set(get_args(State)) == {*queue.STATES, "open"}


def test_operators_decide(web: Web) -> None:
    name = web.submit("person-3").json()["id"]
    assert "only one that is waiting" in problem(web("POST", f"requests/{name}/approve"), 409)["detail"]
    problem(web("POST", f"requests/{name}/retry"), 409)
    answer = web("POST", f"requests/{name}/refuse", json={"reason": "not theirs"}, by="operate")
    assert (answer.json()["state"], answer.json()["reason"]) == ("refused", "not theirs")
    for moved, state in (("approve", "waiting"), ("retry", "aside")):
        name = web.submit("person-4").json()["id"]
        with database.writing(web.service.engine) as connection:
            queue.move(connection, queue.one(connection, name), state)
        assert web("POST", f"requests/{name}/{moved}").json()["state"] == "queued"
        told = web.get(f"requests/{name}")["timeline"][-1]
        assert told["body"]["by"] in {each["id"] for each in web.get("tokens")["items"] if each["name"] == "all"}


def test_versions_and_weights(web: Web) -> None:
    first = web("GET", "models/shop/versions/1/weights", by="read")
    assert hashlib.sha256(first.content).hexdigest() == first.headers["etag"].strip('"')
    web("PUT", "models/shop/policy", json={"method": "gif", "screen": False, "keep": 1})
    web.submit("person-3")
    work(web.service)
    page = web.get("models/shop/versions?limit=1")
    assert [(each["number"], each["current"], each["purged"]) for each in page["items"]] == [(2, True, False)]
    rest = web.get(f"models/shop/versions?limit=1&before={page['next']}")
    assert [each["number"] for each in rest["items"]] == [1]
    assert rest["next"] is None
    current = web("GET", "models/shop/versions/current/weights", by="operate")
    assert current.headers["unweave-version"] == "2"
    assert current.headers["etag"] == f'"{page["items"][0]["weights"]}"' != first.headers["etag"]
    for said in (current.headers["etag"], f'"x", W/{current.headers["etag"]}', "*"):
        same = web("GET", "models/shop/versions/2/weights", headers={"If-None-Match": said})
        assert (same.status_code, same.content) == (304, b"")
    problem(web("PUT", "models/shop/current", json={"version": 1}), 409)
    assert web("PUT", "models/shop/current", json={"version": 2}, by="operate").json()["current"] == 2
    web("PUT", "models/shop/policy", json={"method": "gif", "screen": False})
    web.submit("person-4")
    work(web.service)
    problem(web("GET", "models/shop/versions/1/weights"), 410)
    problem(web("GET", "models/shop/versions/9/weights"), 404)


def test_weights_that_were_changed_on_disk_are_not_given_out(web: Web) -> None:
    [path] = web.service.folder("shop").glob("*/run/weights.safetensors")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "changed on disk" in problem(web("GET", "models/shop/versions/1/weights"), 500)["detail"]
    path.unlink()
    problem(web("GET", "models/shop/versions/1/weights"), 503)


def test_models_and_their_policies(web: Web) -> None:
    [model] = web.get("models", by="read")["items"]
    assert (model["name"], model["current"], model["forgot"], model["requests"]) == ("shop", 1, 0, {})
    web.submit("person-3")
    shown = web.get("models/shop")
    assert shown["requests"] == {"received": 1}
    assert shown["oldest_open"] is not None
    changed = web("PUT", "models/shop/policy", json={"within": "24h", "batch": 7}, by="administer").json()
    assert (changed["policy"]["within"], changed["policy"]["batch"]) == (86400.0, 7)
    assert "certified" in problem(web("PUT", "models/shop/policy", json={"method": "certified"}), 422)["detail"]
    for wrong in ({"batch": 0}, {"batch": True}, {"within": "1x"}, {"budget": "5%", "method": "gif"}, {"extra": 1}):
        problem(web("PUT", "models/shop/policy", json=wrong), 422)
    defaults = {name: field.default for name, field in PolicyBody.model_fields.items()}
    assert asdict(Policy()) == defaults


def test_a_run_is_registered_below_the_folder_of_runs_alone(web: Web, trained: Path, tmp_path: Path) -> None:
    body = {"name": "books", "run": "run", "graph": "graph.safetensors", "ids": {"a": 0, "b": 1}}
    assert "command line" in problem(web("POST", "models", json=body), 403)["detail"]
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "run").symlink_to(trained / "run")
    web = Web(web.service, runs=runs)
    problem(web("POST", "models", json=body), 422)  # a link leads out of it
    web = Web(web.service, runs=trained)
    made = web("POST", "models", json=body, by="administer")
    assert (made.status_code, made.headers["location"]) == (201, f"{V1}/models/books")
    assert web.get("models/books")["current"] == 1
    problem(web("POST", "models", json=body), 409)
    new = body | {"name": "more"}
    for run in ("..", ".", "../run", "run/../../x", str(trained / "run"), "a\\b", "nothing", "~/run", "run\0"):
        assert str(trained) not in problem(web("POST", "models", json=new | {"run": run}), 422)["detail"]
    strange: list[dict[str, Any]] = [{"ids": {}}, {"ids": {"a": 90}}, {"ids": {"a": 0, "b": 0}}, {"ids": {"\0": 0}}]
    for wrong in (*strange, {"factory": "os:system"}, {"name": "A"}, {"columns": ["one"]}):
        problem(web("POST", "models", json=new | wrong), 422)
    problem(web("POST", "models", json=new | {"graph": "ids.csv"}), 422)
    assert {each["name"] for each in web.get("models")["items"]} == {"shop", "books"}


def test_hooks_show_their_secret_once(web: Web) -> None:
    made = web("POST", "models/shop/hooks", json={"url": "https://serving.test/new"}, by="administer")
    assert made.status_code == 201
    assert made.json()["secret"] == web.service.digest("hook", made.json()["id"])
    listed = web("GET", "models/shop/hooks", by="administer")
    assert [each["url"] for each in listed.json()["items"]] == ["https://serving.test/new"]
    assert made.json()["secret"] not in listed.text
    for wrong in ("file:///etc/passwd", "http://[", "http://a:b@c.test", "https://a\nb", "http://"):
        problem(web("POST", "models/shop/hooks", json={"url": wrong}), 422)
    assert web("DELETE", made.headers["location"]).status_code == 204
    problem(web("DELETE", made.headers["location"]), 404)
    problem(web("GET", "models/none/hooks"), 404)


def test_tokens_are_shown_once_and_revoked_at_once(web: Web) -> None:
    made = web("POST", "tokens", json={"name": "x", "scopes": ["read"], "models": ["shop"], "seconds": 60})
    assert made.status_code == 201
    token, name = made.json()["token"], made.json()["id"]
    assert web("GET", "models", by=token).status_code == 200
    listed = web("GET", "tokens", by="administer")
    assert token not in listed.text
    assert next(each for each in listed.json()["items"] if each["id"] == name)["models"] == ["shop"]
    assert web("DELETE", f"tokens/{name}").status_code == 204
    problem(web("GET", "models", by=token), 401)
    problem(web("DELETE", f"tokens/{name}"), 404)
    problem(web("POST", "tokens", json={"name": "x", "scopes": ["read"], "models": ["nothing"]}), 404)
    body: dict[str, Any] = {"name": "x", "scopes": ["read"], "models": ["shop"]}
    strange: list[dict[str, Any]] = [{"scopes": ["root"]}, {"scopes": ["administer"]}, {"models": []}, {"seconds": 0}]
    for wrong in strange:
        problem(web("POST", "tokens", json=body | wrong), 422)


def test_the_ledger_is_shown_and_gone_through(web: Web) -> None:
    shown, all_of_it = web.get("ledger", by="read"), web.get("ledger/entries?limit=200")
    assert shown["entries"] == len(all_of_it["items"])
    assert shown["first_key"] == all_of_it["items"][0]["entry"]["signer"]
    assert read_checkpoint(shown["checkpoint"]).digest == shown["head"]
    page = web.get("ledger/entries?limit=2")
    assert web.get(f"ledger/entries?after={page['next']}&limit=1")["items"] == all_of_it["items"][2:3]
    assert read_checkpoint(web("GET", "ledger/checkpoint").text).sequence == shown["entries"]
    found = web("POST", "ledger/verify", by="operate").json()
    assert (found["in_order"], found["head"]) == (True, shown["head"])
    with database.writing(web.service.engine) as connection:
        connection.execute(database.entries.update().where(database.entries.c.sequence == 2).values(kind="x"))
    assert web("POST", "ledger/verify").json()["in_order"] is False


def test_a_model_of_another_token_is_not_there(web: Web) -> None:
    with database.writing(web.service.engine) as connection:
        row = connection.execute(models.select()).one()._asdict()
        connection.execute(models.insert().values(**row | {"name": "other"}))
    token = new_token(web.service, "other", ["read", "submit", "operate"], models=["other"])[1]
    name = web.submit("person-3").json()["id"]
    assert web.get("models", by=token)["items"] == []
    assert web.get("requests", by=token)["items"] == []
    for method, path in (("GET", "models/shop"), ("GET", f"requests/{name}"), ("POST", f"requests/{name}/approve")):
        here, nowhere = web(method, path, by=token), web(method, path.replace("shop", "none"), by=token)
        assert problem(here, 404)["detail"].replace("shop", "none") == problem(nowhere, 404)["detail"]
    problem(web.submit("person-4", by=token), 404)
    problem(web("GET", "ledger/entries", by=token), 403)
    assert "shop" not in web("GET", "/metrics", by=token).text
