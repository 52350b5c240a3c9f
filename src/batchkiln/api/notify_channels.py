"""The configured notification channels."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import structlog
from aiohttp import ClientSession

from batchkiln.api.app_context import AppContext
from batchkiln.config import Notifier
from batchkiln.core.errors import InputError

if TYPE_CHECKING:
    from batchkiln.notifications import Channel

log = structlog.get_logger()


def channels_of(setting: AppContext, session: Callable[[], ClientSession]) -> "list[Channel]":
    """Create the configured channels; an unusable one is reported and skipped."""
    channels: list[Channel] = []
    for notifier in setting.config.notifiers.values():
        try:
            channels.append(_channel(notifier, session, setting.surroundings.wall))
        except (InputError, ValueError) as error:
            log.warning("notifier_unusable", notifier=notifier.name, reason=str(error))
    return channels


def _channel(notifier: Notifier, session: Callable[[], ClientSession], wall: Callable[[], datetime]) -> "Channel":
    from batchkiln.notifications import AppriseChannel, WebhookChannel, signing_key  # noqa: PLC0415  only who is told needs it

    if notifier.apprise is not None:
        return AppriseChannel.open(notifier.name, notifier.url())
    secret = notifier.secret_text()
    key = signing_key(secret) if secret is not None else None
    return WebhookChannel(notifier.name, url=notifier.url(), key=key, session=session(), wall=wall)
