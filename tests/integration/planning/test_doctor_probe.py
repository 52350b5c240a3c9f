"""`doctor --probe`: the open parts of a service, met for nothing (contract, sections 8 and 10)."""

import json
import stat
from pathlib import Path

import pytest

from batchkiln.api.queue import opened
from batchkiln.core.errors import ExitStatus
from batchkiln.core.rate_limits import Limits
from batchkiln.core.response_rules import RefusalMeaning, RefusalRule, ReplyField, ReplyRules
from batchkiln.doctor.check_results import CheckResult, Level, exit_status_of
from batchkiln.doctor.learned import learned_path
from batchkiln.doctor.runner import CheckContext, probe, run_checks
from batchkiln.store.accounts import Accounts
from integration.cli.workspace import HURRIED, Workspace, on_a_terminal
from integration.client.scripted_server import Received

from .conftest import GroundMaker
from .scripted_service import KEY, URL, Generations, agreeing, stranger

SPARSE = {"files": [{"zz": "k8Hq", "yy": "p3Lm", "upload_url": "https://storage.invalid/put", "upload_headers": {}}]}


async def test_the_local_service_is_understood_and_nothing_is_spent(make_ground: GroundMaker) -> None:
    """Eight requests, no create; each is counted in the account's windows (Law 5)."""
    ground = await make_ground()

    findings = [finding async for finding in probe(ground.app)]

    assert [finding for finding in findings if finding.level is not Level.OK] == []
    reads = ["/models", "/credits/balance", "/generations/{id}", "/quotes", "/quotes"]
    assert [path for path in await ground.sent() if "storage" not in path] == [
        *reads,
        "/uploads",
        "/uploads/complete",
        "/quotes",
    ]
    reader = await ground.reader()
    (account,) = await reader.read(lambda connection: Accounts(connection).summaries())
    await reader.close()
    assert (account.usage.reads, account.usage.creates, account.usage.upload_files) == (6, 2, 1)


@pytest.mark.parametrize("seed", [2, 3, 7, 9])
async def test_a_dialect_costs_nothing_and_is_understood_or_told(make_ground: GroundMaker, seed: int) -> None:
    """Whatever a service looks like: no create, and what is not understood has its lines to paste (Law 10)."""
    ground = await make_ground(dialect=seed)

    findings = [finding async for finding in probe(ground.app)]

    assert not {"/images", "/videos"} & set(await ground.sent())
    failed = [finding for finding in findings if finding.level is Level.FAIL]
    assert [finding for finding in failed if "replies: {" not in str(finding.remedy)] == []
    assert findings[4].check == "probe, quote"
    assert findings[4].level is Level.OK


async def test_what_it_takes_is_reported_before_anything_is_sent(tmp_path: Path) -> None:
    """The first finding names requests, files and credits; nothing has left by then."""
    async with stranger(tmp_path) as service:
        findings = probe(service.app())
        first = await anext(findings)
        assert service.asked == []
        await findings.aclose()  # type: ignore[attr-defined]  # an async generator

    assert "0 credits, up to 11 reads, 2 upload requests and 1 uploaded file" in first.message


async def test_beside_a_driver_nothing_is_sent(tmp_path: Path) -> None:
    """Who drives keeps its minute in memory: two processes would overstep it (Law 5). Exit 6."""
    async with stranger(tmp_path) as service:
        async with opened(service.app()) as queue, queue.driving(command="run"):
            found = await service.probed()

        assert service.asked == []
    assert "runs this queue" in found["probe"].message
    assert exit_status_of(list(found.values())) is ExitStatus.QUEUE_HELD


async def test_each_open_field_is_reported_with_its_place(tmp_path: Path) -> None:
    """What is documented, what received by names and types, and where each field was read."""
    async with stranger(tmp_path) as service:
        found = await service.probed()

    assert "read at data.remaining_credits" in found["probe, balance"].message
    assert "read at data.cost_credits" in found["probe, quote"].message
    assert "the asset id, read at files[].asset;" in found["probe, upload"].message
    assert "received: 200 {files: [{asset: text, upload_url: text" in found["probe, upload"].message
    assert exit_status_of(list(found.values())) is ExitStatus.OK


