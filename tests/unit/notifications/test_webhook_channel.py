"""The form of a webhook's message: a receiver's own library accepts it, and nothing that was tampered with."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from batchkiln.core.notifications import Notification, NotificationKind
from batchkiln.notifications import signing_key
from batchkiln.notifications.webhook_channel import webhook_body, webhook_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOTICE = Notification(
    id="notice_1",
    kind=NotificationKind.BUDGET_SPENT,
    at=datetime(2030, 1, 31, 18, 30, tzinfo=UTC),
    title="studio/main: today's credits are spent",
    text="é ✓",
    data={"left": 3, "resumes_at": datetime(2030, 2, 1, tzinfo=UTC)},
)


def test_a_receivers_library_accepts_it() -> None:
    """Standard Webhooks: id, timestamp and body are signed together."""
    body = webhook_body(NOTICE)
    headers = webhook_headers(NOTICE.id, body, key=signing_key(SECRET), now=datetime.now(UTC))

    message = Webhook(SECRET).verify(body, headers)

    assert message["type"] == "budget_spent"
    assert message["timestamp"] == "2030-01-31T18:30:00Z"
    assert message["data"] == {
        "id": "notice_1",
        "title": NOTICE.title,
        "text": "é ✓",
        "left": 3,
        "resumes_at": "2030-02-01T00:00:00Z",
    }


@pytest.mark.parametrize("harmed", ["webhook-id", "webhook-timestamp", "webhook-signature", "body"])
def test_what_was_tampered_with_is_not(harmed: str) -> None:
    """Each part counts."""
    now = datetime.now(UTC)
    body = webhook_body(NOTICE)
    headers = webhook_headers(NOTICE.id, body, key=signing_key(SECRET), now=now)
    other = webhook_headers("notice_2", body, key=signing_key("another"), now=now.replace(year=now.year - 1))
    if harmed == "body":
        body = body.replace(b'"left":3', b'"left":4')
    else:
        headers[harmed] = other[harmed]

    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body, headers)


def test_signature_is_the_published_one_whatever_the_zone_of_this_machine() -> None:
    """The example of the standard's own libraries: HMAC-SHA256 over id, seconds and body, joined by full stops."""
    sent_at = datetime(2021, 2, 25, 12, 2, 10, tzinfo=timezone(-timedelta(hours=3)))

    headers = webhook_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', key=signing_key(SECRET), now=sent_at
    )

    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_without_a_secret_there_is_no_signature() -> None:
    """And the id is there all the same, for dropping repeats."""
    headers = webhook_headers("notice_1", b"{}", key=None, now=datetime.now(UTC))

    assert "webhook-signature" not in headers
    assert headers["webhook-id"] == "notice_1"


def test_a_secret_is_base64_behind_its_mark_and_text_otherwise() -> None:
    """`openssl rand -hex 32` makes a good secret, too."""
    assert signing_key("whsec_YWJj") == b"abc"
    assert signing_key("0123abcd") == b"0123abcd"
    with pytest.raises(ValueError, match="base64"):
        signing_key("whsec_not base64!")


def test_nothing_is_no_secret() -> None:
    """With an empty key, anyone could sign."""
    with pytest.raises(ValueError, match="empty"):
        signing_key("whsec_")


def test_message_is_json() -> None:
    """Whatever a job is called."""
    assert json.loads(webhook_body(NOTICE))["data"]["text"] == "é ✓"
