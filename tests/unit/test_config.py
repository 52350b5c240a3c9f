"""Configuration: what is read, and how a mistake is told."""

import os
from contextlib import nullcontext
from datetime import UTC, datetime
from errno import EACCES
from pathlib import Path
from textwrap import dedent

import jsonschema_rs
import pytest

from batchkiln.config import Hook, QueueSetting, Traces, config_of, config_schema, find_file, load_config, queue_setting
from batchkiln.core.cell_widths import cell_width
from batchkiln.core.errors import InputError
from batchkiln.core.response_rules import RefusalMeaning, RefusalRule, ReplyField, remedy_line

NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent"}


def write(folder: Path, text: str, name: str = "batchkiln.yaml") -> Path:
    path = folder / name
    path.write_text(dedent(text), "utf-8")
    return path


@pytest.mark.parametrize(("text", "scale"), [("60", 60.0), ("0.5", 0.5), ("", 1.0)])
def test_environment_carries_the_speed_of_a_local_service(text: str, scale: float) -> None:
    """As `serve` prints it: waits of the client then fit the service's clock."""
    environ = {
        "BATCHKILN_BASE_URL": "http://127.0.0.1:1/api/v1",
        "BATCHKILN_API_KEY": "k",
        "BATCHKILN_TIME_SCALE": text,
    }

    assert load_config(None, environ).profile(None).time_scale == scale


@pytest.mark.parametrize("text", ["fast", "0", "-1", "inf", "nan"])
def test_a_senseless_speed_is_refused(text: str) -> None:
    """The message names the variable and what it holds."""
    environ = {
        "BATCHKILN_BASE_URL": "http://127.0.0.1:1/api/v1",
        "BATCHKILN_API_KEY": "k",
        "BATCHKILN_TIME_SCALE": text,
    }

    with pytest.raises(InputError, match=f"BATCHKILN_TIME_SCALE='{text}'"):
        load_config(None, environ)


@pytest.mark.parametrize(
    ("base_url", "is_refused"),
    [
        ("https://example.invalid/api/v1", True),
        ("https://localhost:1/api/v1", False),
        ("http://127.0.0.1:1/api", False),
    ],
)
def test_speed_of_a_rehearsal_never_reaches_a_real_service(tmp_path: Path, base_url: str, *, is_refused: bool) -> None:
    """A variable left from `serve` would have it polled sixty times too often; a profile's field likewise."""
    environ = {"BATCHKILN_BASE_URL": base_url, "BATCHKILN_API_KEY": "k"}
    account = "accounts: [{name: m, keys: [{env: A}]}]"
    path = write(tmp_path, f"profiles: {{a: {{base_url: '{base_url}', time_scale: 60, {account}}}}}")

    for config, variables in ((None, environ | {"BATCHKILN_TIME_SCALE": "60"}), (path, {})):
        refused = pytest.raises(InputError, match="speed of 60 is for a local service") if is_refused else nullcontext()
        with refused:
            load_config(config, variables)
    assert load_config(None, environ | {"BATCHKILN_TIME_SCALE": "1"}).profile(None).time_scale == 1


def test_speed_of_the_environment_is_for_its_own_profile(tmp_path: Path) -> None:
    """Profiles of the file keep theirs."""
    text = "profiles: {a: {base_url: 'https://example.invalid', accounts: [{name: m, keys: [{env: A}]}]}}"
    environ = {"BATCHKILN_BASE_URL": "http://127.0.0.1:1", "BATCHKILN_API_KEY": "k", "BATCHKILN_TIME_SCALE": "60"}

    config = load_config(write(tmp_path, text), environ)

    assert {name: profile.time_scale for name, profile in config.profiles.items()} == {"a": 1, "env": 60, "local": 60}


