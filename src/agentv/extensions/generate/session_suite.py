"""`agentv generate from-sessions`: make a regression suite from recorded sessions, without a model.

Duplicates are merged, requests are grouped by wording, and cases are chosen from all groups.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Literal, NamedTuple

import msgspec
from rapidfuzz import fuzz, process

from agentv.cli import output
from agentv.cli.options import options_of
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.loader import InMemoryCases, case_source
from agentv.datasets.variables import replace_texts
from agentv.errors import UsageError, plural
from agentv.extensions.generate.command import SessionsArguments
from agentv.extensions.generate.generator import free_id
from agentv.model.message import message_to_data
from agentv.model.values import digest, to_json
from agentv.sessions.private_data import PrivateData, describe_counts
from agentv.sessions.session import Exchange, ReadLog, Session
from agentv.sessions.session_file import read_sessions
from agentv.settings.environment import REFERENCE
from agentv.settings.project import project_root
from agentv.targets.recordings.session_answers import REQUEST_KEY, SESSION_KEY
from agentv.trust.env_file import load_environment

Requests = Literal["first", "each", "all"]

_SPOOL_BYTES = 32 * 1024 * 1024
_NEAR_DUPLICATE = 92
_SAME_GROUP, _SAME_GROUP_WITH_TOOLS = 60, 40
_MOST_COMPARED = 600
_MOST_TOOLS = 30
_FEWEST_TOOLS = 3
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+")
_STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "do", "does", "for", "from", "has", "have", "how",
    "i", "if", "in", "into", "is", "it", "its", "make", "me", "my", "not", "of", "on", "or", "our", "please", "should",
    "so", "that", "the", "their", "then", "there", "this", "to", "up", "use", "using", "was", "we", "what", "when",
    "where", "which", "why", "with", "would", "you", "your",
))  # fmt: skip


class SuiteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How many cases to choose, in total and per group, and which requests of a session become cases."""

    max_cases: int = 100
    per_cluster: int = 5
    requests: Requests = "first"


class SuiteSummary(msgspec.Struct, kw_only=True):
    """What was read, merged, grouped and chosen."""

    files: int
    sessions: dict[str, int]
    requests: int
    exact_duplicates: int
    near_duplicates: int
    clusters: int
    cases: int
    replaced: dict[str, int]
    left_out: list[str]


class _Candidate:
    """A request that may become a case: what is compared, and where its row is stored."""

    __slots__ = ("numbers", "place", "repeats", "text", "tools", "words")

    def __init__(self, text: str, tools: tuple[str, ...], place: int) -> None:
        self.text = text[:_MOST_COMPARED]
        self.words = " ".join(sorted(set(_WORD.findall(self.text))))
        self.numbers = _NUMBER.findall(self.text)
        self.tools = tools
        self.place = place
        self.repeats = 1


class _Group(NamedTuple):
    """Similar requests. The first one is compared with new ones."""

    members: list[_Candidate]

    @property
    def name(self) -> str:
        """The most frequent words of the requests."""
        words = Counter(
            word for item in self.members for word in dict.fromkeys(_WORD.findall(item.text)) if word not in _STOP_WORDS
        )
        top_words = [word for word, _ in words.most_common(3) if not word.isdigit()]
        return "-".join(top_words)[:60] or "other"


