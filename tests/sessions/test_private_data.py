"""Secrets and personal data are removed from recorded texts, whatever surrounds them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.sessions.private_data import PrivateData

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MIXED = LETTERS + LETTERS.upper() + "0123456789"


def random_text(alphabet, length):
    return st.text(alphabet=alphabet, min_size=length, max_size=length)


SECRETS = st.one_of(
    random_text(MIXED, 40).map("sk-ant-api03-{}".format),
    random_text(MIXED, 32).map("sk-proj-{}".format),
    random_text(MIXED, 36).map("ghp_{}".format),
    random_text(LETTERS.upper() + "0123456789", 16).map("AKIA{}".format),
    random_text(MIXED, 35).map("AIza{}".format),
    random_text(MIXED, 24).map("xoxb-123-{}".format),
    random_text(MIXED, 34).map("hf_{}".format),
    random_text(MIXED, 20).map("eyJhbGciOiJI.eyJzdWIiOiIx.{}".format),
    random_text(MIXED, 64).map("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----".format),
)
AROUND = st.text(alphabet=MIXED + " .,;\n\t(){}<>=\"'`/-_", max_size=30)


@given(SECRETS, AROUND, AROUND)
def test_no_planted_secret_is_left(secret, before, after):
    cleaned = PrivateData().clean(f"{before} {secret} {after}")
    assert secret not in cleaned
    assert PrivateData().clean(cleaned) == cleaned


@given(
    random_text(MIXED, 12),
    st.sampled_from(
        (
            *(
                "export DB_PASSWORD={}",
                "api_key: '{}'",
                '{{"token": "{}"}}',
                "Authorization: Bearer {}",
                "--password {}",
            ),
            *("https://x.io/?api_key={}", "postgres://ann:{}@db/x", "AWS_SECRET_ACCESS_KEY={}", 'client_secret="{}"'),
        )
    ),
)
def test_values_under_names_of_secrets_are_removed(value, place):
    value = f"{value}x1"  # neither a number nor an attribute
    assert value not in PrivateData().clean(place.format(value))


@given(random_text(MIXED, 20), st.sampled_from(["input", "output"]))
def test_data_is_cleaned_with_its_keys(secret, name):
    data = {name: [{"api_key": secret, "note": f"ghp_{secret}{secret}"}], f"ghp_{secret}{secret}": 1}
    privacy = PrivateData()
    assert secret not in str(privacy.clean_value(data))
    assert privacy.counts["secrets"] >= 2


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Mail ann.lee@corp.co.uk, cc git@github.com:x/y", "Mail [email], cc git@github.com:x/y"),
        ("/Users/ann/app/a.py and /home/bob", "~/app/a.py and ~"),
        (r"C:\Users\Ann\app", r"~\app"),
        ("~/.claude/projects/-Users-ann-app/x.jsonl", "~/.claude/projects/-Users-user-app/x.jsonl"),
        ("max_tokens=1000, tokens: 250000", "max_tokens=1000, tokens: 250000"),
        ("token = response.token, password = os.environ", "token = response.token, password = os.environ"),
        ("commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"),
        ("the password reset: explain it", "the password reset: explain it"),
    ],
)
def test_only_private_data_is_replaced(text, cleaned):
    assert PrivateData().clean(text) == cleaned


def test_known_secrets_are_removed_wherever_they_occur():
    privacy = PrivateData(["correct horse"])
    assert privacy.clean("it is correct horse!") == "it is [redacted]!"
    assert privacy.counts == {"secrets": 1}


@pytest.mark.parametrize("unit", ["a.a-", "token ", "x@"])
def test_a_long_text_is_cleaned_in_time_proportional_to_its_length(unit):
    def cpu_s(count):
        start = time.process_time()
        assert PrivateData().clean(unit * count) == unit * count
        return time.process_time() - start

    assert cpu_s(50_000) < 10 * 8 * max(cpu_s(5_000), 0.001)
