"""Dialects: variants of the service's interface, drawn from a seed.

A dialect varies the parts that the service's description leaves open ("not shown"), and keeps the fixed ones. Requests
are translated as they enter the application, and replies as they leave; the rest of the service does not know the
dialect.
"""

from batchkiln_service.dialects.traits import TRAITS, Dialect

__all__ = ["TRAITS", "Dialect"]