class SessionSuite:
    """Requests of sessions, stored on disk, from which cases are chosen. Use it as a context manager."""

    def __init__(self, options: SuiteOptions, privacy: PrivateData, log: ReadLog) -> None:
        self._options = options
        self._privacy = privacy
        self._log = log
        self._stream = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115  # closed by __exit__
        self._by_text: dict[str, _Candidate] = {}
        self._requests = self._exact = self._near = 0
        self._groups: list[_Group] = []

    def __enter__(self) -> SessionSuite:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, sessions: Iterable[Session]) -> None:
        """Store the requests of the sessions, without repeated ones."""
        for session in sessions:
            for number, exchange in self._chosen_requests(session):
                self._add(session, exchange, number)

    def _chosen_requests(self, session: Session) -> Iterator[tuple[int, Exchange]]:
        exchanges = session.exchanges
        for number, exchange in enumerate(exchanges if self._options.requests == "each" else exchanges[:1], 1):
            if not exchange.answer.strip():
                self._log.skip("a request without an answer in text", session.path)
            elif exchange.has_attachments:
                self._log.skip("a request with images or files, which are not kept", session.path)
            else:
                yield number, exchange

    def _add(self, session: Session, exchange: Exchange, number: int) -> None:
        self._requests += 1
        row = self._privacy.clean_value(_row(session, exchange, number, self._options.requests))
        # A dataset would insert the variable of a reference such as `${{ HOME }}`.
        row = replace_texts(row, lambda text, _: REFERENCE.sub(lambda reference: "$ " + reference[0][1:], text))
        prompt = row.get("input", "")
        text = " ".join((prompt if isinstance(prompt, str) else prompt[-1]["content"]).split()).lower()
        key = digest([text, [message_to_data(message) for message in exchange.history] if number > 1 else []])
        duplicate = self._by_text.get(key)
        place = duplicate.place if duplicate is not None else self._stream.seek(0, 2)
        if duplicate is not None:
            self._exact += 1
            duplicate.repeats += 1
            return
        self._by_text[key] = _Candidate(text, _steps(exchange), place)
        self._stream.write(to_json(row) + b"\n")

    def choose(self) -> list[dict[str, Any]]:
        """Merge near duplicates, group the rest, and return the rows of the chosen cases."""
        self._groups = _grouped(self._without_near_duplicates())
        ids: set[str] = set()
        names = _unique_names(self._groups)
        picks = sorted(_round_robin(self._groups, self._options), key=lambda pick: pick[0])
        return [self._case(candidate, names[place], ids) for place, candidate in picks]

    def _without_near_duplicates(self) -> list[_Candidate]:
        candidates: list[_Candidate] = []
        texts: list[str] = []
        for candidate in self._by_text.values():
            match = process.extractOne(candidate.text, texts, scorer=fuzz.ratio, score_cutoff=_NEAR_DUPLICATE)
            if match is None or candidates[match[2]].numbers != candidate.numbers:
                candidates.append(candidate)
                texts.append(candidate.text)
            else:
                self._near += 1
                candidates[match[2]].repeats += candidate.repeats
        return candidates

    def _case(self, candidate: _Candidate, cluster: str, ids: set[str]) -> dict[str, Any]:
        self._stream.seek(candidate.place)
        row: dict[str, Any] = msgspec.json.decode(self._stream.readline())
        id = free_id("-".join(_WORD.findall(candidate.text)[:6])[:60] or "request", ids)
        ids.add(id)
        metadata = {**row.pop("metadata"), "recorded": candidate.repeats}
        tags = [f"cluster:{cluster}", *row.pop("tags")]
        return {"id": id, **row, "tags": tags, "metadata": metadata}

    def summary(self, cases: int) -> SuiteSummary:
        """Return the figures of everything that was read."""
        return SuiteSummary(
            files=self._log.files,
            sessions=dict(self._log.sessions),
            requests=self._requests,
            exact_duplicates=self._exact,
            near_duplicates=self._near,
            clusters=len(self._groups),
            cases=cases,
            replaced=dict(self._privacy.counts),
            left_out=list(self._log.lines()),
        )


def _row(session: Session, exchange: Exchange, number: int, requests: Requests) -> dict[str, Any]:
    """Return the case of a request, without its id and cluster."""
    tools = list(dict.fromkeys(exchange.tools))
    earlier = [message_to_data(item) for item in exchange.history if item.content is not None and item.role != "tool"]
    for message in earlier:
        message.pop("tool_calls", None)
    row: dict[str, Any] = {
        "input": [*earlier, {"role": "user", "content": exchange.text}] if earlier else exchange.text,
        "expected_outcome": "Does what the recorded answer does",
        "expected_output": exchange.answer,
    }
    if requests == "all":
        others = [item for item in session.exchanges[1:] if item.answer.strip() and item.text.strip()]
        row["turns"] = [{"input": item.text, "expected_output": item.answer} for item in others]
    row["evaluators"] = [{"type": "llm_judge"}]
    if tools:
        # Weight 0: a proposal that is reported, but not part of the score.
        minimums = dict.fromkeys(tools, 1)
        row["evaluators"].append({"type": "tool_trajectory", "mode": "any_order", "minimums": minimums, "weight": 0})
    details = {"model": session.model, "started": session.started, "tools": list(_steps(exchange)) or None}
    row["tags"] = [f"source:{session.agent}"]
    row["metadata"] = {
        SESSION_KEY: session.id,
        REQUEST_KEY: number,
        **{key: value for key, value in details.items() if value is not None},
    }
    return {key: value for key, value in row.items() if value not in ([], "")}


def _steps(exchange: Exchange) -> tuple[str, ...]:
    """Return the tools in order, without immediate repetitions."""
    return tuple(name for name, _ in groupby(exchange.tools))[:_MOST_TOOLS]


def _grouped(candidates: list[_Candidate]) -> list[_Group]:
    """Group requests with similar words, or with the same sequence of tools and fairly similar words."""
    groups: list[_Group] = []
    words: list[str] = []
    by_tools: dict[tuple[str, ...], list[int]] = {}
    for candidate in candidates:
        match = process.extractOne(candidate.words, words, scorer=fuzz.ratio, score_cutoff=_SAME_GROUP)
        place = None if match is None else match[2]
        if place is None and len(candidate.tools) >= _FEWEST_TOOLS:
            same = {group: words[group] for group in by_tools.get(candidate.tools, ())}
            nearest = process.extractOne(candidate.words, same, scorer=fuzz.ratio, score_cutoff=_SAME_GROUP_WITH_TOOLS)
            place = None if nearest is None else nearest[2]
        if place is None:
            place = len(groups)
            groups.append(_Group([]))
            words.append(candidate.words)
            by_tools.setdefault(candidate.tools, []).append(place)
        groups[place].members.append(candidate)
    return groups


