"""Reading the catalogue of a profile's service: one read for each profile and command, which costs nothing.

It is free, but counts in the account's reads, and is noted like those of a plan (Law 5). Where it cannot be read, the
service decides, as it did before there was a catalogue: a missing network keeps nobody from enqueueing.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from batchkiln.api.app_context import AppContext
from batchkiln.api.local_service import embedded_catalogue
from batchkiln.config import Profile
from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.error_text import describe_error
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.responses import AccountBlocked, CatalogRead, CatalogReply
from batchkiln.store import Store

if TYPE_CHECKING:
    from batchkiln.planning.quotes import Note

PATIENCE_SECONDS: Final = 10.0
"""How long, in service time, a place among the minute's reads is waited for: enqueueing is not held up by it."""

MOST_SECONDS: Final = 15.0
"""How long, in real time, the reply is waited for."""


class Catalogues:
    """The catalogues of one command, each read once.

    `asked` are the accounts that were asked. `exit_status` is what a command comes to that wants nothing else.
    """

    def __init__(
        self,
        reader: Store,
        setting: AppContext,
        note: "Note | None",
        *,
        is_alone: bool = False,
        is_off: bool = False,
    ) -> None:
        """Take the queue, which tells what was used of the windows; `note` and `is_alone` are those of `QuoteOptions`.

        `is_off`: a person wants none, since it is wrong or wrongly understood.
        """
        self._is_off = is_off
        self.asked: set[tuple[str, str]] = set()
        self.exit_status = ExitStatus.OK
        self._reader = reader
        self._setting = setting
        self._note = note
        self._is_alone = is_alone
        self._read: dict[str, Catalogue | None] = {}
        self._lacking: dict[str, str] = {}
        self._told: set[str] = set()

    async def of(self, profile: Profile, account: str) -> Catalogue | None:
        """Return the catalogue of a profile by way of an account; None where it is not to be had."""
        if self._is_off:
            return None
        if profile.name not in self._read:
            self._read[profile.name] = await self._of(profile, account)
        return self._read[profile.name]

    async def _of(self, profile: Profile, account: str) -> Catalogue | None:
        if profile.is_embedded:
            return embedded_catalogue(profile)
        self.exit_status = ExitStatus.UNEXPECTED
        found = await self._asked(profile, account)
        if isinstance(found, str):
            self._lacking[profile.name] = f"could not be read: {found}"
            return None
        if found.models:
            self.exit_status = ExitStatus.OK
        else:
            self._lacking[profile.name] = "was not understood"
        return found

    async def _asked(self, profile: Profile, account: str) -> Catalogue | str:
        """Ask, within the account's read window; tell why there is no catalogue."""
        # The client is slow to import, and whoever enqueues for the local service does not need it.
        from batchkiln.planning.known_accounts import known_accounts  # noqa: PLC0415
        from batchkiln.planning.quotes import NoRoom, QuoteOptions, open_quote_session  # noqa: PLC0415

        known = (await self._reader.read(known_accounts, self._setting))[profile.name, account]
        manner = QuoteOptions(self._setting.surroundings, note=self._note, is_alone=self._is_alone)
        try:
            async with open_quote_session(profile, account, known, manner) as session:

                async def read_models() -> CatalogReply:
                    self.asked.add((profile.name, account))
                    async with asyncio.timeout(MOST_SECONDS):
                        return await session.client.models()

                reply = await session.send(read_models, patience_seconds=PATIENCE_SECONDS)
        except NoRoom as error:
            return str(error)
        except InputError as error:
            self.exit_status = error.exit_status
            return str(error)
        except TimeoutError:
            return f"the service did not answer in {MOST_SECONDS:.0f} s"
        if isinstance(reply, CatalogRead):
            return Catalogue(profile.name, {entry.id: entry for entry in reply.models})
        if isinstance(reply, AccountBlocked):
            self.exit_status = ExitStatus.ACCOUNT_CANNOT_WORK
        return describe_error(reply)

    def reasons(self) -> list[str]:
        """Give why a catalogue is missing."""
        return list(self._lacking.values())

    def complaints(self) -> list[str]:
        """Give, once, why items were not held against a catalogue."""
        found = [
            f"profile {name}: items were not held against the service's catalogue, which {reason}; the service decides"
            for name, reason in self._lacking.items()
            if name not in self._told
        ]
        self._told.update(self._lacking)
        return found
