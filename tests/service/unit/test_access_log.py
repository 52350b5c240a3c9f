"""The content of the access log."""

import logging

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from batchkiln_service.transport.access_log import AccessLog, fields_of


def test_made_up_method_and_path_are_not_repeated() -> None:
    """What a client invents may hold anything, a key too."""
    request = make_mocked_request("lk_secret", "/lk_secret?key=lk_secret")

    fields = fields_of(request, web.Response(status=404), seconds=0.0123)

    assert (fields["method"], fields["path"]) == ("(other)", "(no route)")
    assert fields["duration_ms"] == 12.3
    assert "lk_secret" not in str(fields)


def test_log_that_nobody_reads_is_not_made() -> None:
    """The server asks first, and spares itself the work."""
    logger = logging.getLogger("batchkiln_service.nobody-reads")
    logger.setLevel(logging.WARNING)

    assert not AccessLog(logger, "").enabled
