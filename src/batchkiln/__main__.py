"""`python -m batchkiln`, and the installed command."""

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from batchkiln.cli.main import run_program  # noqa: PLC0415  Ctrl-C may arrive during the import
        from batchkiln.cli.streams import flush_streams, prepare_streams  # noqa: PLC0415  as above

        prepare_streams()
    except KeyboardInterrupt:
        sys.exit(130)
    status = run_program(sys.argv[1:])
    is_flushed = flush_streams()
    sys.exit(status or (0 if is_flushed else 1))


if __name__ == "__main__":
    main()
