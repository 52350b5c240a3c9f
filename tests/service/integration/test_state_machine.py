"""A real service and a plain model of its rules, told the same things in every order: they never disagree.

`STATE_MACHINE_EXAMPLES=2000 pytest tests/service/integration/test_state_machine.py` looks deeper, at other orders too.
"""

import json
import os
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batchkiln_service.db.credits import audit
from batchkiln_service.db.keys import create_key
from support.examples import examples

from .plain_model import DAY, PlainAccount, PlainAsset, PlainGeneration, PlainKey
from .side_by_side import BODIES, LARGE, SMALL, SideBySide, Who

DEEPER: Final = int(os.environ.get("STATE_MACHINE_EXAMPLES", "0"))
OTHERS: Final = ("second", "second", "poor", "poor", "member", "newest account", "newest key", "legacy", "nobody")
WHO = st.sampled_from(["main"] * 16 + list(OTHERS))
BY_WHOM = st.sampled_from([None] * 8 + list(OTHERS))  # None: whom it belongs to
BODY = st.sampled_from(range(len(BODIES)))
END = st.sampled_from(["success", "success", "failed", "canceled"])
BEFORE = st.sampled_from([0, 0, 0, 0.5, 9.5, 10, 10, 12, 30, 60])  # seconds that pass before a request
PICK = st.integers(0, 5)  # of what there is, counted from the newest back


