"""Remove secrets and personal data from recorded texts by their form: keys, passwords, e-mail, home folders."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from agentv.errors import plural
from agentv.settings.environment import is_secret_field, redacted

SECRET = "[redacted]"
EMAIL = "[email]"

_TOKENS = re.compile(
    r"""
    -----BEGIN[ A-Z0-9]*PRIVATE[ ]KEY[ A-Z]*-----.*?(?:-----END[ A-Z0-9]*PRIVATE[ ]KEY[ A-Z]*-----|\Z)
    | \b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b
    | \b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,})
    | \b(?:sk|pk|rk)[-_](?:ant|proj|live|test|or|svcacct|admin|lf)?[-_]?[A-Za-z0-9][\w-]{14,}
    | \b(?:gsk|xai|r8|hf|whsec|nvapi|pplx|tvly|fw|dop_v1|shpat|lin_api|ntn|secret)[_-][A-Za-z0-9][\w-]{16,}
    | \bxox[abeoprs]-[\w-]{10,} | \bxapp-[\w-]{10,}
    | https://hooks\.slack\.com/services/[\w/]+
    | \bAIza[\w-]{30,} | \bya29\.[\w-]{20,} | \bGOCSPX-[\w-]{20,}
    | \bSG\.[\w-]{16,}\.[\w-]{16,} | \bpypi-[\w-]{32,} | \bAGE-SECRET-KEY-[A-Z0-9]{40,}
    | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{5,}
    """,
    re.VERBOSE | re.DOTALL,
)
"""Texts that are secrets because of their form."""

_AFTER = re.compile(
    r"""
    (?P<before> \b(?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token)\s+)?
      | \bbearer\s+
      | [?&](?:[\w.-]{0,40}(?:key|token|secret|password|passwd|sig|signature|credential|auth))=
      | (?:api[_-]?key|access[_-]?key|private[_-]?key|secret(?:[_-](?:access[_-])?key)?|token
          |passw(?:or)?d|passphrase|pwd|credentials?)(?:_\d+)?["']?\s*(?::=|=>|[:=])\s*
      | --?(?:password|passwd|token|api-key|secret)[=\s]+
    )
    (?: "(?P<double>[^"\n]{4,})" | '(?P<single>[^'\n]{4,})'
      | (?P<bare>(?!(?:bearer|basic|token)\b)[^\s"'`,;&<>(){}\[\]\\]{6,}) )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Secrets because of the name, the header or the address before them."""

_NOT_SECRET = re.compile(
    r"\$|\[redacted\]|process\.env|os\.environ|\d+$|(?:[a-z_]+\.)+[a-z_]+$|(?i:none|null|true|false)\b"
)
"""References to variables, numbers and attributes, which are not secrets."""

_PASSWORD_IN_URL = re.compile(r"(://[^\s:/@\"'<>]*:)([^\s/@\"'<>]+)@")
_LONG = re.compile(r"(?<![\w/+.-])[A-Za-z0-9_-]{32,}(?![\w/+.-])")
_EMAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+%-]{0,63}@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}\b")
_HOME = re.compile(
    r"(?:/home/|/Users/|/export/home/|(?i:\b[a-z]:)(?:\\\\?|/)Users(?:\\\\?|/))(?!\[?~)[^\s/\\\"'`:;,<>|]+"
)
_SLUG = re.compile(r"(?<=[-/])(home|Users)-[^-\s/]+(?=-)")
_KNOWN_EMAILS = ("noreply@", "git@", "no-reply@", "@example.", "@users.noreply.")
_ENTROPY = 4.0
_SECRETS, _EMAILS, _HOMES = "secrets", "e-mail addresses", "home folders"
_ONE = {_SECRETS: "secret", _EMAILS: "e-mail address", _HOMES: "home folder"}


class PrivateData:
    """Replaces private data and counts it. `secrets` are values that are replaced wherever they occur."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted((secret for secret in secrets if secret), key=len, reverse=True)
        self.counts: Counter[str] = Counter()

    def clean(self, text: str) -> str:
        """Return a text without private data. Cleaning it again changes nothing."""
        clean_text = redacted(text, self._secrets) if self._secrets else text
        if clean_text != text:
            self.counts[_SECRETS] += 1
        text = _TOKENS.sub(lambda _: self._counted(_SECRETS, SECRET), clean_text)
        text = _PASSWORD_IN_URL.sub(self._password, text)
        text = _AFTER.sub(self._named, text)
        text = _LONG.sub(self._random, text)
        text = _EMAIL.sub(self._email, text)
        return _SLUG.sub(r"\1-user", _HOME.sub(lambda _: self._counted(_HOMES, "~"), text))

    def clean_value(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """Return data without private data in its texts, keys, and values under names of secrets."""
        if isinstance(value, str):
            is_secret = is_secret_field(path) and value and value != SECRET
            return self._counted(_SECRETS, SECRET) if is_secret else self.clean(value)
        if isinstance(value, dict):
            return {self.clean(str(key)): self.clean_value(item, (*path, str(key))) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean_value(item, path) for item in value]
        return value

    def _counted(self, kind: str, replacement: str) -> str:
        self.counts[kind] += 1
        return replacement

    def _password(self, match: re.Match[str]) -> str:
        if match[2].startswith(("[", "$", "<", "{")):
            return match[0]
        return self._counted(_SECRETS, f"{match[1]}{SECRET}@")

    def _named(self, match: re.Match[str]) -> str:
        value = match["double"] or match["single"] or match["bare"]
        if _NOT_SECRET.match(value):
            return match[0]
        quote = '"' if match["double"] else "'" if match["single"] else ""
        return self._counted(_SECRETS, f"{match['before']}{quote}{SECRET}{quote}")

    def _random(self, match: re.Match[str]) -> str:
        text = match[0]
        has_all = any(map(str.isupper, text)) and any(map(str.islower, text)) and any(map(str.isdigit, text))
        return text if not has_all or _entropy(text) < _ENTROPY else self._counted(_SECRETS, SECRET)

    def _email(self, match: re.Match[str]) -> str:
        is_known = any(part in match[0].lower() for part in _KNOWN_EMAILS)
        return match[0] if is_known else self._counted(_EMAILS, EMAIL)


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return how much private data was replaced, such as "1 secret, 2 home folders"; empty if there was none."""
    return ", ".join(plural(count, _ONE[kind]) for kind, count in counts.items())


def _entropy(text: str) -> float:
    """Return the entropy of the characters of a text, in bits per character."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
