"""`python -m batchkiln`, and the installed command."""

import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    try:
        from batchkiln.cli.main import run_program  # noqa: PLC0415  Ctrl-C may also come while this is read
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run_program(sys.argv[1:]))


if __name__ == "__main__":
    main()