def test_without_a_file_there_is_the_local_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first try needs no configuration. Contract, section 1."""
    monkeypatch.chdir(tmp_path)

    profile = load_config(None, NOWHERE).profile(None)

    assert profile.name == "local"
    assert profile.is_embedded
    assert profile.account_names == ("main",)


def test_whole_profile_is_read(tmp_path: Path) -> None:
    """Every field of the contract, section 6."""
    path = write(
        tmp_path,
        """
        default_profile: studio
        profiles:
          studio:
            base_url: http://example.invalid/api/v1/
            allow_http: true
            accounts:
              - name: main
                keys: [{file: key.txt}]
            limits:
              creates_per_minute: 3
              upload_bytes_per_day: 2 MiB
              poll_interval_seconds: 2.5
              output_bytes: 3 GiB
            allow_http_links: true
            credit_price: 0.02 EUR
            time_scale: 60
            day_seconds: 600
            day_start: "2026-01-01T00:00:17Z"
        """,
    )
    (tmp_path / "key.txt").write_text("secret\n")

    profile = load_config(path, NOWHERE).profile(None)

    assert profile.base_url == "http://example.invalid/api/v1"
    assert profile.allows_http
    assert profile.keys("main") == ["secret"]
    assert profile.limits.creates_per_minute == 3
    assert profile.limits.reads_per_minute == 60
    assert profile.limits.upload_bytes_per_day == 2 * 1024 * 1024
    assert profile.limits.poll_interval_seconds == 2.5
    assert profile.limits.output_bytes == 3 * 1024**3
    assert profile.allow_http_links
    assert profile.credit_price is not None
    assert profile.credit_price.of(154) == "3.08 EUR"
    assert profile.time_scale == 60.0
    assert (profile.day.seconds, profile.day.start) == (600.0, datetime(2026, 1, 1, 0, 0, 17, tzinfo=UTC))


def test_environment_makes_a_profile_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base URL and key alone are enough, and then the default. Contract, section 6."""
    monkeypatch.setenv("BATCHKILN_API_KEY", "secret")
    monkeypatch.chdir(tmp_path)
    environ = NOWHERE | {"BATCHKILN_BASE_URL": "https://example.invalid", "BATCHKILN_API_KEY": "secret"}

    profile = load_config(None, environ).profile(None)

    assert (profile.name, profile.keys("main")) == ("env", ["secret"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("profiles: {a: {base_url: 'ftp://x'}}", "base"),
        ("profiles: {a: {base_url: 'https://user:pass@x'}}", "base"),
        ("profiles: {a: {base_url: 'https://x'}}", "account"),
        ("profiles: {a: {limits: {creates_per_minute: 0}}}", "creates_per_minute"),
        ("profiles: {a: {limits: {creates_per_minut: 5}}}", "creates_per_minut"),
        ("profiles: {a: {limits: {active_generations: 2}}}", "active_generations"),
        ("profiles: {a: {accounts: [{name: m, keys: [{env: A, file: b}]}]}}", "keys"),
        (
            "profiles: {a: {accounts: [{name: m, keys: [{env: A}]}, {name: m, keys: [{env: A}]}]}}",
            "two accounts have the name 'm'",
        ),
        ("profiles: {a: {time_scale: 0}}", "time_scale"),
        ("profiles: {a: {replies: {fields: {asset: id}}}}", "asset"),
        ("profiles: {a: {replies: {fields: {asset_id: 'a['}}}}", "not a JMESPath"),
        ("profiles: {a: {replies: {fields: {asset_id: /data/id}}}}", "JSON Pointer"),
        ("profiles: {a: {replies: {refusals: [{means: busy}]}}}", "at least one of"),
        ("profiles: {a: {replies: {refusals: [{status: 422, means: over}]}}}", "means"),
        ("profiles: {a: {replies: {refusal: []}}}", "replies.refusal"),
        ("default_profile: missing", "missing"),
        ("profiles: {studio: {}}\ndefault_profile: studo", r"batchkiln.yaml:2:18: .*\n +did you mean `studio`"),
        ("profiles: [", "batchkiln.yaml"),
    ],
)
def test_mistake_is_reported(tmp_path: Path, text: str, told: str) -> None:
    """A person's mistake names its field, and nothing is begun."""
    with pytest.raises(InputError, match=told):
        load_config(write(tmp_path, text), NOWHERE)