async def test_secrets_and_values_are_nowhere(tmp_path: Path) -> None:
    """Keys, upload urls, headers and ids are in no finding, and not in the file of shapes (Law 8)."""
    async with stranger(tmp_path) as service:
        found = await service.probed()
        kept = learned_path(service.app().queue)

    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for text in [*map(repr, found.values()), kept.read_text("utf-8")]:
        assert not [secret for secret in (KEY, URL, "ast_774190", "cdn.invalid") if secret in text]


async def test_an_asset_id_that_is_not_found_names_the_lines_to_paste(tmp_path: Path) -> None:
    """Not understood is a failure with a remedy; with the lines it is understood (Law 10)."""
    completed = (200, {"assets": [{"url": "https://cdn.invalid/1"}]})
    async with stranger(tmp_path, **{"POST /uploads": (200, SPARSE), "POST /uploads/complete": completed}) as service:
        sparse = dict(SPARSE["files"][0]) | {"upload_url": f"{service.origin}/put/{URL}"}
        service.replies["POST /uploads"] = (200, {"files": [sparse]})

        before = await service.probed()
        rules = ReplyRules({ReplyField.ASSET_ID: "files[].yy"})
        after = await service.probed(rules=rules)

    assert before["probe, upload"].level is Level.FAIL
    assert "replies: {fields: {asset_id:" in str(before["probe, upload"].remedy)
    assert exit_status_of(list(before.values())) is ExitStatus.UNEXPECTED
    assert after["probe, upload"].level is Level.OK
    assert "read at files[].yy" in after["probe, upload"].message


async def test_an_asset_id_that_the_service_does_not_know_was_read_wrongly(tmp_path: Path) -> None:
    """The refused id is reported as a field to configure, with the other candidate paths of that reply."""
    refused = (404, {"error": {"code": "asset_not_found", "message": "no such asset"}})
    async with stranger(tmp_path, **{"POST /uploads/complete": refused}) as service:
        ticket = {"id": "rq_81724", "handle": "h_99120", "upload_url": f"{service.origin}/put/{URL}"}
        service.replies["POST /uploads"] = (200, {"files": [ticket | {"upload_headers": {}}]})
        found = await service.probed()

    completion = found["probe, completion"]
    assert completion.level is Level.FAIL
    assert "replies: {fields: {asset_id: <path>}}\nplaces in that reply: files[].handle" in str(completion.remedy)


async def test_a_price_that_is_not_found_is_a_failure(tmp_path: Path) -> None:
    """Two figures that both could be the price are not guessed."""
    async with stranger(tmp_path, **{"POST /quotes": (200, {"price": 9, "amount": 900})}) as service:
        found = await service.probed()

    assert found["probe, quote"].level is Level.FAIL
    assert "replies: {fields: {price:" in str(found["probe, quote"].remedy)


async def test_a_refused_key_ends_it_at_once(tmp_path: Path) -> None:
    """401: exit 4 after one request."""
    async with stranger(tmp_path, **{"GET /models": (401, {"error": {"code": "bad_key"}})}) as service:
        found = await service.probed()

        assert service.asked == ["GET /openapi.json", "GET /models"]
    assert exit_status_of(list(found.values())) is ExitStatus.ACCOUNT_CANNOT_WORK


async def test_a_service_without_description_is_probed(tmp_path: Path) -> None:
    """/openapi.json is a help, and no condition."""
    async with stranger(tmp_path, **{"GET /openapi.json": (404, {"error": "none"})}) as service:
        found = await service.probed()

    assert found["probe, completion"].level is Level.OK


