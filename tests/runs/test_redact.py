"""Secrets are redacted by value in every encoding, and records stay valid."""

import base64
import json
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.model.environment import Environment
from agentv.model.result import ErrorInfo, EvaluatorResult, Result
from agentv.runs.record import decode_record, encode_record
from agentv.runs.redaction import Redactor
from made_results import made

SECRETS = [
    "sk-proj-abcdef0123456789",
    'quo"te and \\back/slash',
    "pässwörd-日本-🔑",
    "line one\nline\ttwo",
    "a+b=c&d/e?f%2Bg",
    "12345678901",
]


def nested(text, depth):
    for _ in range(depth):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return text


SPELLINGS = {
    "as it is": lambda secret: secret,
    "in JSON": lambda secret: nested(secret, 1),
    "in JSON in JSON": lambda secret: nested(secret, 2),
    "in JSON in JSON in JSON": lambda secret: nested(secret, 3),
    "in ASCII JSON": lambda secret: json.dumps(secret)[1:-1],
    "in ASCII JSON in JSON": lambda secret: json.dumps(json.dumps(secret)[1:-1])[1:-1],
    "in capital escapes": lambda secret: "".join(rf"\u{ord(c):04X}" if 127 < ord(c) < 0x10000 else c for c in secret),
    "all in escapes": lambda secret: "".join(rf"\u{unit:04x}" for unit in utf16(secret)),
    "with escaped slashes": lambda secret: json.dumps(secret).replace("/", "\\/")[1:-1],
    "in a URL": quote,
    "in a URL, wholly": lambda secret: quote(secret, safe=""),
    "in a URL, in small letters": lambda secret: quote(secret, safe="").lower() if secret.islower() else quote(secret),
    "in a form": quote_plus,
    "percent-encoded altogether": lambda secret: "".join(f"%{byte:02X}" for byte in secret.encode()),
    "in hex": lambda secret: secret.encode().hex(),
    "in capital hex": lambda secret: secret.encode().hex().upper(),
    "in base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "in base64 for URLs": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "in base64 without padding": lambda secret: base64.b64encode(secret.encode()).decode().rstrip("="),
    "in base64 in a URL": lambda secret: quote(base64.b64encode(secret.encode()).decode().rstrip("="), safe=""),
    "in capitals": lambda secret: secret.upper() if secret.isascii() else secret,
    "in small letters": str.lower,
    "with the case swapped": lambda secret: secret.swapcase() if secret.isascii() else secret,
}


def utf16(text):
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


def record(**changed):
    return made(dataset_path="evals/d.jsonl", **changed)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_redacted_in_text_and_records_in_every_encoding(secret, spelling):
    redactor = Redactor(SECRETS)
    spelled = SPELLINGS[spelling](secret)
    assert redactor.redact_text(f"before {spelled} after") == "before [redacted] after"

    result = record(
        candidate_answer=f"before {spelled} after",
        error=ErrorInfo("server", f"body: {spelled}", "target"),
        evaluator_results=(
            EvaluatorResult(
                name="j", type="llm_judge", score=1.0, weight=1.0, verdict="pass", details={spelled: spelled}
            ),
        ),
        metadata={"deep": [{"header": f"Bearer {spelled}"}]},
    )
    line = redactor.redact_line(encode_record(result))
    read = decode_record(line)
    assert read.candidate_answer == "before [redacted] after"
    assert read.error.message == "body: [redacted]"
    assert read.evaluator_results[0].details == {"[redacted]": "[redacted]"}
    assert read.metadata == {"deep": [{"header": "Bearer [redacted]"}]}
    assert secret.encode() not in line
    assert spelled.encode() not in line


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("before", ["", "u", "us", "user:", "a longer text before "])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_a_text_with_a_secret_is_redacted(secret, before, encode):
    coded = encode(f"{before}{secret} after".encode()).decode()
    text = Redactor(SECRETS).redact_text(f"Basic {coded}.")
    assert text.startswith("Basic ") and "[redacted]" in text
    length = len(encode(secret.encode()).rstrip(b"=")) - 2
    assert not any(coded[start : start + length] in text for start in range(len(coded) - length) if start > len(before))


def test_names_are_redacted_if_the_secret_is_not_an_ordinary_word():
    redactor = Redactor(["postgres", "sk-proj-abcdef0123456789"])
    result = record(eval_id="case sk-proj-abcdef0123456789", target="postgres", prompt="SK-PROJ-ABCDEF0123456789")
    read = decode_record(redactor.redact_line(encode_record(result)))
    assert (read.eval_id, read.target, read.prompt) == ("case [redacted]", "postgres", "[redacted]")


