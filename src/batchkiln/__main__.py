"""`python -m batchkiln`, and the installed command."""

import gc
import sys


def main() -> None:
    """Run the command line and exit with its status."""
    # Python looks for cycles after each 700 new objects, which is a tenth of the time of reading a large manifest; its
    # rows are in no cycle.
    gc.set_threshold(50_000, 20, 100)
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