def test_replies_are_read_as_a_person_writes_them(tmp_path: Path) -> None:
    """The very line that an error prints can be pasted below the profile. Contract, section 10."""
    line = remedy_line(ReplyField.ASSET_ID, 'data.files[]."it\'s"')
    path = write(tmp_path, f"profiles:\n  a:\n    {line}\n")
    refusals = "[{status: 422, code: E1017, means: no_credits}, {text: still rendering, means: busy}]"
    other = write(tmp_path, f"profiles: {{a: {{replies: {{refusals: {refusals}}}}}}}", name="other.yaml")

    assert load_config(path, NOWHERE).profile("a").replies.fields == {ReplyField.ASSET_ID: 'data.files[]."it\'s"'}
    assert load_config(other, NOWHERE).profile("a").replies.refusals == (
        RefusalRule(RefusalMeaning.NO_CREDITS, status=422, code="E1017"),
        RefusalRule(RefusalMeaning.BUSY, text="still rendering"),
    )


def test_mistake_has_its_line(tmp_path: Path) -> None:
    """File, line and column, with the line itself."""
    path = write(tmp_path, "profiles:\n  a:\n    limits:\n      reads_per_day: none\n")

    with pytest.raises(InputError) as told:
        load_config(path, NOWHERE)

    assert f"{path}:4:" in str(told.value)
    assert "reads_per_day: none" in str(told.value)


def test_two_accounts_with_one_name_are_named(tmp_path: Path) -> None:
    """The place is that of the second name. A line with keys is not shown, since one may be written out."""
    for text, (line, column), source in (
        ("      - {name: a, keys: [{env: A}]}\n      - {name: a, keys: [{env: B}]}\n", (6, 16), None),
        ("      - name: a\n        keys: [{env: A}]\n      - name: a\n        keys: [{env: B}]\n", (7, 15), "name: a"),
    ):
        accounts = f"profiles:\n  studio:\n    base_url: https://x.invalid\n    accounts:\n{text}"
        with pytest.raises(InputError, match="two accounts have the name 'a': give each a name of its own") as told:
            load_config(write(tmp_path, accounts), {})

        mistake = next(each for each in told.value.mistakes if "two accounts" in each.reason)
        assert (mistake.line, mistake.column) == (line, column)
        assert (mistake.source_line or "").removeprefix("      - ") == (source or "")


def test_mistakes_have_the_order_of_the_lines(tmp_path: Path) -> None:
    """As those of a manifest, whatever order the fields are checked in."""
    path = write(tmp_path, "http: {port: many}\nnotfy: 1\nconfirm_above_credits: lots\nprofiles: 3\n")

    with pytest.raises(InputError) as error:
        load_config(path, NOWHERE)

    assert [mistake.line for mistake in error.value.mistakes] == [1, 2, 3, 4]


def test_missing_key_names_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 8: the place of a key is told, never a key."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    text = "profiles: {a: {base_url: 'https://x', accounts: [{name: m, keys: [{env: NO_SUCH_KEY}, {file: gone}]}]}}"
    profile = load_config(write(tmp_path, text), NOWHERE).profile("a")

    with pytest.raises(InputError, match="NO_SUCH_KEY, the file gone"):
        profile.keys("m")


def test_unknown_profile_suggests_a_known_one(tmp_path: Path) -> None:
    """A slip of the finger is answered with the name that was meant."""
    config = load_config(write(tmp_path, "profiles: {studio: {}}"), NOWHERE)

    with pytest.raises(InputError, match="did you mean `studio`"):
        config.profile("studoi")


def test_named_file_has_to_be_there(tmp_path: Path) -> None:
    """A wrong --config is not passed over."""
    with pytest.raises(InputError, match="this configuration file does not exist"):
        load_config(tmp_path / "gone.yaml", NOWHERE)


def test_address_without_a_key_is_refused() -> None:
    """Half of the two variables would quietly mean another service."""
    with pytest.raises(InputError, match="BATCHKILN_API_KEY"):
        load_config(None, NOWHERE | {"BATCHKILN_BASE_URL": "https://example.invalid"})


def test_above_how_many_credits_a_person_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a day's credits, unless the configuration says otherwise; 0 is a bound as well."""
    monkeypatch.chdir(tmp_path)

    assert load_config(None, NOWHERE).confirm_above_credits == 1000
    assert load_config(write(tmp_path, "confirm_above_credits: 0\n"), NOWHERE).confirm_above_credits == 0


