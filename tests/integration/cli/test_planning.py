"""`plan`, and the question that `run` asks on a terminal, as a person meets them (contract, section 4)."""

import re
from typing import Final

import pytest

from integration.cli.workspace import (
    HURRIED,
    UNHURRIED,
    Workspace,
    finished,
    interrupt,
    on_a_terminal,
    until_line,
)

ASKING = f"confirm_above_credits: 3\n{HURRIED}"


def test_a_plan_leaves_nothing_behind(workspace: Workspace) -> None:
    """No queue, no folder of the local service, no output."""
    manifest = workspace.manifest()
    before = sorted(path.name for path in workspace.folder.iterdir())

    result = workspace.call("plan", manifest)

    assert result.exit == 0, result.err
    assert "2 new, 0 known, 0 changed, 0 removed" in result.out
    assert "SLOT TIME (service time)" in result.out  # the end below it is in real time
    assert "Nothing was sent, spent or changed." in result.out
    assert sorted(path.name for path in workspace.folder.iterdir()) == before


def test_the_document_has_differences_cost_and_calendar(workspace: Workspace) -> None:
    """--json: one document on standard output."""
    document = workspace.call("plan", workspace.manifest(), "--json").document

    (job,) = document["jobs"]
    assert (job["job"], job["items"]["new"], job["to_send"]) == ("foxes", 2, 2)
    assert [change["item"] for change in job["changes"]] == ["fox-1", "fox-2"]
    assert document["cost"]["credits"] == 4
    days = document["calendars"][0]["days"]  # two of them, just before midnight
    assert (sum(day["items"] for day in days), sum(day["credits"] for day in days)) == (2, 4)
    assert days[0]["day"] <= job["earliest_end_at"] < job["estimated_end_at"] < job["latest_end_at"]
    assert document["has_work"] is True


def test_the_detailed_exit_code_shows_whether_there_is_something_to_do(workspace: Workspace) -> None:
    """2 before the run, 0 after it, 2 again for a changed manifest; without the option always 0."""
    manifest = workspace.manifest()
    before = workspace.call("plan", manifest, "--detailed-exitcode")
    assert workspace.call("run", manifest).exit == 0
    after = workspace.call("plan", manifest, "--detailed-exitcode")
    workspace.manifest(items=3)
    changed = workspace.call("plan", manifest, "--detailed-exitcode")

    assert (before.exit, after.exit, changed.exit) == (2, 0, 2)
    assert "nothing to send" in after.out
    assert "+ fox-3" in changed.out
    assert workspace.call("plan", manifest).exit == 0
    assert workspace.call("plan", "gone.yaml", "--detailed-exitcode").exit == 1  # as Terraform has it
    assert workspace.call("plan", "gone.yaml").exit == 2


def test_a_plan_of_what_a_run_refuses_ends_as_the_run(workspace: Workspace) -> None:
    """2 for a changed request and for a second payment under new ids, and 1 with --detailed-exitcode."""
    manifest = workspace.manifest()
    assert workspace.call("run", manifest).exit == 0
    path = workspace.folder / manifest
    text = path.read_text("utf-8")
    last = []
    for old, new in (("fox-", "red-fox-"), ("prompt: ", "prompt: One more ")):
        path.write_text(text.replace(old, new), "utf-8")
        planned = workspace.call("plan", manifest)
        assert planned.exit == workspace.call("run", manifest).exit == 2
        assert workspace.call("plan", manifest, "--detailed-exitcode").exit == 1
        last.append(planned.out.splitlines()[-1])

    assert last == [
        "`run` would refuse this (exit 2): foxes: 2 items would be paid for again under new ids.",
        "`run` would refuse this (exit 2): foxes: 2 items changed after being sent.",
    ]
    assert workspace.call("plan", manifest, "--on-change", "keep").exit == 0


