"""`batchkiln token`: generate a token for the HTTP interface."""

import secrets
from typing import Final

import click

from batchkiln.cli.command import Common, command
from batchkiln.cli.output import print_json, print_result, print_status
from batchkiln.config import AccessScope, token_digest
from batchkiln.core.errors import ExitStatus

_BYTES: Final = 32
_PREFIX: Final = "bk_"  # by which scanners for secrets recognise it


@command("token", example="batchkiln token gallery\nbatchkiln token ci --scope look --scope enqueue")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in AccessScope]),
    default=(AccessScope.LOOK.value,),
    show_default=True,
    help="What the token permits; can be repeated.",
)
def token(common: Common, name: str, *, scopes: tuple[str, ...]) -> ExitStatus:
    """Generate a token NAME for the HTTP interface, and print the lines for the configuration.

    The configuration holds only a hash, so the token is shown only once. Nothing is stored.
    """
    made = _PREFIX + secrets.token_urlsafe(_BYTES)
    digest = token_digest(made)
    if common.is_json:
        print_json({"name": name, "token": made, "sha256": digest, "scopes": list(dict.fromkeys(scopes))})
        return ExitStatus.OK
    print_status("The token goes to standard output, this once; keep it as a secret.")
    print_result(made)
    print_status("Put its hash into the configuration:")
    print_status("http:")
    print_status("  tokens:")
    print_status(f"    {name}: {{sha256: {digest}, scopes: [{', '.join(dict.fromkeys(scopes))}]}}")
    return ExitStatus.OK
