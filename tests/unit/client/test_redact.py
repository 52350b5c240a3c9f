"""The description of a reply that was not understood. Law 10."""

from batchkiln.client.redact import describe_shape


def test_names_and_types_are_reported_and_no_values() -> None:
    """A person sees what came, and nothing secret of it. Laws 8 and 10."""
    document = {"data": [{"id": "gen_secret", "price": 12, "ok": True, "none": None}], "next": "https://x/?sig=1"}

    told = describe_shape(document)

    assert told == "{data: [{id: text, price: number, ok: boolean, none: null}], next: text}"


def test_a_name_that_may_be_an_id_or_a_link_is_not_told() -> None:
    """A map keyed by ids or urls keeps them to itself. Law 8."""
    assert describe_shape({"asset_98f1a2": {"url": "x"}}) == "{*: {url: text}}"
    assert describe_shape({"https://x/?sig=1": "y"}) == "{*: text}"


def test_what_is_deep_or_long_is_cut() -> None:
    """A line stays a line, whatever came."""
    deep: object = 1
    for _ in range(50):
        deep = {"a": [deep]}

    assert len(describe_shape(deep)) <= 400
    assert len(describe_shape({f"name_{chr(97 + n % 26)}{'x' * n}": n for n in range(1000)})) <= 400
