"""Dialects: the same service in another dress.

What the service's description leaves open ("not shown") is drawn from a seed; what it fixes stays as it is. The dress
is put on where a reply leaves the application, and taken off where a request enters it: the service below does not
know of it.
"""

from batchkiln_service.dialects.traits import TRAITS, Dialect

__all__ = ["TRAITS", "Dialect"]