async def test_a_service_without_uploads_warns(tmp_path: Path) -> None:
    """Items of text alone can run: exit 0."""
    async with stranger(tmp_path, **{"POST /uploads": (404, {"error": {"code": "not_found"}})}) as service:
        found = await service.probed()

    assert found["probe, upload"].level is Level.WARN
    assert exit_status_of(list(found.values())) is ExitStatus.OK


def _over(status: int, code: str) -> object:
    def reply(request: Received) -> tuple[int, object]:
        sent = json.loads(request.body)
        is_over = sent.get("max_cost_credits", 12) < 12
        return (status, {"code": code}) if is_over else (200, {"cost_credits": 12})

    return reply


async def test_a_refusal_over_the_maximum_in_other_words_names_the_lines(tmp_path: Path) -> None:
    """With the lines it is the price that rose, and no invalid request."""
    async with stranger(tmp_path, **{"POST /quotes": _over(422, "e_417x")}) as service:  # type: ignore[arg-type]
        before = await service.probed()
        rule = RefusalRule(RefusalMeaning.OVER_QUOTE, status=422, code="e_417x")
        after = await service.probed(rules=ReplyRules(refusals=(rule,)))
        (line,) = [line for line in str(before["probe, quote over the maximum"].remedy).splitlines() if "means" in line]

    assert line == "replies: {refusals: [{status: 422, code: 'e_417x', means: over_quote}]}"
    assert after["probe, quote over the maximum"].level is Level.OK


async def test_a_quote_that_takes_no_maximum_is_no_trouble(tmp_path: Path) -> None:
    """The same field at the price itself is refused as well: it is the field, and not the price."""

    def reply(request: Received) -> tuple[int, object]:
        has_maximum = "max_cost_credits" in json.loads(request.body)
        return (422, {"code": "unknown_field"}) if has_maximum else (200, {"cost_credits": 12})

    async with stranger(tmp_path, **{"POST /quotes": reply}) as service:
        found = await service.probed()

    assert found["probe, quote over the maximum"].level is Level.OK


async def test_used_up_reads_end_it_with_the_reason(tmp_path: Path) -> None:
    """The day's limit is kept (Law 5), and waiting until tomorrow is left to a person."""
    async with stranger(tmp_path) as service:
        found = await service.probed(limits=Limits(reads_per_day=2))

        assert service.asked == ["GET /openapi.json", "GET /models", "GET /credits/balance"]
    assert "ended early" in found["probe"].message


async def test_a_changed_reply_is_reported_by_probe_and_by_doctor(tmp_path: Path) -> None:
    """What the service changed since is named; the next probe has learned it."""
    async with stranger(tmp_path) as service:
        await service.probed()
        service.replies["GET /credits/balance"] = (200, {"data": {"remaining_credits": "900"}, "as_of": 7})
        context = _patient(service.folder, f"{service.origin}/api/v1")

        plain = await _learned(context)
        probed = await service.probed()
        again = await service.probed()

    assert [finding.level for finding in plain] == [Level.OK, Level.WARN]
    assert "new: as_of; of another type: data.remaining_credits (number, now text)" in probed["probe, balance"].message
    assert probed["probe, balance"].level is Level.WARN
    assert again["probe, balance"].level is Level.OK


def _patient(folder: Path, base_url: str) -> CheckContext:
    config = folder / "batchkiln.yaml"
    accounts = "[{name: main, keys: [{file: key}]}]"
    config.write_text(f"profiles: {{studio: {{base_url: '{base_url}', accounts: {accounts}}}}}\n", "utf-8")
    return CheckContext(folder / ".batchkiln" / "queue.db", config, "studio", {})


def test_without_a_terminal_a_price_has_to_be_agreed_to_beforehand(tmp_path: Path) -> None:
    """Refused before anything is sent; exit 2, and what to add."""
    result = Workspace(tmp_path).call("doctor", "--probe", "--with-generation")

    assert (result.exit, result.out) == (2, "")
    assert "--yes" in result.err
    assert list(tmp_path.iterdir()) == []


