"""The environment: `.env` files, secrets, references, and child processes."""

import asyncio
import json
import os
import pickle
import sys

import pytest

from agentv.errors import AgentvError, end_of, start_of
from agentv.model.diagnostics import Problems, nearest
from agentv.model.environment import Environment, is_secret_name
from agentv.runs.redaction import Redactor
from agentv.sandbox.subprocesses import ProcessFailure, ProcessSpec, run_process
from agentv.settings.child_environment import child_environment
from agentv.settings.environment import (
    Home,
    Reference,
    SecretTexts,
    interpolate,
    is_secret_field,
    plain_value,
    redacted,
    references,
)
from agentv.trust.env_file import environment_of, load_environment, read_dotenv

SECRET = "sk-0123456789"


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """Only the variables that a test sets, and a project of its own."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        monkeypatch.delenv(name)


def own(variables):
    """Return variables without those that pytest sets."""
    return {name: value for name, value in variables.items() if not name.startswith("PYTEST_")}


DOTENV = {
    "a value": ("A=1", {"A": "1"}),
    "spaces around": ("  A  =  some words  ", {"A": "some words"}),
    "export": ("export A=1", {"A": "1"}),
    "nothing": ("A=", {"A": ""}),
    "a name alone": ("A\nB=1", {"B": "1"}),
    "comments": ("# A=0\nA=1 # one\n  # indented\n", {"A": "1"}),
    "a comment instead of a value": ("A= # nothing", {"A": ""}),
    "a hash inside": ("A=a#b", {"A": "a#b"}),
    "single quotes": ("A='a $b \\n #c'", {"A": "a $b \\n #c"}),
    "double quotes": (r'A="a \"b\" \\ \n \$c # d" # e', {"A": 'a "b" \\ \n $c # d'}),
    "quotes inside": ("A=it's", {"A": "it's"}),
    "several lines": ('A="-----BEGIN\nkey\n-----END"\nB=1', {"A": "-----BEGIN\nkey\n-----END", "B": "1"}),
    "an equals sign": ("A=b=c==", {"A": "b=c=="}),
    "line ends of Windows": ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
    "the last of two": ("A=1\nA=2", {"A": "2"}),
    "no expansion": ("A=1\nB=$A${A}", {"A": "1", "B": "$A${A}"}),
    "an empty file": ("", {}),
}


@pytest.mark.parametrize(("text", "expected"), DOTENV.values(), ids=DOTENV)
def test_a_dotenv_file_is_read(text, expected):
    assert read_dotenv(text) == expected


@pytest.mark.parametrize(
    ("text", "line"), [("A=1\n=2", 2), ("A 1", 1), ("A='open", 1), ('\n\nA="open\nB=1', 3), ("A='x' y", 1), ("1A=2", 1)]
)
def test_an_invalid_line_is_reported_by_number_and_not_shown(text, line):
    with pytest.raises(AgentvError) as raised:
        read_dotenv(text, "dir/.env")
    assert str(raised.value).startswith(f"Invalid line {line} in dir/.env\n  Expected KEY=VALUE")
    assert "open" not in str(raised.value)


def test_only_the_nearest_file_is_read(tmp_path, monkeypatch):
    inner = tmp_path / "evals" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / ".env").write_text("A=root\nB=root")
    (tmp_path / "evals" / ".env").write_text("A=near")
    monkeypatch.chdir(tmp_path)
    assert own(load_environment(str(inner), str(tmp_path)).variables) == {"A": "near"}
    assert own(load_environment(str(tmp_path), str(tmp_path)).variables) == {"A": "root", "B": "root"}


def test_the_search_ends_at_the_root_and_in_the_working_directory(tmp_path, monkeypatch):
    inner, elsewhere = tmp_path / "project" / "evals", tmp_path / "elsewhere"
    inner.mkdir(parents=True)
    elsewhere.mkdir()
    (tmp_path / ".env").write_text("A=outside")
    (elsewhere / ".env").write_text("A=here")
    monkeypatch.chdir(inner)
    assert load_environment(str(inner), str(tmp_path / "project")) == Environment()
    monkeypatch.chdir(elsewhere)
    assert own(load_environment(str(inner), str(tmp_path / "project")).variables) == {"A": "here"}


def test_a_folder_of_that_name_is_ignored(tmp_path, monkeypatch):
    (tmp_path / ".env").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_environment(str(tmp_path), str(tmp_path)) == Environment()


def test_invalid_utf_8_is_an_error(tmp_path):
    (tmp_path / ".env").write_bytes(b"A=\xff")
    with pytest.raises(AgentvError, match="not UTF-8"):
        load_environment(str(tmp_path), str(tmp_path))


def test_the_process_overrides_the_file_and_is_not_modified(tmp_path, monkeypatch):
    monkeypatch.setenv("A", "process")
    (tmp_path / ".env").write_text("A=file\nB=file")
    environment = load_environment(str(tmp_path), str(tmp_path))
    assert own(environment.variables) == {"A": "process", "B": "file"}
    assert own(os.environ) == {"A": "process"}


def test_secrets_are_long_values_of_variables_with_secret_names(monkeypatch):
    for name in ("OPENAI_API_KEY", "GH_TOKEN", "APP_SECRET", "db_password"):
        monkeypatch.setenv(name, f"{name}-value")
    monkeypatch.setenv("SHORT_KEY", "1234567")
    monkeypatch.setenv("KEYBOARD", "a long value")
    environment = Environment({"FILE_KEY": SECRET, "PLAIN": "a long value"})
    expected = {"OPENAI_API_KEY-value", "GH_TOKEN-value", "APP_SECRET-value", "db_password-value", SECRET}
    assert environment.secrets == expected
    assert environment.with_secret_names(["PLAIN"]).secrets == expected | {"a long value"}


def test_a_secret_without_its_trailing_newline_is_a_secret(monkeypatch):
    monkeypatch.setenv("A_KEY", f"{SECRET}\n")
    assert {SECRET, f"{SECRET}\n"} <= Environment().secrets
    assert "A_KEY" not in child_environment()


def test_a_value_of_the_file_stays_secret_when_the_process_overrides_it(monkeypatch):
    monkeypatch.setenv("A_KEY", "another-value")
    assert Environment({"A_KEY": SECRET}).secrets == {SECRET, "another-value"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("api_key",), True),
        (("apiKey",), True),
        (("headers", "Authorization"), True),
        (("headers", "x-api-key"), True),
        (("env", "GH_TOKEN"), True),
        (("tokens", 0), False),
        (("password", 0), True),
        (("max_output_tokens",), False),
        (("model",), False),
        (("monkey",), False),
        ((), False),
    ],
)
def test_a_field_is_secret_by_its_name(path, expected):
    assert is_secret_field(path) is expected


def filled_in(value, **variables):
    problems = Problems()
    return interpolate(value, variables, (), problems, "Target 'main'"), [problem.message for problem in problems]


def test_variables_are_expanded_anywhere_in_values_and_only_once():
    data = {"a": "x ${{ A }}/${{B}} y", "b": [{"c": "${{ A }}"}], "${{ A }}": 1, "n": 2}
    expected = {"a": "x 1/${{ A }} y", "b": [{"c": "1"}], "${{ A }}": 1, "n": 2}
    assert filled_in(data, A="1", B="${{ A }}") == (expected, [])


def test_an_unset_variable_is_an_error_with_its_path():
    _, messages = filled_in({"headers": {"Auth": "Bearer ${{ TOKN }}"}, "args": ["${{ NONE }}"]}, TOKEN="x", NONE="")
    assert messages == [
        "Target 'main': 'headers.Auth' uses ${{ TOKN }}, which is not set",
        "Target 'main': 'args[0]' uses ${{ NONE }}, which is empty",
    ]


def test_an_unset_variable_has_a_hint():
    problems = Problems()
    interpolate("${{ OPENAI_KEY }} ${{ Z }}", {"OPENAI_KEYS": "x"}, ("a",), problems, "Target 'main'")
    assert [problem.hint for problem in problems] == [
        "Set OPENAI_KEY in the environment or in .env. Did you mean 'OPENAI_KEYS'?",
        "Set Z in the environment or in .env",
    ]


def test_references_are_found_with_their_paths():
    data = {"a": " ${{ A }} ", "b": ["x${{ B }}"]}
    assert list(references(data)) == [Reference(("a",), "A", True), Reference(("b", 0), "B", False)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("0.5", 0.5),
        ("true", True),
        ("False", False),
        (" 7 ", 7),
        ("x", "x"),
        ('"4"', '"4"'),
        ("null", "null"),
    ],
)
def test_the_text_of_a_number_or_boolean_is_converted(text, value):
    assert plain_value(text) == value


HIDDEN = "DB_PASS MONGO_PWD ANTHROPIC_APIKEY MYTOKEN HF_TOKENS JWT SLACK_WEBHOOK CONN_STR A_KEY COLLEAGUE_NOTES"
NEEDED = "PATH LC_ALL TMPDIR NVM_DIR JAVA_HOME GOPATH SSL_CERT_FILE NODE_EXTRA_CA_CERTS PYTHONPATH OMP_NUM_THREADS"


@pytest.mark.parametrize("name", HIDDEN.split())
@pytest.mark.parametrize("value", ["short", "a-value-of-any-length"])
def test_a_child_process_gets_no_variable_that_is_not_listed(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert name not in child_environment()
    assert child_environment([name])[name] == value
    assert child_environment(environment=Environment(pass_env=(name,)))[name] == value


def test_a_child_process_gets_what_programs_need_to_start(monkeypatch):
    for name in NEEDED.split():
        monkeypatch.setenv(name, "here")
    assert NEEDED.split() == [name for name in NEEDED.split() if child_environment().get(name) == "here"]


def test_a_child_process_gets_no_listed_variable_with_a_secret(monkeypatch):
    monkeypatch.setenv("A_KEY", SECRET)
    monkeypatch.setenv("NODE_OPTIONS", SECRET)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:8080")
    monkeypatch.setenv("HTTP_PROXY", "http://me:password@proxy.example:8080")
    assert own(child_environment()) == {"HTTPS_PROXY": "http://proxy.example:8080"}


def test_a_child_process_gets_pass_env_and_env(monkeypatch):
    monkeypatch.setenv("A_KEY", SECRET)
    environment = Environment({"B_KEY": "from-the-file", "URL": "http://x"})
    child = child_environment(["A_KEY", "B_KEY", "UNSET_KEY"], {"C_KEY": "set-by-env"}, environment)
    assert own(child) == {"A_KEY": SECRET, "B_KEY": "from-the-file", "C_KEY": "set-by-env"}


def test_a_program_that_fails_without_a_variable_is_explained(monkeypatch):
    monkeypatch.setenv("COLLEAGUE_NOTES", "here")
    program = [sys.executable, "-c", "import os; os.environ['COLLEAGUE_NOTES']"]
    spec = ProcessSpec(command=program, cwd=".", env=child_environment(), timeout_s=200)
    with pytest.raises(ProcessFailure, match=r"COLLEAGUE_NOTES is set, but was not passed .* `pass_env`"):
        asyncio.run(run_process(spec))


def test_a_home_is_pickled_with_its_environment(tmp_path):
    home = Home(str(tmp_path), Environment({"A": "1"}))
    travelled = pickle.loads(pickle.dumps(home))
    assert travelled == str(tmp_path)
    assert environment_of(travelled) == Environment({"A": "1"})


def test_the_environment_of_a_plain_folder_is_loaded(tmp_path):
    (tmp_path / ".env").write_text("A=1")
    assert own(environment_of(str(tmp_path)).variables) == {"A": "1"}


def test_the_longest_secret_is_redacted_first():
    assert redacted("a sk-123456789 b sk-12345678 c", ["sk-12345678", "sk-123456789"]) == "a [redacted] b [redacted] c"


SECRET_NAMES = "DB_PASS MONGO_PWD ANTHROPIC_APIKEY MYTOKEN HF_TOKENS JWT SLACK_WEBHOOK_URL CONN_STR BEARER PASS2 "
SECRET_NAMES += "PASSWORD TOKEN PGPASSWORD GITHUB_PAT SOME_CREDENTIALS MY_API_KEY_2 api_key SENTRY_DSN DB_PASSWD KEY_ID"
OTHER_NAMES = "PWD OLDPWD PASS_RATE MAX_OUTPUT_TOKENS COMPASS "
OTHER_NAMES += "PATH KEYBOARD MONKEY MAX_TOKENS TOKENIZERS_PARALLELISM SSL_KEY_FILE PASSWORD_STORE_DIR SSH_AUTH_SOCK"


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_a_variable_is_secret_by_a_word_in_its_name(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", OTHER_NAMES.split())
def test_a_variable_with_a_similar_name_is_not_secret(name):
    assert not is_secret_name(name)


ADDRESSES = {
    "DATABASE_URL=postgres://me:pa55word@db/x": {"postgres://me:pa55word@db/x", "pa55word"},
    "HTTPS_PROXY=http://me:pa55%40word@proxy:3128": {"pa55%40word", "pa55@word"},
    "CALLBACK=https://host/path?x=1234567890&api_key=abcdefgh12&y=1": {"abcdefgh12"},
    "SERVICE_URL=https://host/path?page=1234567890": set(),
    "REDIS_URL=redis://:pa55word9@db": {"redis://:pa55word9@db", "pa55word9"},
}


@pytest.mark.parametrize("entry", ADDRESSES)
def test_passwords_and_keys_in_addresses_are_secret(monkeypatch, entry):
    name, _, value = entry.partition("=")
    monkeypatch.setenv(name, value)
    assert Environment().secrets == ADDRESSES[entry]


@pytest.mark.parametrize("most", range(5, 60))
def test_a_cut_text_contains_no_part_of_a_secret(most):
    text = f"the key {SECRET} was refused because of {SECRET} and more"
    for cut in (start_of(text, most), end_of(text, most)):
        assert len(cut) <= most and "sk-" not in cut.replace(SECRET, "") and "789" not in cut.replace(SECRET, "")


def test_a_cut_of_data_without_spaces_is_made_at_other_signs():
    data = f'{{"a":"{"x" * 100}","list":[{"1," * 200}"{SECRET}","more"]}}'
    assert start_of(data, data.index(SECRET) + 8) == data[: data.index(SECRET)] + "…"
    assert start_of("x" * 5000, 500) == "x" * 499 + "…" and end_of("x" * 5000, 500) == "…" + "x" * 499


def test_secrets_are_replaced_by_length_whatever_their_number():
    secrets = {f"sk-shared-{number}": f"[{number}]" for number in range(2000)} | {"sk-shared-1999-long": "[long]"}
    texts = SecretTexts(secrets)
    assert texts.replaced_in("a sk-shared-7, sk-shared-1999-long.sk-shared-1999") == "a [7], [long].[1999]"
    assert SecretTexts({}).replaced_in("sk-shared-7") == "sk-shared-7"


def test_hints_are_found_among_thousands_of_names():
    names = [f"SHOP{number}_API_KEY" for number in range(5000)]
    assert nearest("SHOP12_API_KYE", names) == "SHOP12_API_KEY"
    assert nearest("x" * 1_000_000, names) is None


SHAPES = {
    "a key": "sk-proj-" + "a1B2c3D4" * 4,
    "a token of GitHub": "ghp_" + "a1B2c3D4e5" * 4,
    "a JSON Web Token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklmnop",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_secret_is_redacted_by_its_shape(name):
    line = json.dumps({"candidate_answer": f"It is {SHAPES[name]}."}).encode()
    assert json.loads(Redactor(()).redact_line(line)) == {"candidate_answer": "It is [redacted]."}


def test_ordinary_words_have_no_shape_of_a_secret():
    text = "A risk-management-framework with sk-learn-estimators-of-long-names, eyJ and ghp_short"
    assert Redactor(()).redact_text(text) == text