@pytest.mark.parametrize("value", ["-1", "much", "1.5"])
def test_a_bound_of_the_question_is_a_whole_number(tmp_path: Path, value: str) -> None:
    """Anything else is a mistake with its place."""
    with pytest.raises(InputError, match="confirm_above_credits"):
        load_config(write(tmp_path, f"confirm_above_credits: {value}\n"), NOWHERE)


def test_notifiers_are_read_with_the_places_of_their_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses are read as plain text, from the environment or from a file, and are never shown (Law 8)."""
    path = write(
        tmp_path,
        """
        notify:
          phone: {apprise: {file: phone.txt}, events: [item_held, account_blocked]}
          ci: {webhook: {url: "https://ci.invalid/canary", secret_env: CI_SECRET}}
          gone: {apprise: {env: NOT_THERE}}
          odd: {webhook: {url: {env: ODD_URL}}}
        """,
    )
    (tmp_path / "phone.txt").write_text("ntfy://canary\n")
    monkeypatch.setenv("CI_SECRET", "canary")
    monkeypatch.setenv("ODD_URL", "canary://x")

    notifiers = load_config(path, NOWHERE).notifiers

    assert notifiers["phone"].url() == "ntfy://canary"
    assert notifiers["phone"].events == frozenset({"item_held", "account_blocked"})
    assert notifiers["ci"].url() == "https://ci.invalid/canary"
    assert notifiers["ci"].secret_text() == "canary"
    assert notifiers["ci"].events is None
    assert "canary" not in repr(notifiers)
    with pytest.raises(InputError, match="notifier gone: no URL found in the environment variable NOT_THERE"):
        notifiers["gone"].url()
    with pytest.raises(InputError, match="neither https:// nor http://") as odd:
        notifiers["odd"].url()
    assert "canary" not in str(odd.value)


@pytest.mark.parametrize(
    ("notifier", "reason"),
    [
        ("{}", "exactly one of apprise and webhook"),
        ("{apprise: ntfy}", "a URL, or where it is stored"),
        ("{apprise: {env: A, file: b}}", "exactly one of env, file and keyring"),
        ("{apprise: 'ntfy://x', events: [job_endet]}", "job_ended"),
        ("{webhook: {secret_env: A}}", "is missing"),
    ],
)
def test_mistaken_notifiers_are_reported(notifier: str, reason: str, tmp_path: Path) -> None:
    """With what would be right."""
    path = write(tmp_path, f"notify:\n  ci: {notifier}\n")

    with pytest.raises(InputError, match=reason):
        load_config(path, NOWHERE)


def test_traces_go_where_the_file_or_the_environment_says(tmp_path: Path) -> None:
    """The file wins, the standard variables do as well, and nothing is sent where neither names a place."""
    named = write(tmp_path, "traces: {endpoint: 'http://collector:4318/'}\n")
    variable = NOWHERE | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318"}
    empty = tmp_path / "empty.yaml"
    empty.write_text("", "utf-8")

    assert load_config(named, variable).traces == Traces("http://collector:4318")
    assert load_config(empty, variable).traces == Traces(None)
    assert load_config(empty, NOWHERE).traces is None
    assert load_config(named, NOWHERE | {"OTEL_SDK_DISABLED": "true"}).traces is None
    assert load_config(empty, variable | {"OTEL_TRACES_EXPORTER": "none"}).traces is None
    assert config_of({}).traces is None


def test_endpoint_of_traces_is_not_shown(tmp_path: Path) -> None:
    """It may contain a token, so no error message and no `repr` shows it."""
    path = write(tmp_path, "traces: {endpoint: 'htps://canary.invalid/token'}\n")

    with pytest.raises(InputError, match=r"`traces\.endpoint`: the URL of a collector begins with") as raised:
        load_config(path, NOWHERE)

    assert "canary" not in str(raised.value)
    assert "canary" not in repr(Traces("https://canary.invalid/token"))


CLEAR = "profiles: {{a: {{base_url: '{}', accounts: [{{name: main, keys: [{{env: KEY}}]}}]{}}}}}"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8080/api/v1", "http://127.3.2.1", "http://[::1]:80", "http://localhost", "https://x.invalid"],
)
def test_keys_go_without_encryption_only_within_this_machine(tmp_path: Path, url: str) -> None:
    """Loopback is on no network (Law 8)."""
    assert load_config(write(tmp_path, CLEAR.format(url, "")), NOWHERE).profiles["a"].base_url == url


@pytest.mark.parametrize(
    "url", ["http://x.invalid/api/v1", "http://10.0.0.1", "http://localhost.x.invalid", "http://0.0.0.0"]
)
def test_keys_in_clear_are_refused_unless_allowed(tmp_path: Path, url: str) -> None:
    """The mistake stands at the address, and names both remedies (Law 8)."""
    with pytest.raises(
        InputError, match=r":1:\d+: `profiles\.a\.base_url`: http:// would send API keys unencrypted"
    ) as refused:
        load_config(write(tmp_path, CLEAR.format(url, "")), NOWHERE)

    assert "https://" in str(refused.value)
    assert "allow_http: true" in str(refused.value)
    assert load_config(write(tmp_path, CLEAR.format(url, ", allow_http: true")), NOWHERE).profiles["a"].allows_http
    assert load_config(write(tmp_path, CLEAR.format(url, ", allow_http: true")), NOWHERE).profiles["a"].base_url == url


def test_keys_in_clear_by_the_environment_are_refused_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BATCHKILN_BASE_URL has a variable beside it for that."""
    monkeypatch.chdir(tmp_path)
    environ = NOWHERE | {"BATCHKILN_BASE_URL": "http://x.invalid/api/v1", "BATCHKILN_API_KEY": "secret"}

    with pytest.raises(InputError, match="BATCHKILN_ALLOW_HTTP=1"):
        load_config(None, environ)
    assert load_config(None, environ | {"BATCHKILN_ALLOW_HTTP": "1"}).profile(None).allows_http


