"""The Python API: everything that `import batchkiln` offers and that the commands use."""
