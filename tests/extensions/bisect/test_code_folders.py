"""The folders of a repository that the code of a commit is imported from."""

import agentv
from agentv.extensions.bisect.evaluations import code_folders


def test_agentv_itself_is_not_imported_from_a_commit(tmp_path, monkeypatch):

    source = tmp_path / "src"
    source.mkdir()
    repository = agentv.__file__.partition("/src/")[0]
    monkeypatch.setattr("sys.path", [str(source), f"{repository}/src"])
    assert code_folders(repository) == []
    assert code_folders(str(tmp_path.resolve())) == [str(source.resolve())]