def test_a_hook_is_read_with_its_bounds(tmp_path: Path) -> None:
    """A program with a slash in its name is beside the file; a list is the command alone."""
    whole = """
        on_saved:
          command: [./check, "{path}", "{{x}}"]
          at_once: 4
          timeout_seconds: 2.5
          redos: 1
          redo_credits: 50
        """

    hook = load_config(write(tmp_path, whole), NOWHERE).on_saved
    short = load_config(write(tmp_path, 'on_saved: [check, "{item}"]'), NOWHERE).on_saved

    assert hook == Hook((str(tmp_path / "check"), "{path}", "{{x}}"), tmp_path, 4, 2.5, 1, 50)
    assert short == Hook(("check", "{item}"), tmp_path)
    assert load_config(write(tmp_path, "profiles: {}"), NOWHERE).on_saved is None


def test_accounts_as_a_mapping_are_asked_for_as_a_list(tmp_path: Path) -> None:
    """The reason is in the words of a configuration, and not of a library."""
    text = "profiles: {studio: {base_url: https://example.com/v1, accounts: {main: {}}}}"
    with pytest.raises(InputError, match="accounts`: a list is expected: begin each entry with a hyphen"):
        load_config(write(tmp_path, text), NOWHERE)


@pytest.mark.parametrize("keys", ["[sk-123]", "[{env: A}, sk-123]", "sk-123"])
def test_an_api_key_that_is_written_out_is_told_where_to_go(tmp_path: Path, keys: str) -> None:
    """The remedy names the places for it, and the key itself is not repeated (Law 8)."""
    text = f"profiles: {{studio: {{base_url: https://example.com/v1, accounts: [{{name: main, keys: {keys}}}]}}}}"

    with pytest.raises(InputError) as error:
        load_config(write(tmp_path, text), NOWHERE)

    assert "name its place, as in {env: STUDIO_KEY}, {file: PATH} or {keyring: NAME}" in str(error.value)
    assert "sk-123" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("on_saved: []", "at least 1 item"),
        ('on_saved: ["{path}"]', "the first argument is the program; it has no field"),
        ('on_saved: [check, "{paht}"]', "there is no field {paht}; did you mean `path`?"),
        ('on_saved: [check, "{path.__class__}"]', "a single brace"),
        ('on_saved: [check, "{}"]', "there is no field {}"),
        ("on_saved: check {path}", "a mapping of fields is expected"),
        ("on_saved: {command: [check], redo: 2}", "unknown field `on_saved"),
        ("on_saved: {command: [check], timeout_seconds: 0}", "greater than 0"),
        ("on_saved: {command: [check], at_once: 17}", "less than or equal to 16"),
    ],
)
def test_a_wrong_hook_is_an_error_at_its_place(tmp_path: Path, text: str, reason: str) -> None:
    """Line, field and reason are told, before anything is sent."""
    with pytest.raises(InputError) as error:
        load_config(write(tmp_path, text), NOWHERE)

    assert reason in str(error.value)
    assert "batchkiln.yaml:1:" in str(error.value)