class ServiceBesideItsModel(RuleBasedStateMachine):
    """Each rule asks both for the same; `SideBySide` compares what they say."""

    def __init__(self) -> None:
        super().__init__()
        self.both = SideBySide()
        self.model = self.both.model
        self.numbers = 0
        self.links: list[tuple[str, int]] = []
        self.tickets: list[tuple[PlainAsset, str, dict[str, str]]] = []

    def teardown(self) -> None:
        self.both.end()

    @initialize(end=END)
    def begin(self, end: str) -> None:
        self.upload_whole("main", len(SMALL))
        self.create("main", 0, end, 0, spare=None, copies=1)

    # Reads -----------------------------------------------------------------------------------------------------------

    @rule(who=WHO, before=BEFORE, times=st.sampled_from([1, 1, 2, 7]), has_origin=st.sampled_from([False] * 7 + [True]))
    def read_balance(self, who: Who, before: float, times: int, *, has_origin: bool) -> None:
        self.both.advance(before)
        secret = self.both.secret(who)
        headers = {"Origin": "https://example.invalid"} if has_origin else {}
        for _ in range(times):
            said = self.model.balance(secret, self.both.now, has_origin=has_origin)
            reply = self.both.ask("GET", "/credits/balance", secret, said, headers=headers)
            assert reply.status != 200 or reply.body == {"balance": said.number}

    @rule(who=WHO, before=BEFORE, which=BODY, pick=PICK)
    def quote(self, who: Who, before: float, which: int, pick: int) -> None:
        self.both.advance(before)
        asked, secret = self.both.asked(which, "success", pick), self.both.secret(who)
        said = self.model.quote(secret, asked, self.both.now)
        reply = self.both.ask("POST", "/quotes", secret, said, body=json.loads(asked.text))
        assert reply.status != 200 or reply.body == {"cost_credits": said.number}

    @precondition(lambda self: self.both.generations)
    @rule(pick=PICK, who=BY_WHOM, before=BEFORE, is_known=st.sampled_from([True] * 9 + [False]))
    def poll(self, pick: int, who: Who | None, before: float, *, is_known: bool) -> None:
        self.both.advance(before)
        self.read(self.picked(pick), who, is_known=is_known)

    @precondition(lambda self: self.both.generations)
    @rule(lead_ms=st.sampled_from([1, 0]), times=st.sampled_from([1, 2]))
    def poll_as_it_ends(self, lead_ms: int, times: int) -> None:
        """At the very instant, or a millisecond before."""
        newest = self.picked(0)
        self.both.advance((newest.finish_at - lead_ms - self.both.now) / 1000)
        for _ in range(times):
            self.read(newest, None, is_known=True)

    def read(self, generation: PlainGeneration, who: Who | None, *, is_known: bool) -> None:
        secret = generation.key.secret if who is None else self.both.secret(who)
        said = self.model.poll(secret, generation if is_known else None, self.both.now)
        path = f"/generations/{generation.id if is_known else 'gen_0'}"
        reply = self.both.ask("GET", path, secret, said)
        if said.status == 200:
            link = self.both.compare_record(reply, generation)
            self.links += [] if link is None else [(link, generation.link_dies_at(self.both.now))]

    @precondition(lambda self: self.links)
    @rule(pick=PICK, before=st.sampled_from([0, 0, 60, 899.5, 900]))
    def download(self, pick: int, before: float) -> None:
        self.both.advance(before)
        url, dies_at = self.links[-1 - pick % len(self.links)]
        reply = self.both.run(self.both.world.send("GET", url, key=None))
        assert reply.status == 200 if self.both.now < dies_at else reply.status in {403, 404, 410}

    # Creates ---------------------------------------------------------------------------------------------------------

    @rule(
        who=WHO,
        which=BODY,
        end=END,
        pick=PICK,
        spare=st.sampled_from([None, None, 0, -1]),
        copies=st.sampled_from([1, 1, 1, 4]),
    )
    def create(self, who: Who, which: int, end: str, pick: int, *, spare: int | None, copies: int) -> None:
        """Copies arrive at once, under one key."""
        asked = self.both.asked(which, end, pick)
        if spare is not None and asked.refusal is None:
            text = json.dumps({**json.loads(asked.text), "max_cost_credits": asked.cost + spare})
            asked = replace(asked, max_cost=asked.cost + spare, text=text)
        self.numbers += 1
        self.both.create(self.both.secret(who), f"idempotency-key-{self.numbers:04d}", asked, copies=copies)

    @rule(who=WHO, which=st.sampled_from([0, 0, 2, 3, 4]), end=END, copies=st.sampled_from([1, 1, 1, 4]))
    def create_when_there_is_room(self, who: Who, which: int, end: str, copies: int) -> None:
        """After a minute, and after the end of what is active."""
        finish_at = max((generation.finish_at for generation in self.both.generations), default=0)
        self.both.advance(max(60, (finish_at - self.both.now) / 1000))
        self.create(who, which, end, 1, spare=None, copies=copies)

    @rule(who=WHO, key=st.sampled_from(["fifteen-letters", "k" * 129, "sixteen letters.", "k" * 16, "k" * 128]))
    def create_under_a_key_at_the_edge(self, who: Who, key: str) -> None:
        self.both.create(self.both.secret(who), key, self.both.asked(0, "success", 0))

    @precondition(lambda self: self.both.generations)
    @rule(pick=PICK, who=BY_WHOM, before=BEFORE, change=st.sampled_from([None] * 4 + ["body", "path"]))
    def replay(self, pick: int, who: Who | None, before: float, change: str | None) -> None:
        self.both.advance(before)
        known = self.picked(pick)
        asked = known.asked
        if change == "body":
            other = json.dumps({**json.loads(asked.text), "prompt": "Another prompt"})
            asked = replace(asked, text=other, end="success")
        elif change == "path":
            other = {"/images": "/videos", "/videos": "/images"}[asked.path]
            asked = replace(asked, path=other, refusal="unsupported_option")
        secret = known.key.secret if who is None else self.both.secret(who)
        self.both.create(secret, known.idempotency_key, asked)

    # Uploads ---------------------------------------------------------------------------------------------------------

    @rule(
        who=WHO,
        sizes=st.lists(st.sampled_from([len(SMALL), len(LARGE)]), min_size=1, max_size=3),
        is_allowed=st.sampled_from([True] * 5 + [False]),
    )
    def prepare_upload(self, who: Who, sizes: list[int], *, is_allowed: bool) -> None:
        self.prepare(who, sizes, is_allowed=is_allowed)

    def prepare(self, who: Who, sizes: list[int], *, is_allowed: bool) -> bool:
        secret = self.both.secret(who)
        said = self.model.prepare(secret, sizes, is_allowed=is_allowed, now=self.both.now)
        content_type = "image/png" if is_allowed else "image/gif"
        files = [{"name": f"{number}.png", "type": content_type, "size": size} for number, size in enumerate(sizes)]
        reply = self.both.ask("POST", "/uploads", secret, said, body={"files": files})
        if said.status == 200:
            uploads: Any = reply.body["uploads"]
            for asset, upload in zip(self.both.account_of(secret).assets[-len(sizes) :], uploads, strict=True):
                asset.id = upload["asset_id"]
                self.tickets.append((asset, upload["upload_url"], upload["upload_headers"]))
        return said.status == 200

    @precondition(lambda self: self.tickets)
    @rule(pick=PICK, before=st.sampled_from([0, 0, 0, 299.999, 300]), is_whole=st.sampled_from([True] * 5 + [False]))
    def put_bytes(self, pick: int, before: float, *, is_whole: bool) -> None:
        self.both.advance(before)
        asset, url, headers = self.tickets[-1 - pick % len(self.tickets)]
        content = SMALL if asset.size == len(SMALL) else LARGE
        if not is_whole:
            content = content[:-1]
            headers = {**headers, "Content-Length": str(len(content))}
        is_taken = self.model.put(asset, len(content), self.both.now)
        status = self.both.run(self.both.put(url, content, headers))
        assert status == 200 if is_taken else 400 <= status < 500

    @precondition(lambda self: self.tickets)
    @rule(pick=PICK, who=BY_WHOM)
    def complete_upload(self, pick: int, who: Who | None) -> None:
        asset = self.tickets[-1 - pick % len(self.tickets)][0]
        secret = asset.account.keys[0].secret if who is None else self.both.secret(who)
        said = self.model.complete(secret, asset, self.both.now)
        reply = self.both.ask("POST", "/uploads/complete", secret, said, body={"asset_ids": [asset.id]})
        if said.status == 200:
            assets: Any = reply.body["assets"]
            asset.url = assets[0]["url"]

    @rule(who=WHO, size=st.sampled_from([len(SMALL), len(LARGE)]))
    def upload_whole(self, who: Who, size: int) -> None:
        if self.prepare(who, [size], is_allowed=True):
            self.put_bytes(0, 0, is_whole=True)
            self.complete_upload(0, None)

    @rule(size=st.sampled_from([len(SMALL), len(LARGE)]))
    def upload_with_what_a_failure_gives_back(self, size: int) -> None:
        """The account has nothing but that; nobody has asked about the failure yet."""
        self.create_when_there_is_room("poor", 0, "failed", copies=1)
        self.both.advance(max(60, (self.picked(0).finish_at - self.both.now) / 1000))
        self.prepare("poor", [size], is_allowed=True)

    # Time, keys, accounts, restarts ----------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([59.999, 60, 300, 900, 3600, 7200, DAY / 1000, DAY / 1000, 14 * DAY / 1000]))
    def wait(self, seconds: float) -> None:
        self.both.advance(seconds)

    @rule(lead=st.sampled_from([30, 0.5, 0]))
    def wait_for_midnight(self, lead: float) -> None:
        self.both.advance((DAY - self.both.now % DAY) / 1000 - lead)

    @rule(
        pick=PICK,
        before=st.sampled_from([0, 3599.999, 3600]),
        times=st.sampled_from([1, 1, 11]),
        are_kept=st.booleans(),
    )
    def make_keys(self, pick: int, before: float, times: int, *, are_kept: bool) -> None:
        self.both.advance(before)
        account = self.model.accounts[pick % len(self.model.accounts)]
        for _ in range(times):
            is_allowed = self.model.may_make_key(account, self.both.now)
            made = self.both.by_command(
                lambda books: create_key(books, account.name, now_ms=self.both.now, calendar=self.both.calendar)
            )
            assert (made is not None) == is_allowed
            if made is not None:
                account.keys.append(PlainKey(made.secret, account, self.both.now))
                if not are_kept:
                    self.both.revoke(account.keys[-1])

    @rule(pick=st.integers(0, 30))
    def revoke_key(self, pick: int) -> None:
        """Any but the first of an account, without which little would happen."""
        others = [key for account in self.model.accounts for key in account.keys[1:]]
        self.both.revoke(others[-1 - pick % len(others)])

    @rule(
        change=st.sampled_from([None, None, "subscription", "second key"]),
        pick=PICK,
        seconds=st.sampled_from([0, 0, 600]),
    )
    def restart(self, change: str | None, pick: int, seconds: float) -> None:
        """With the same configuration, or with one in which something has changed."""
        if change == "subscription":
            account = self.model.accounts[pick % len(self.model.accounts)]
            account.subscription = not account.subscription
        elif change == "second key":
            self.both.take_second_key_out_or_put_it_back()
        self.both.restart(down_seconds=seconds)

    @precondition(lambda self: len(self.model.accounts) < 6)
    @rule(bought=st.sampled_from([0, 2, 25]), subscription=st.booleans())
    def open_account(self, bought: int, *, subscription: bool) -> None:
        account = PlainAccount(f"account-{len(self.model.accounts)}", bought, subscription=subscription)
        self.model.accounts.append(account)
        self.both.configure_key(account, f"key-of-{account.name}")
        self.both.restart()

    def picked(self, pick: int) -> PlainGeneration:
        generations = self.both.generations
        return generations[-1 - pick % len(generations)]

    # What holds after every step -------------------------------------------------------------------------------------

    @invariant()
    def books_are_sound(self) -> None:
        assert self.both.in_books(audit) == []

    @invariant()
    def balances_agree(self) -> None:
        """A refund that nobody has looked for yet is written down at the next look."""
        refundable = f"outcome = 'failed' AND ended_at_ms IS NULL AND finish_at_ms <= {self.both.now}"
        rows = self.both.query(
            "SELECT s.account, s.credits + (SELECT coalesce(sum(cost_credits), 0) FROM generations g"
            f" WHERE g.account = s.account AND {refundable})"
            " AS balance FROM credit_sides s WHERE side = 'available'"
        )
        assert {row["account"]: row["balance"] for row in rows} == {
            account.name: account.balance(self.both.now) for account in self.model.accounts
        }

    @invariant()
    def every_request_is_in_the_log(self) -> None:
        rows = self.both.query("SELECT status, count(*) AS times FROM requests GROUP BY status")
        assert {row["status"]: row["times"] for row in rows} == self.both.sent

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        rows = self.both.query("SELECT id FROM generations UNION ALL SELECT id FROM assets")
        known = [generation.id for generation in self.both.generations]
        known += [asset.id for account in self.model.accounts for asset in account.assets]
        assert sorted(str(row["id"]) for row in rows) == sorted(known)


TestServiceBesideItsModel = pytest.mark.long(ServiceBesideItsModel.TestCase)
TestServiceBesideItsModel.settings = settings(
    max_examples=DEEPER or examples(25),
    stateful_step_count=40,
    derandomize=not DEEPER,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