def test_rows_of_the_cost_table_add_up_to_its_total(workspace: Workspace) -> None:
    """An item that would be rejected has a row as well, and its name in a warning."""
    manifest = workspace.manifest()
    with (workspace.folder / manifest).open("a", encoding="utf-8") as file:
        file.write("  - {id: dear, prompt: A fox, max_cost_credits: 1}\n")

    told = workspace.call("plan", manifest)
    document = workspace.call("plan", manifest, "--json").document

    table = {line[:23].strip(): line[23:].split() for line in told.out.splitlines()}
    assert table["rejected, not charged"] == ["1", "0", "0"]
    assert table["total"] == ["3", "4"]
    assert "dear (foxes.yaml:" in told.out
    assert document["cost"]["rejected_items"] == 1
    assert document["run_refuses"] == []


def test_a_queue_can_be_planned_for_while_it_is_driven(workspace: Workspace) -> None:
    """The plan neither waits for the other process nor keeps it waiting; what is under way is told."""
    workspace.configure(UNHURRIED)
    manifest = workspace.manifest(items=20)
    driving = workspace.start("run", manifest, "--json")
    until_line(driving, '"state":"active"')

    document = workspace.call("plan", manifest, "--json").document

    interrupt(driving)
    assert finished(driving).exit == 130
    (job,) = document["jobs"]
    assert (job["items"]["new"], job["items"]["known"]) == (0, 20)
    assert 0 < job["to_send"] < 20
    assert job["under_way"] <= 1


def test_a_manifest_on_standard_input_can_be_planned(workspace: Workspace) -> None:
    """`plan -` reads it as `run -` does."""
    text = (workspace.folder / workspace.manifest()).read_text("utf-8")

    assert "2 new" in workspace.call("plan", "-", stdin=text).out


@pytest.mark.parametrize("command", ["plan", "enqueue", "run"])
def test_two_manifests_of_one_job_are_refused_together(workspace: Workspace, command: str) -> None:
    """The items of the second would replace those of the first, so nothing is enqueued."""
    first, second = workspace.manifest(), "again.yaml"
    (workspace.folder / second).write_text((workspace.folder / first).read_text("utf-8"), "utf-8")

    result = workspace.call(command, first, second)

    assert (result.exit, result.out) == (2, "")
    assert f"two of these manifests define the job foxes: {first} and {second}; nothing was enqueued" in result.err
    assert workspace.call("items", "foxes").exit == 2  # there is no such job


@pytest.mark.parametrize("command", ["plan", "enqueue", "run", "rehearse"])
def test_the_mistakes_of_all_manifests_are_told_at_once(workspace: Workspace, command: str) -> None:
    """In their order, whether the mistake is in a header, in an item, or in the whole file; nothing is enqueued."""
    (workspace.folder / "one.yaml").write_text("version: 1\njob: one\nitems:\n  - prompt: fox\n    modle: a\n", "utf-8")
    (workspace.folder / "two.yaml").write_text("version: 1\njob: two\nitems: [{}]\n", "utf-8")
    (workspace.folder / "three.yaml").write_text("version: 1\njob: a/b\nitems: []\n", "utf-8")

    result = workspace.call(command, "one.yaml", workspace.manifest(), "two.yaml", "three.yaml")

    assert (result.exit, result.out) == (2, "")
    for told in ("one.yaml:5:5: unknown field `modle`", "two.yaml:3:9: `prompt` is missing", "three.yaml:2:6: `job`"):
        assert told in result.err
    assert workspace.call("items", "foxes").exit == 2  # there is no such job


_MANY_MISTAKES: Final = """version: 1
job: many
order: fast
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 1024x1024, aspect_ratio: "1:1"}}
items:
  - {id: a, prompt: fox, priority: high, model: epsilon2}
  - {id: b, prompt: fox, metadata: [1], parameters: {resolution: 99x99}}
  - {id: a, prompt: fox}
  - {id: b, prompt: 3}
  - {id: c, prompt: fox, mode: image-to-image, inputs: [{item: b}]}
  - {id: d, prompt: fox, inputs: [{item: b}], parameters: {aspect_ratio: "1:77"}}
  - matrix: {animal: [fox]}
    prompt: "{{ anmal }}"
    model: epsilon3
"""