def test_field_that_is_given_twice_is_an_error_at_its_place(tmp_path: Path) -> None:
    """The last one would win silently, for a limit of money for example."""
    text = """
        profiles:
          studio:
            limits:
              credits_per_day: 5
              credits_per_day: 5000
        profiles: {}
        """

    with pytest.raises(InputError) as error:
        load_config(write(tmp_path, text), NOWHERE)

    told = str(error.value)
    assert "the key `credits_per_day` appears here a second time" in told
    assert "the key `profiles` appears here a second time" in told
    assert told.count("batchkiln.yaml:") == 2


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("profile: {}", "profiles"),
        ("profiles: {studio: {time_scal: 2}}", "time_scale"),
        ("profiles: {studio: {limits: {credit_per_day: 2}}}", "credits_per_day"),
        ("profiles: {studio: {credit_prise: 1}}", "credit_price"),
        ("on_saved: {comand: [check]}", "command"),
    ],
)
def test_misspelt_field_names_the_one_that_was_meant(tmp_path: Path, text: str, meant: str) -> None:
    """Only fields of that place are named."""
    with pytest.raises(InputError) as error:
        load_config(write(tmp_path, text), NOWHERE)

    (mistake,) = [each for each in error.value.mistakes if each.reason.startswith("unknown field")]
    _, line, mark, remedy = str(mistake).splitlines()
    assert line[mark.index("^") :].startswith(
        mistake.reason.rstrip("`").rpartition(".")[2].removeprefix("unknown field `")
    )
    assert remedy == f"    did you mean `{meant}`?"


@pytest.mark.parametrize("field", ["value", "secret"])
def test_an_unknown_place_of_a_key_names_those_there_are(tmp_path: Path, field: str) -> None:
    """The error names the three places, and never the value. Law 8."""
    text = f"profiles: {{studio: {{accounts: [{{name: main, keys: [{{{field}: lk_klmnopqrstuvw}}]}}]}}}}"
    with pytest.raises(InputError) as error:
        load_config(write(tmp_path, text), NOWHERE)

    assert "as in {env: STUDIO_KEY}, {file: PATH} or {keyring: NAME}" in str(error.value)
    assert "klmnopqrstuvw" not in str(error.value)


def test_a_long_line_is_shown_around_the_mistake(tmp_path: Path) -> None:
    """The mark stays below the field on a terminal of 60 columns, which would wrap the whole line."""
    limits = "limits: {credits_per_day: 5, creates_per_minute: 4, active_generations: 1, creates_per_dy: 3}"

    with pytest.raises(InputError) as error:
        load_config(write(tmp_path, f"profiles: {{studio: {{{limits}}}}}"), NOWHERE)

    _, line, mark, _ = str(error.value).splitlines()
    assert len(line) <= 60
    assert line[mark.index("^") :].startswith("creates_per_dy")


def test_a_long_line_of_wide_characters_is_cut_by_columns(tmp_path: Path) -> None:
    """Each takes two, so that half as many of them fit."""
    path = write(tmp_path, f"profiles: {{{'雪' * 40}: {{}}, studio: {{time_scale: {'狐' * 40}}}}}")

    with pytest.raises(InputError) as error:
        load_config(path, NOWHERE)

    _, line, mark = str(error.value).splitlines()
    assert cell_width(line) <= 60
    before = line[: line.index("狐")]
    assert before.endswith("{time_scale: ")
    assert mark == " " * cell_width(before) + "^"


