"""What holds for all tests."""

import os

# Commands are started by the hundred: a machine that keeps no bytecode would compile the whole program for each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
