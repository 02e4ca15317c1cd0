"""Records that follow quickly are written together, and passed on as they were written."""

import pytest

from agentv.runs import store as storing
from agentv.runs.folder import RunFolder
from agentv.runs.record import decode_record
from agentv.runs.redaction import Redactor
from agentv.runs.store import RunStore
from made_results import made


class Appended:
    """A store with a clock and an event loop that a test controls."""

    def __init__(self, path, monkeypatch):
        folder = RunFolder.create(path, Redactor(["sk-planted-secret"]).redact_line)
        self.path, self.now, self.soon, self.written = folder.results_path, 100.0, [], []
        for module in ("agentv.runs.store", "agentv.runs.writer"):
            monkeypatch.setattr(f"{module}.monotonic", lambda: self.now)
        self.store = RunStore(folder)
        self.store.start_writing(self.soon.append)

    def append(self, *ids, answer="x"):
        for id in ids:
            self.store.append(made(eval_id=id, candidate_answer=answer), self.written.extend)

    @property
    def lines(self):
        return self.path.read_bytes().count(b"\n")


@pytest.fixture
def appended(tmp_path, monkeypatch):
    appended = Appended(tmp_path / "run", monkeypatch)
    with appended.store:
        yield appended


def test_records_in_quick_succession_are_written_with_one_flush(appended):
    appended.append(*map(str, range(storing.MOST_PENDING + 3)))
    assert appended.lines == 1 + storing.MOST_PENDING == len(appended.written)
    assert len(appended.soon) == 2
    appended.soon[-1]()
    assert [result.eval_id for result in appended.written] == [str(n) for n in range(storing.MOST_PENDING + 3)]
    assert appended.lines == len(appended.written)


def test_a_record_after_a_pause_is_written_immediately(appended):
    for number in range(3):
        appended.now += 2 * storing.PENDING_S
        appended.append(str(number))
        assert appended.lines == number + 1
    assert appended.soon == []


def test_pending_records_are_written_when_the_store_is_closed(appended):
    appended.append("a", "b", "c")
    assert appended.lines == 1
    appended.store.close()
    assert appended.lines == 3 == len(appended.written)


def test_records_are_passed_on_without_secrets(appended):
    appended.append("a", "b", answer="the key is sk-planted-secret")
    appended.store.close()
    assert [result.candidate_answer for result in appended.written] == ["the key is [redacted]"] * 2
    assert b"planted" not in appended.path.read_bytes()


def test_records_written_together_have_their_own_text_and_receiver(appended):
    later = []
    appended.append("a", "b")
    appended.append("c", answer="the key is sk-planted-secret")
    appended.append("d", answer="half \ud83d")
    appended.store.append(made(eval_id="e"), later.extend)
    appended.append("f")
    appended.store.close()
    records = map(decode_record, appended.path.read_bytes().splitlines())
    answers = {result.eval_id: result.candidate_answer for result in records}
    assert answers == {"a": "x", "b": "x", "c": "the key is [redacted]", "d": "half ?", "e": None, "f": "x"}
    assert [result.eval_id for result in appended.written] == ["a", "b", "c", "d", "f"]
    assert [result.eval_id for result in later] == ["e"]
    assert "planted" not in str(appended.written)
