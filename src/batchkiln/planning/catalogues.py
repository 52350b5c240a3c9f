"""Reads the catalogue of a profile's service: one free request for each profile and command.

The request counts toward the account's reads and is recorded in the queue (Law 5). If the catalogue cannot be read, the
service checks the items itself: a missing network does not prevent enqueueing.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from batchkiln.api.app_context import AppContext
from batchkiln.api.local_service import embedded_catalogue
from batchkiln.config import KeyNotFound, Profile
from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.error_text import describe_error, exit_status_of, short_reason
from batchkiln.core.errors import Diagnostic, ExitStatus, InputError
from batchkiln.core.responses import CatalogRead, CatalogReply
from batchkiln.planning.queue_access import QueueAccess, open_access

MAX_WAIT_SECONDS: Final = 10.0
"""Maximum wait for a read within the request limits, in seconds of service time; enqueueing should not take long."""

MAX_REPLY_SECONDS: Final = 15.0
"""Maximum wait for the reply, in seconds of real time."""


CATALOGUE_KEPT: Final = timedelta(minutes=5)
"""A process that enqueues often reads a catalogue, or waits for one in vain, at most once in this time."""


class Catalogues:
    """The catalogues of one command, each read once.

    `asked` contains the accounts that were asked. `exit_status` is the exit status of a command that only reads
    catalogues.
    """

    def __init__(self, access: QueueAccess, *, is_disabled: bool = False) -> None:
        """Create an empty set of catalogues; `is_disabled` disables them at the user's request."""
        self._is_off = is_disabled
        self.asked: set[tuple[str, str]] = set()
        self.exit_status = ExitStatus.OK
        self._access = access
        self._read: dict[str, Catalogue | None] = {}
        self._lacking: dict[str, str] = {}
        self._causes: dict[str, str] = {}  # short, of those that a run tells in full
        self._reported: set[str] = set()

    async def of(self, profile: Profile, account: str) -> Catalogue | None:
        """Return the catalogue of a profile, read through `account`; None if it cannot be read or is disabled."""
        if self._is_off:
            return None
        if profile.name not in self._read:
            self._read[profile.name] = await self._of(profile, account)
        return self._read[profile.name]

    async def _of(self, profile: Profile, account: str) -> Catalogue | None:
        if profile.is_embedded:
            return embedded_catalogue(profile)
        self.exit_status = ExitStatus.UNEXPECTED
        found = await self._read_catalogue(profile, account)
        if isinstance(found, str):
            self._lacking[profile.name] = f"could not be read: {found}"
            return None
        if found.models:
            self.exit_status = ExitStatus.OK
        else:
            self._lacking[profile.name] = "was not understood"
        return found

    async def _read_catalogue(self, profile: Profile, account: str) -> Catalogue | str:
        """Read the catalogue within the account's read limits; return the reason as text if that fails."""
        # The client is slow to import, and enqueueing for the local service does not need it.
        from batchkiln.planning.quotes import AccountUnavailable, open_quote_session, read_account_states  # noqa: PLC0415

        known = (await read_account_states(self._access))[profile.name, account]
        try:
            async with open_quote_session(profile, account, known, self._access) as session:

                async def read_models() -> CatalogReply:
                    self.asked.add((profile.name, account))
                    async with asyncio.timeout(MAX_REPLY_SECONDS):
                        return await session.client.models()

                reply = await session.send(read_models, max_wait_seconds=MAX_WAIT_SECONDS)
        except AccountUnavailable as error:
            return str(error)
        except InputError as error:
            self.exit_status = error.exit_status
            if isinstance(error, KeyNotFound):
                self._causes[profile.name] = f"account {account}: no API key found in {error.places}"
            return str(error)
        except TimeoutError:
            self.exit_status = ExitStatus.ACCOUNT_CANNOT_WORK
            return f"the service did not answer in {MAX_REPLY_SECONDS:.0f} s"
        if isinstance(reply, CatalogRead):
            return Catalogue(profile.name, {entry.id: entry for entry in reply.models})
        self.exit_status = exit_status_of(reply)
        if self.exit_status is ExitStatus.ACCOUNT_CANNOT_WORK:
            self._causes[profile.name] = f"account {account}: {short_reason(reply)}"
        return describe_error(reply)

    def reasons(self) -> list[str]:
        """Return why catalogues are missing, one text for each profile."""
        return list(self._lacking.values())

    def new_warnings(self, *, is_run: bool = False) -> dict[str, str]:
        """Return one warning for each profile whose catalogue is missing; each warning is returned once.

        A run goes on to ask a service that gave no answer of use, and tells the details and the remedy itself.
        """
        found = {}
        for name, full in self._lacking.items():
            if name not in self._reported:
                is_short = is_run and name in self._causes
                reason = f"could not be read ({self._causes[name]})" if is_short else full
                found[name] = (
                    f"profile {name}: the items were not checked against the service's catalogue, which {reason}; "
                    "the service checks them. `batchkiln doctor` looks for the cause"
                )
        self._reported.update(self._lacking)
        return found


class CatalogueRead(NamedTuple):
    """A catalogue, or None and the warning that it could not be read."""

    catalogue: Catalogue | None
    warnings: tuple[Diagnostic, ...]
    at: datetime


class KeptCatalogues:
    """The catalogues of a process that enqueues again and again; each is read anew after a while."""

    def __init__(self, app: AppContext) -> None:
        """Read catalogues with an app's profiles, and count the requests in its queue."""
        self._app = app
        self._read: dict[str, CatalogueRead] = {}  # by profile

    async def read(self, profile: Profile, account: str) -> CatalogueRead:
        """Return the catalogue of a profile; it is read through `account` unless it was read a short time ago."""
        now, known = self._app.environment.wall(), self._read.get(profile.name)
        if known is not None and abs(now - known.at) < CATALOGUE_KEPT:
            return known
        async with open_access(self._app) as access:
            catalogues = Catalogues(access)
            catalogue = await catalogues.of(profile, account)
        warnings = tuple(Diagnostic(text) for text in catalogues.new_warnings().values())
        self._read[profile.name] = read = CatalogueRead(catalogue, warnings, now)
        return read
