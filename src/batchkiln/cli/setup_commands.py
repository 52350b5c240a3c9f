"""`batchkiln init`, `schema` and `completion`: a first manifest, and support for editors and shells."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import orjson
from click.shell_completion import get_completion_class

from batchkiln.cli.command import Common, command
from batchkiln.cli.output import print_exact, print_json, print_result
from batchkiln.core.errors import ExitStatus, InputError, command_arguments

SCHEMA_NAME: Final = "batchkiln.schema.json"
COMPLETION_VARIABLE: Final = "_BATCHKILN_COMPLETE"


@command("init", example="batchkiln init\nbatchkiln init jobs/birds.yaml")
@click.argument("path", default="manifest.yaml", type=click.Path(path_type=Path))
def init(common: Common, path: Path) -> ExitStatus:
    """Write a first manifest to PATH (default: manifest.yaml). Never overwrites a file.

    Also writes the JSON Schema beside it. The first line of the manifest names the schema, so that an editor can
    complete fields and mark errors.
    """
    from batchkiln.manifest import example_manifest  # noqa: PLC0415  the package imports YAML and templates

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(f"# yaml-language-server: $schema={SCHEMA_NAME}\n{example_manifest()}")
        with suppress(FileExistsError), path.with_name(SCHEMA_NAME).open("x", encoding="utf-8") as file:
            file.write(_schema())
    except FileExistsError:
        raise InputError(f"{path} already exists, and was not changed; name another file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    if common.is_json:
        print_json({"manifest": str(path), "schema": str(path.with_name(SCHEMA_NAME))})
    else:
        trial = f"`batchkiln run {command_arguments(str(path))}`"
        print_result(f"Wrote {path}, and {SCHEMA_NAME} for editors. Try it at no cost: {trial}")
    return ExitStatus.OK


@command(
    "schema",
    example="batchkiln schema > batchkiln.schema.json\nbatchkiln schema config > batchkiln.config.schema.json",
)
@click.argument("document", type=click.Choice(["manifest", "config", "serve"]), default="manifest")
def schema(common: Common, document: str) -> ExitStatus:
    """Print the JSON Schema of DOCUMENT, with which an editor completes fields and marks errors.

    DOCUMENT is the manifest (the default), the configuration, or the configuration of `serve`.
    """
    del common  # the output is JSON with or without --json
    sys.stdout.write(_schema(document))
    return ExitStatus.OK


def _schema(document: str = "manifest") -> str:
    from batchkiln.config import config_schema  # noqa: PLC0415  as above
    from batchkiln.manifest import json_schema  # noqa: PLC0415  as above
    from batchkiln_service import ServiceConfig  # noqa: PLC0415  as above

    schemas = {"manifest": json_schema, "config": config_schema, "serve": ServiceConfig.model_json_schema}
    return orjson.dumps(schemas[document](), option=orjson.OPT_INDENT_2).decode() + "\n"


@command(
    "completion",
    example="batchkiln completion bash >> ~/.bashrc\n"
    "batchkiln completion fish > ~/.config/fish/completions/batchkiln.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(common: Common, shell: str) -> ExitStatus:
    """Print the completion script for SHELL. It completes commands, options, profiles, models, jobs and items."""
    from batchkiln.cli.main import program  # noqa: PLC0415  `main` imports this module

    del common  # the script is the same with or without --json
    found = get_completion_class(shell)
    assert found is not None, "click knows these shells"
    print_exact(found(program, {}, "batchkiln", COMPLETION_VARIABLE).source())
    return ExitStatus.OK
