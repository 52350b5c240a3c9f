"""`variants`, `choose` and `review`: in items, in defaults and as templates, and what goes together."""

from pathlib import Path

import pytest

from batchkiln.core.job import VariantGroup
from unit.manifest.manifest_texts import HEADER, mistakes, placed, specs

WITH_DEFAULTS = (
    "version: 1\njob: test\ndefaults: {model: epsilon-2, mode: text-to-image, variants: 2, choose: 1, review: true}\n"
    "items:\n"
)


def test_variants_are_numbered_items_of_a_group(tmp_path: Path) -> None:
    """They are equal but for their ids."""
    found = specs(tmp_path, "- {id: owl, prompt: p, variants: 3, choose: 2, review: true}\n")

    assert [spec.name for spec in found] == ["owl-1", "owl-2", "owl-3"]
    assert {(spec.prompt, spec.group, spec.needs_review) for spec in found} == {("p", VariantGroup("owl", 2), True)}


def test_defaults_apply_and_an_item_takes_itself_out(tmp_path: Path) -> None:
    """A text is an item as well; `null` makes one item without a choice."""
    found = [
        one.spec
        for one in placed(tmp_path, WITH_DEFAULTS + "- A fox\n- {id: one, prompt: p, variants: null, review: false}\n")
    ]

    assert [(spec.name, spec.group, spec.needs_review) for spec in found] == [
        ("item-1-1", VariantGroup("item-1", 1), True),
        ("item-1-2", VariantGroup("item-1", 1), True),
        ("one", None, False),
    ]


def test_templates_decide_row_by_row(tmp_path: Path) -> None:
    """As for the other settings."""
    text = '- {matrix: {n: [1, 2]}, id: "i{{ n }}", prompt: p, variants: "{{ n }}", review: "{{ n == 2 }}"}\n'

    found = specs(tmp_path, text)

    assert [(spec.name, spec.needs_review) for spec in found] == [("i1-1", False), ("i2-1", True), ("i2-2", True)]


@pytest.mark.parametrize(
    ("item", "column", "reason"),
    [
        ("- {prompt: p, variants: 0}", 25, "`variants`"),
        ("- {prompt: p, variants: 101}", 25, "`variants`"),
        ("- {prompt: p, choose: 1}", 23, "`choose` needs `variants`"),
        ("- {prompt: p, variants: 2, choose: 3}", 36, "`choose` is 3, and there are 2 `variants`"),
        ("- {prompt: p, variants: 2, repeat: 2}", 28, "`repeat` or `variants`, not both"),
        ('- {matrix: {n: [1]}, id: "i{{ n }}", prompt: p, repeat: 2, variants: 2}', 49, "`repeat` or `variants`"),
        ("- {prompt: p, review: maybe}", 23, "`review`"),
    ],
)
def test_what_does_not_go_together_is_reported_at_its_place(
    tmp_path: Path, item: str, column: int, reason: str
) -> None:
    """With line and column, before anything is enqueued."""
    found = mistakes(tmp_path, f"{HEADER}{item}\n")

    assert reason in found[0].reason
    assert (found[0].line, found[0].column) == (5, column)
