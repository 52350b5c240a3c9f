"""The Python interface: what `import batchkiln` offers, and what the commands are made of."""
