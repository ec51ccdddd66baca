"""Every operation with what a machine comes up with: no error of ours, and every answer as it was described."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from tests.serve.web import V1, Web
from unweave.serve.service import Service

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.mark.parametrize("examples", [3, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: str(mode.value))
def test_answers_are_as_described(shop: Service, mode: schemathesis.GenerationMode, examples: int) -> None:
    web = Web(shop, runs=shop.home)
    real = {"model": "shop", "version": "1", "request": web.submit("person-3").json()["id"]}
    schema = schemathesis.openapi.from_asgi(f"{V1}/openapi.json", web.app)
    headers = {"Authorization": f"Bearer {web.tokens['all']}"}
    asked = 0

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        takes = [*operation.path_parameters, *operation.query, *operation.headers, *operation.body]
        if mode is schemathesis.GenerationMode.NEGATIVE and not takes:
            continue

        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
        def ask(case: Any, known: bool) -> None:
            nonlocal asked
            if known and mode is schemathesis.GenerationMode.POSITIVE:  # what is there, not only what is not
                case.path_parameters = {**(case.path_parameters or {}), **_of(case, real)}
            case.call_and_validate(headers=headers, checks=CHECKS)
            asked += 1

        ask()
    assert asked > 20 * examples
    assert web("POST", "ledger/verify").json()["in_order"]


def _of(case: Any, real: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in real.items() if f"{{{name}}}" in case.operation.path}
