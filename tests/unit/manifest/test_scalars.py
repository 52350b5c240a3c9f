"""Plain scalars of YAML 1.2, and templates' fast paths."""

import math

import pytest

from batchkiln.manifest.templates import TemplateFailed, compile_condition, compile_template
from batchkiln.yaml_reading.yaml_parser import resolve


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "on",
        "off",
        "y",
        "16:9",
        "1:1",
        "1_000",
        "2020-01-01",
        "0b1",
        "0O7",
        "1e",
        "--1",
        "+",
        ".",
        "-.",
        "NaN",
        ".infinity",
        "tRUE",
        "nULL",
    ],
)
def test_text(text: str) -> None:
    """What YAML 1.1 took for something else is text."""
    assert resolve(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("", None), ("~", None), ("null", None), ("Null", None), ("true", True), ("FALSE", False), ("0777", 777)],
        *[
            ("0o14", 12),
            ("0x1F", 31),
            ("+12", 12),
            ("-3", -3),
            ("1.", 1.0),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("-.inf", -math.inf),
        ],
    ],
)
def test_values(text: str, value: object) -> None:
    """Null, booleans and numbers as the core schema writes them."""
    found = resolve(text)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("value", ["a%s{}", "", 5, 2.5, True, False])
@pytest.mark.parametrize("template", ["{{ a }}", "x {{ a }}%\n", "{{a}}{{a}}", "{{ a }}{# note #}"])
def test_fast_paths_print_what_jinja_prints(template: str, value: object) -> None:
    """A template of bare variables gives the same as one that Jinja renders."""
    slow = template.replace("a }}", "a if true else a }}").replace("{{a}}", "{{ a if true else a }}")

    assert compile_template(template).render({"a": value}) == compile_template(slow).render({"a": value})


@pytest.mark.parametrize("value", [None, ["x"], {"x": 1}])
def test_what_is_no_text_is_not_printed(value: object) -> None:
    """`None` or a list in a prompt would be paid for; it is an error."""
    for template in ("{{ a }}", "x{{ a }}", "{{ a if true else a }}"):
        with pytest.raises(TemplateFailed):
            compile_template(template).render({"a": value})


@pytest.mark.parametrize("expression", ["cat = 'x'", "(cat = 'x')", "a == 1 and cat = 'x'", "not cat = 'x'"])
def test_one_equals_sign_names_the_comparison(expression: str) -> None:
    """As in SQL, which many who filter tables know."""
    with pytest.raises(TemplateFailed, match="`=` does not compare; equality is `==`"):
        compile_condition(expression)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ a | uper }}", "there is no filter `uper`; did you mean `upper`?"),
        ("{{ a | xyzzy }}", "there is no filter `xyzzy`; there are "),
        ("{{ a is defned }}", "there is no test `defned`; did you mean `defined`?"),
        ("{% if a = 1 %}x{% endif %}", "`=` does not compare; equality is `==`"),
    ],
)
def test_what_a_template_does_not_know_is_told_with_a_remedy(template: str, reason: str) -> None:
    """Filters, tests and the sign of a comparison."""
    with pytest.raises(TemplateFailed) as told:
        compile_template(template)

    assert told.value.reason.startswith(f"the template is not valid: {reason}")


def test_an_unknown_test_of_an_if_is_told_alike() -> None:
    """Jinja looks it up when the template is rendered."""
    with pytest.raises(TemplateFailed, match="there is no test `defned`; did you mean `defined`"):
        compile_template("{% if a is defned %}x{% endif %}").render({"a": 1})
