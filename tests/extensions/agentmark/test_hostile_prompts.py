"""Prompt files of a stranger open no connection, read no file outside their project, and end soon."""

import json
import socket
from threading import Thread

import pytest

HEAD = "---\nname: x\ntext_config: {model_name: m}\ntest_settings: {dataset: rows.jsonl}\n"


@pytest.fixture
def check(folder, command):
    """Write a prompt file, and return how `agentv cases` ends for it."""
    folder.write("rows.jsonl", [{"input": {"a": [1] * 30}, "expected_output": "x"}])

    def checked(text="<User>Hi</User>", schema=None):
        settings = "" if schema is None else f"input_schema: {json.dumps(schema)}\n"
        folder.write("p.prompt.mdx", f"{HEAD}{settings}---\n{text}\n")
        return command("cases", "p.prompt.mdx")

    return checked


@pytest.fixture
def address():
    """An address at which each connection is noted in a list, and closed."""
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                connection = server.accept()[0]
                connection.close()
                connections.append(connection)

        Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x", connections


@pytest.mark.parametrize("key", ["$schema", "$ref", "$dynamicRef"])
def test_a_schema_opens_no_connection(check, address, key):
    url, connections = address
    assert check(schema={key: url}).code == 2
    assert not connections


@pytest.mark.parametrize("file", ["../secret.json", "/etc/hostname", "a/../../secret.json", ".env"])
def test_a_schema_reads_only_files_of_its_project(check, folder, file):
    (folder.path / ".git").mkdir()
    folder.write(".env", "{}")
    assert "'input_schema' is not a valid JSON Schema: File" in check(schema={"$ref": file}).stderr


def test_files_of_schemas_do_not_multiply_without_end(check, folder):
    for number in range(40):
        folder.write(f"{number}.json", json.dumps({"anyOf": [{"$ref": f"{number + 1}.json"}] * 2}))
    folder.write("40.json", "{}")
    assert "more than 1,000 references" in check(schema={"$ref": "0.json"}).stderr


@pytest.mark.parametrize("uses", ["", "<A /><A /><A /><B />"])
def test_components_do_not_multiply_without_end(check, folder, uses):
    imports = "import A from './{0}.mdx'\nimport B from './{0}.mdx'\n\n"
    for number in range(18):
        content = imports if not uses else "import A from './{0}.mdx'\n\n"
        folder.write(f"{number}.mdx", content.format(number + 1) + uses.replace("<B />", ""))
    folder.write("18.mdx", "Hello\n")
    ended = check(f"import A from './0.mdx'\n\n<User>\n{uses and '<A />'}\n</User>")
    assert ("more than 200,000 blocks" in ended.stderr) if uses else ended.code == 0


def test_loops_in_loops_end(check):
    text = "x"
    for number in range(6):
        text = f"<ForEach arr={{props.a}}>\n{{(x{number}) => (<>\n{text}\n</>)}}\n</ForEach>"
    assert "more than 200,000 blocks" in check(f"<User>\n{text}\n</User>").stderr


@pytest.mark.parametrize("text", ["<!-- x -->" * 60, "{/* x */}" * 60])
def test_many_comments_before_the_front_matter_are_read_once(folder, command, text):
    folder.write("p.prompt.mdx", f"{text}x\n")
    assert "must begin with front matter" in command("cases", "p.prompt.mdx").stderr


def test_the_blanks_of_a_loop_are_read_once(check):
    blanks = " " * 200_000
    assert check(f"<User>\n<ForEach arr={{props.a}}>{{{blanks}!}}</ForEach>\n</User>").code == 2