def test_schema_of_the_configuration_takes_what_the_reader_takes() -> None:
    """Each shape of a size and of a hook, and no misspelt field."""
    schema = jsonschema_rs.Draft202012Validator(config_schema())
    limits = {"credits_per_day": 5, "upload_bytes_per_day": "2 MiB"}

    assert schema.is_valid({"profiles": {"a": {"limits": limits}}, "on_saved": ["check", "{path}"]})
    assert schema.is_valid({"on_saved": {"command": ["check"]}})
    assert not schema.is_valid({"profile": {}})


def test_api_key_without_an_address_is_told(tmp_path: Path) -> None:
    """It would be ignored, and the local service's pictures be taken for the service's."""
    with pytest.raises(InputError, match="BATCHKILN_API_KEY is set, but BATCHKILN_BASE_URL is not"):
        load_config(None, NOWHERE | {"BATCHKILN_API_KEY": "k"})

    text = (
        "profiles: {studio: {base_url: 'https://a.example', accounts: [{name: a, keys: [{env: BATCHKILN_API_KEY}]}]}}"
    )
    assert load_config(write(tmp_path, text), NOWHERE | {"BATCHKILN_API_KEY": "k"}).profile("studio").accounts


@pytest.mark.parametrize("size", ["lots", "3 parrots", "4 GB per file", "-1 GB"])
def test_a_wrong_size_is_explained_with_an_example(tmp_path: Path, size: str) -> None:
    """The error does not speak of the parser."""
    text = f"profiles:\n  local:\n    limits: {{output_bytes: {size}}}\n"

    with pytest.raises(InputError, match="a size is expected, such as 500 MiB or 2 GiB"):
        load_config(write(tmp_path, text), NOWHERE)


@pytest.mark.parametrize("token", ["google_default", "anon"])
def test_where_gcsfs_looks_for_credentials_is_no_secret(tmp_path: Path, token: str) -> None:
    """A token that is written out is refused, and not repeated."""
    config = load_config(write(tmp_path, f"object_storage: {{options: {{gs: {{token: {token}}}}}}}"), NOWHERE)

    assert config.object_storage.options == {"gs": {"token": token}}
    with pytest.raises(InputError, match="`token` is a secret") as caught:
        load_config(write(tmp_path, "object_storage: {options: {gs: {token: ya29.abcdef}}}"), NOWHERE)
    assert "ya29" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "profiles: {studio: {base_url: 'https://s.example/api/v1', accounts: [{name: main, keys: [sk-live-canary]}]}}",
        "profiles:\n  studio:\n    accounts:\n      - name: main\n        keys:\n          - sk-live-canary\n",
        "profiles:\n  studio:\n    api_key: sk-live-canary\n",
    ],
)
def test_a_key_that_is_written_out_is_not_repeated(tmp_path: Path, text: str) -> None:
    """Law 8: the line of the mistake is left out, in JSON too."""
    with pytest.raises(InputError) as caught:
        load_config(write(tmp_path, text), NOWHERE)

    assert [mistake.source_line for mistake in caught.value.mistakes if "canary" in (mistake.source_line or "")] == []
    assert "batchkiln.yaml:" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_configuration_folder_that_cannot_be_looked_into_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file may name another service; the message names the file, the reason and --config."""
    home = tmp_path / "home"
    looked_at = Path.stat

    def refusing(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if home in path.parents:
            raise PermissionError(EACCES, "Permission denied")
        return looked_at(path, follow_symlinks=follow_symlinks)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "stat", refusing)

    with pytest.raises(InputError, match=r"batchkiln\.yaml: .*Permission denied.*--config"):
        find_file(None, {"XDG_CONFIG_HOME": str(home)})
    assert queue_setting(None, {"XDG_CONFIG_HOME": str(tmp_path)}) == QueueSetting()


def test_an_unknown_field_without_a_near_name_lists_the_known_ones(tmp_path: Path) -> None:
    """An account's line is not shown, since it may hold a key; what may stand there is."""
    text = "profiles: {studio: {base_url: 'https://a.example', accounts: [{name: a, keys: [{env: K}], daily: 5}]}}"

    with pytest.raises(InputError) as caught:
        load_config(write(tmp_path, text), NOWHERE)

    assert [mistake.remedy for mistake in caught.value.mistakes] == ["there are: name, keys"]