def _round_robin(groups: list[_Group], options: SuiteOptions) -> Iterator[tuple[int, _Candidate]]:
    """Choose cases: one of each group, the largest groups first, then a second one, until there are enough."""
    order = sorted(range(len(groups)), key=lambda place: -sum(candidate.repeats for candidate in groups[place].members))
    ranked = {place: _ranked(groups[place]) for place in order}
    budget = options.max_cases
    for turn in range(options.per_cluster):
        for place in order:
            if turn < len(ranked[place]) and budget > 0:
                budget -= 1
                yield place, ranked[place][turn]


def _ranked(group: _Group) -> list[_Candidate]:
    """Return the members of a group: the most frequent one, then those that are least like it."""
    first = max(group.members, key=lambda each: each.repeats)
    others = [member for member in group.members if member is not first]
    return [first, *sorted(others, key=lambda each: fuzz.ratio(each.words, first.words))]


def _unique_names(groups: list[_Group]) -> list[str]:
    names: list[str] = []
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.name] += 1
        names.append(group.name if counts[group.name] == 1 else f"{group.name}-{counts[group.name]}")
    return names


_COUNTED = {"first": "first request", "each": "request", "all": "conversation"}
"""What is counted for each value of `--requests`."""


def from_sessions(args: SessionsArguments) -> None:
    """Read the sessions, choose cases, write them, and print what was read, merged and left out."""
    kind = _check_out(args)
    folder = os.path.dirname(args.out) or "."
    log, privacy = ReadLog(), PrivateData(load_environment(folder, project_root(folder)).secrets)
    with SessionSuite(options_of(SuiteOptions, args), privacy, log) as suite:
        suite.read(read_sessions([os.path.expanduser(path) for path in args.paths], log))
        rows = suite.choose()
    summary = suite.summary(len(rows))
    if not rows:
        raise UsageError(
            f"No sessions with a request and an answer in {', '.join(args.paths)}", "\n".join(summary.left_out)
        )
    if not args.dry_run:
        _write(args.out, kind, rows)
    if args.as_json:
        output.echo_json(summary)
        return
    for line in _lines(summary, args):
        output.message(line)


def _check_out(args: SessionsArguments) -> str:
    """Return the format of the output file. Raises UsageError if the file cannot be written."""
    if not (kinds := [kind for kind in formats.suggested(args.out) if kind in ("yaml", "jsonl")]):
        raise UsageError(f"--out must be a .yaml or .jsonl file, got {args.out}")
    sidecar = formats.base_of(args.out) + formats.SIDECAR_SUFFIXES[0]
    for path in (args.out, sidecar) if kinds[0] == "jsonl" else (args.out,):
        if os.path.exists(path) and not (args.force or args.dry_run):
            raise UsageError(f"{path} already exists", hint="Choose another name, or --force to replace it")
    return kinds[0]


def _write(path: str, kind: str, rows: list[dict[str, Any]]) -> None:
    """Write the cases and read them back, so that a suite that was written can be used."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    header = {"dataset": os.path.basename(formats.base_of(path))}
    cases = InMemoryCases(rows).stream()
    output_rows = (formats.WrittenRow(row, None, case) for row, case in zip(rows, cases, strict=True))
    formats.load_format(kind).write(formats.Content(header, output_rows), path)
    read = sum(1 for _ in case_source(path, warn=output.discard, note=output.discard).stream())
    if read != len(rows):
        raise UsageError(f"{path} has {plural(read, 'case')} instead of {len(rows)}")


def _lines(summary: SuiteSummary, args: SessionsArguments) -> list[str]:
    agents = ", ".join(f"{name} {count:,}" for name, count in summary.sessions.items())
    sessions = f"{plural(sum(summary.sessions.values()), 'session')} ({agents})"
    cases = plural(summary.cases, "case")
    wrote = f"Would write {cases}" if args.dry_run else f"Wrote {cases} to {args.out}"
    replaced = describe_counts(summary.replaced)
    requests = plural(summary.requests, _COUNTED[args.requests])
    return [
        f"Read {plural(summary.files, 'file')}: {sessions}, {requests}",
        f"Merged {plural(summary.exact_duplicates, 'repeated request')} and {summary.near_duplicates:,} nearly equal",
        f"Grouped the rest by wording and tools: {plural(summary.clusters, 'group')}",
        *summary.left_out,
        *([f"Replaced: {replaced}"] if replaced else []),
        f"{wrote}. Nothing was called. Check them for private data before you share them.",
    ]