def test_the_catalogue_and_the_ids_are_checked_beside_other_mistakes(workspace: Workspace) -> None:
    """Each item's mistakes are told together, also if the header has some; no mistake follows from another one."""
    (workspace.folder / "many.yaml").write_text(_MANY_MISTAKES, "utf-8")

    told = workspace.call("enqueue", "many.yaml").err

    reasons = [line.split(":", 3) for line in told.splitlines() if line.startswith("batchkiln: many")]
    assert [(int(line), rest.partition(": ")[2]) for *_, line, rest in reasons] == [
        (3, "`order` cannot be `fast`"),
        (6, "`priority` must be a whole number, and is text (high)"),
        (6, "the service lists no model `epsilon2`"),
        (7, "`metadata` must be a mapping, and is a list"),
        (7, "epsilon-2 offers no resolution 99x99"),
        (8, "the id 'a' is already used at many.yaml:6"),
        (9, "the id 'b' is already used at many.yaml:7"),
        (9, "`prompt` must be text, and is 3"),
        (11, "the mode text-to-image takes no images, and `inputs` names some"),
        (11, "epsilon-2 offers no aspect ratio 1:77"),
        (13, "`anmal` is undefined"),
        (14, "the service lists no model `epsilon3`"),
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("profile: nope", "many.yaml:3:10: no profile `nope` is configured"),
        ("account: second", "many.yaml:3:10: profile local has no account second"),
        ("accounts: [second]", "many.yaml:3:11: profile local has no account second"),
        ("notify: [nobody]", "many.yaml:3:9: `notify`: "),
    ],
)
def test_what_is_not_configured_is_told_at_its_place_with_the_other_mistakes(
    workspace: Workspace, line: str, told: str
) -> None:
    """The catalogue is that of the profile, so that the rest is checked later, which is told as well."""
    (workspace.folder / "many.yaml").write_text(_MANY_MISTAKES.replace("order: fast", line), "utf-8")

    err = workspace.call("plan", "many.yaml").err

    assert told in err
    assert "`priority` must be a whole number" in err
    assert err.rstrip().endswith("the rest is checked once these are corrected")


@pytest.mark.parametrize("more", [(), ("--detailed-exitcode",)])
def test_each_of_several_mistakes_begins_in_the_same_way(workspace: Workspace, more: tuple[str, ...]) -> None:
    """The lines that begin with the program's name are the mistakes, as many as there are."""
    (workspace.folder / "bad.yaml").write_text("version: 1\njob: a\nitmes: []\norder: no\n", "utf-8")

    told = workspace.call("plan", "bad.yaml", *more).err.splitlines()

    assert [line.split()[0] for line in told if "bad.yaml:" in line] == ["batchkiln:"] * 3


@pytest.mark.parametrize("command", ["plan", "enqueue", "run"])
def test_a_table_without_rows_is_a_warning(workspace: Workspace, command: str) -> None:
    """Each command names it, also for programs; a run of nothing is no silent success."""
    (workspace.folder / "t.csv").write_text("prompt\n", "utf-8")
    (workspace.folder / "t.yaml").write_text(
        "version: 1\njob: t\nitems:\n- {from: t.csv, model: epsilon-2, mode: text-to-image}\n", "utf-8"
    )

    told = workspace.call(command, "t.yaml")
    assert told.exit == 0
    assert "t.yaml:4: t.csv has no rows" in told.out + told.err
    if command != "run":  # whose --json are events
        document = workspace.call(command, "t.yaml", "--json").document
        (warning,) = document["warnings"] if command == "plan" else document["jobs"][0]["warnings"]
        assert warning.get("code", "no_rows") == "no_rows"
        assert "t.csv has no rows" in warning.get("message", warning.get("reason"))


def test_a_mistake_in_a_manifest_is_no_plan(workspace: Workspace) -> None:
    """Exit 2 with the place, and nothing on standard output."""
    (workspace.folder / "bad.yaml").write_text("version: 1\njob: a\nitmes: []\n", "utf-8")

    result = workspace.call("plan", "bad.yaml")

    assert (result.exit, result.out) == (2, "")
    assert "bad.yaml:3" in result.err