def test_the_lines_of_a_private_key_are_secrets(monkeypatch):
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"
    monkeypatch.setenv("SIGNING_KEY", key)
    redactor = Redactor(Environment().secrets)
    assert redactor.redact_text("line 2: AQEFAASCBKcwggSjAgEAAoIB") == "line 2: [redacted]"


def test_bytes_that_are_not_json_are_redacted_too():
    redactor = Redactor(SECRETS)
    assert redactor.redact_line(b"\xff key=sk-proj-abcdef0123456789\n") == b"\xff key=[redacted]\n"


KEYS = [
    *(f"{start}{'4c1D' * 10}" for start in ("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_")),
    *(f"xox{kind}-{'4c1D' * 10}" for kind in "abeprs"),
    *(f"{start}{'4C1D' * 4}" for start in ("AKIA", "ASIA")),
    ".".join(("eyJ4c1D4c1D4c1D", "eyJ4c1D4c1D4c1D", "4c1D4c1D4c1D")),
    "-----BEGIN RSA PRIVATE KEY-----4c1D-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_services_are_redacted_whatever_their_origin(key):
    line = json.dumps({"candidate_answer": f"It is {key} there"}).encode()
    assert json.loads(Redactor([]).redact_line(line)) == {"candidate_answer": "It is [redacted] there"}


def test_lines_without_a_secret_are_returned_unchanged():
    line = encode_record(record(candidate_answer="100 % \\u00e9 %41 plain"))
    assert Redactor(SECRETS).redact_line(line) is line
    assert Redactor([]).redact_line(line) is line
    assert Redactor([]).redact_text("text") == "text"


def test_short_values_are_not_redacted_and_surrounding_blanks_do_not_matter():
    redactor = Redactor(["1234567", "  long-enough-value\n"])
    assert redactor.redact_text("1234567 long-enough-value") == "1234567 [redacted]"


def test_the_longer_of_two_overlapping_secrets_is_redacted():
    assert Redactor(["abcdefgh", "abcdefgh-and-more"]).redact_text("x abcdefgh-and-more abcdefgh") == (
        "x [redacted] [redacted]"
    )


WORDS_OF_RECORDS = [
    *(name for name in Result.__struct_fields__ if len(name) >= 8),
    "evals/d.jsonl",
    "unscored",
    "borderline",
    "rate_limit",
    "2026-01-02T03:04:05Z",
    '"status":"ok"',
    "[redacted]",
    "redacted",
]


@pytest.mark.parametrize("weak", WORDS_OF_RECORDS)
def test_a_password_that_equals_a_field_or_value_does_not_break_a_record(weak):
    result = record(
        verdict="borderline",
        error=ErrorInfo("rate_limit", "m", "target"),
        conversation_id="conversation",
        candidate_answer=f"it is {weak}",
    )
    read = decode_record(Redactor([weak]).redact_line(encode_record(result)))
    assert read == msgspec.structs.replace(result, candidate_answer="it is [redacted]")


def test_numbers_are_redacted_in_user_data_only():
    line = encode_record(record(metadata={"pin": 12345678901, "n": 1234567890123}, attempts=2))
    assert decode_record(Redactor(SECRETS).redact_line(line)).metadata == {"pin": "[redacted]", "n": 1234567890123}


def test_options_are_kept_and_settings_are_redacted():
    manifest = {
        "run_id": "r",
        "paths": ["evals/postgres.jsonl"],
        "options": {"filter": ["postgres*"], "target": {"api_key": "postgres"}},
        "targets": [{"name": "postgres", "settings": {"dsn": "postgres://"}}],
    }
    read = json.loads(Redactor(["postgres"]).redact_line(json.dumps(manifest).encode()))
    assert read == {
        "run_id": "r",
        "paths": ["evals/postgres.jsonl"],
        "options": {"filter": ["postgres*"], "target": {"api_key": "[redacted]"}},
        "targets": [{"name": "postgres", "settings": {"dsn": "[redacted]://"}}],
    }


@given(st.text(min_size=8), st.text(), st.sampled_from(sorted(SPELLINGS)))
def test_no_encoding_of_a_secret_survives(secret, around, spelling):
    if len(secret.strip()) < 8 or not secret.isprintable():
        return
    text = around + SPELLINGS[spelling](secret) + around
    line = Redactor([secret]).redact_line(encode_record(record(candidate_answer=text)))
    answer = decode_record(line).candidate_answer
    assert "[redacted]" in answer
    assert secret not in answer.replace("[redacted]", "")