def test_the_picture_is_a_part_of_the_probe(tmp_path: Path) -> None:
    """--with-generation alone is refused."""
    result = Workspace(tmp_path).call("doctor", "--with-generation", "--yes")

    assert result.exit == 2
    assert "--probe" in result.err


def test_what_failed_before_is_put_right_first(tmp_path: Path) -> None:
    """A probe begins only where the plain checks found nothing wrong; --json is one document."""
    workspace = Workspace(tmp_path)
    workspace.configure("profiles: [\n")

    result = workspace.call("doctor", "--probe", "--json")

    assert result.exit == result.document["exit"] == 2
    assert result.document["checks"][-1]["check"] == "probe"
    assert result.document["checks"][-1]["level"] == "warn"


def test_the_local_service_makes_its_picture(tmp_path: Path) -> None:
    """The whole way, as a person would: the price is named, the file is there, exit 0."""
    workspace = Workspace(tmp_path)
    workspace.configure(HURRIED)

    result = workspace.call("doctor", "--probe", "--with-generation", "--yes", "--json")

    checks = {check["check"]: check["level"] for check in result.document["checks"]}
    assert result.exit == 0, result.out + result.err
    assert checks["generation, replay"] == "ok"
    assert "Make one picture" in result.err
    assert len(list(tmp_path.glob("out/probe-*/picture.png"))) == 1


def test_a_person_is_asked_on_a_terminal(tmp_path: Path) -> None:
    """A no makes nothing, and is no failure."""
    workspace = Workspace(tmp_path)
    workspace.configure(HURRIED)

    status, shown = on_a_terminal(workspace, "doctor", "--probe", "--with-generation", answer="n")

    assert status == 0, shown
    assert "not confirmed" in shown
    assert not (tmp_path / "out").exists()


async def _learned(context: CheckContext) -> list[CheckResult]:
    return [finding async for finding in run_checks(context) if finding.check == "learned shapes"]


# --- one paid picture ---


async def test_one_picture_is_made_after_its_price_was_named(tmp_path: Path) -> None:
    """By the ordinary engine: cost, outputs, retention, and a replay that answers the same generation."""
    async with stranger(tmp_path) as service:
        service.replies |= Generations(service.origin).replies()
        consent, asked = agreeing()
        found = await service.probed(consent=consent)

        creates = [request for request in service.server.requests if "/images" in request.line]
    assert "for 12 credits" in asked[0]
    assert exit_status_of(list(found.values())) is ExitStatus.OK, found
    assert len({(request.body, request.header("Idempotency-Key")) for request in creates}) == 1
    assert json.loads(creates[0].body)["max_cost_credits"] == 12
    assert "as quoted" in found["generation, cost"].message
    assert "outputs[].keep_until" in found["generation, record"].message
    assert "the same generation" in found["generation, replay"].message


async def test_a_no_makes_nothing(tmp_path: Path) -> None:
    """Nothing is enqueued or sent."""
    async with stranger(tmp_path) as service:
        service.replies |= Generations(service.origin).replies()
        consent, _ = agreeing(agrees=False)
        found = await service.probed(consent=consent)

        assert "POST /images" not in service.asked
    assert "not confirmed" in found["generation"].message


@pytest.mark.parametrize(
    ("generations", "check"),
    [({"forgets_keys": True}, "generation, replay"), ({"cost": 40}, "generation, cost")],
)
async def test_a_service_that_breaks_its_word_fails(
    tmp_path: Path, generations: dict[str, int | bool], check: str
) -> None:
    """A key that is forgotten, a charge above the maximum: told before a batch is paid."""
    async with stranger(tmp_path) as service:
        service.replies |= Generations(service.origin, **generations).replies()  # type: ignore[arg-type]
        consent, _ = agreeing()
        found = await service.probed(consent=consent)

    assert found[check].level is Level.FAIL, found
    assert exit_status_of(list(found.values())) is ExitStatus.UNEXPECTED
