"""The Python interface: what `import batchkiln` offers, with and without asyncio."""