def test_a_no_on_the_terminal_enqueues_nothing(workspace: Workspace) -> None:
    """More than `confirm_above_credits` would be spent: the person is asked first."""
    workspace.configure(ASKING)
    manifest = workspace.manifest()

    exit_status, shown = on_a_terminal(workspace, "run", manifest, answer="n")

    assert exit_status == 2
    assert re.search(r"This may spend about 4 credits(, over 2 service days)?\.", shown)
    assert "nothing was enqueued, sent or spent" in shown
    assert workspace.call("status", "--json").document["jobs"] == []


def test_the_end_of_input_is_a_no(workspace: Workspace) -> None:
    """Ctrl-D in place of an answer: exit 2, as for a no, and nothing is enqueued."""
    workspace.configure(ASKING)

    exit_status, shown = on_a_terminal(workspace, "run", workspace.manifest(), "--json", answer="\x04")

    assert exit_status == 2
    assert "not confirmed: nothing was enqueued, sent or spent" in shown
    assert workspace.call("status", "--json").document["jobs"] == []


def test_a_yes_on_the_terminal_runs_and_keeps_the_prices(workspace: Workspace) -> None:
    """The run goes on with the quotes that the plan was told, which are not asked again."""
    workspace.configure(ASKING)
    manifest = workspace.manifest()

    exit_status, shown = on_a_terminal(workspace, "run", manifest, answer="y")

    assert exit_status == 0, shown
    assert "2 new, 0 known, 0 changed, 0 removed; 2 items to send" in shown
    events = workspace.call("show", "foxes", "fox-1", "--json").document["events"]
    assert "quoted" not in [event["event"] for event in events]


def test_nobody_is_asked_below_the_bound_or_with_yes(workspace: Workspace) -> None:
    """The short plan is shown all the same; --yes leaves it out."""
    workspace.configure(ASKING)

    cheap = on_a_terminal(workspace, "run", workspace.manifest(items=1), answer="n")
    agreed = on_a_terminal(workspace, "run", workspace.manifest("owls"), "--yes", answer="n")
    capped = on_a_terminal(workspace, "run", workspace.manifest("herons"), "--max-credits", "2", answer="n")

    assert (cheap[0], agreed[0], capped[0]) == (0, 0, 5)
    assert "Continue?" not in cheap[1] + agreed[1] + capped[1]
    assert "Cost: 2 credits." in cheap[1]
    assert "Local service: its credits are made up" in cheap[1]
    assert "Cost:" not in agreed[1]


def test_without_a_terminal_nobody_is_asked(workspace: Workspace) -> None:
    """A script runs as it did before."""
    workspace.configure(ASKING)

    result = workspace.call("run", workspace.manifest())

    assert result.exit == 0
    assert "Continue?" not in result.err


def test_a_bound_that_is_no_number_is_a_mistake(workspace: Workspace) -> None:
    """The configuration's own error, with line and column."""
    workspace.configure("confirm_above_credits: much\n")

    result = workspace.call("plan", workspace.manifest())

    assert result.exit == 2
    assert "batchkiln.yaml:1:24" in result.err


def test_money_stands_beside_the_credits(workspace: Workspace) -> None:
    """With the price of a credit, the plan, the end of a run and `status` tell money."""
    workspace.configure("profiles: {local: {credit_price: 0.02 EUR, time_scale: 600}}\n")
    manifest = workspace.manifest()
    plan = workspace.call("plan", manifest)
    run = workspace.call("run", manifest)

    assert "0.08 EUR" in plan.out
    assert "4 credits charged (0.08 EUR)" in run.out
    assert "4 spent (0.08 EUR)" in workspace.call("status", "foxes").out


def test_a_price_without_a_currency_is_refused_with_its_place(workspace: Workspace) -> None:
    """A mistake in the configuration is told, and nothing is sent."""
    workspace.configure("profiles: {local: {credit_price: cheap}}\n")

    result = workspace.call("plan", workspace.manifest())

    assert result.exit == 2
    assert "such as 0.02 EUR" in result.err
