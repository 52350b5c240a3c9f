"""`python -m batchkiln`, and the installed command."""

import sys

from batchkiln.cli.main import run_program


def main() -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run_program(sys.argv[1:]))


if __name__ == "__main__":
    main()
