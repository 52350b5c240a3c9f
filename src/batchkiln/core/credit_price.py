"""The price of a credit in money, as a person states it. The program shows it and decides nothing by it."""

import re
from decimal import Decimal
from typing import Final, Self

from msgspec import Struct

_FORM: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?([A-Z]{3})")


class CreditPrice(Struct, frozen=True):
    """The price of one credit; `currency` is a code of three letters, such as `EUR`."""

    amount: Decimal
    currency: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a price such as `0.02 EUR`. Raise `ValueError` for another form."""
        if (found := _FORM.fullmatch(text.strip())) is None:
            raise ValueError("a price of a credit is a number and a currency, such as 0.02 EUR")
        return cls(Decimal(found[1]), found[2])

    def of(self, amount: int) -> str:
        """Return the price of an amount of credits, with two decimals."""
        return f"{self.amount * amount:,.2f} {self.currency}"
