"""Prompt files of AgentMark (`.prompt.mdx`): as prompts of a dataset, and as datasets themselves."""

import pytest

from agentv.errors import DatasetError

PROMPT = """---
name: greeting
test_settings:
  dataset: ./rows.jsonl
input_schema:
  type: object
  properties: {name: {type: string}, mood: {type: string}}
  required: [name]
---

<System>
Answer in JSON: `{"text": "…"}`
</System>

<User>
Greet {props.name}. {props.mood}
</User>
"""
ROWS = [{"input": {"name": "Ada"}, "expected_output": "Hi Ada"}, {"input": {"name": "{props.mood}", "mood": "sad"}}]


def body(text):
    return f"---\nname: x\n---\n<User>{text}</User>\n"


def contents(case):
    return [(message.role, message.content) for message in case.input]


class TestDataset:
    def test_the_prompt_is_rendered_for_each_row(self, folder):
        folder.write("rows.jsonl", ROWS)
        loaded = folder.load(folder.write("hello.prompt.mdx", PROMPT))
        system = ("system", 'Answer in JSON: `{"text": "…"}`')
        assert contents(loaded.cases[0]) == [system, ("user", "Greet Ada.")]
        assert contents(loaded.cases[1]) == [system, ("user", "Greet \\{props.mood}. sad")]
        assert {case.dataset for case in loaded} == {"greeting"}
        assert [(case.path, case.line) for case in loaded] == [("rows.jsonl", 1), ("rows.jsonl", 2)]

    def test_rows_with_a_reference_are_scored_as_in_a_jsonl_file(self, folder):
        folder.write("rows.jsonl", ROWS)
        loaded = folder.load(folder.write("hello.prompt.mdx", PROMPT))
        assert [len(case.evaluators) for case in loaded] == [1, 0]

    def test_props_are_the_only_case_without_a_dataset(self, folder):
        text = PROMPT.replace("dataset: ./rows.jsonl", "props: {name: Bob}")
        loaded = folder.load(folder.write("hello.prompt.mdx", text))
        assert [contents(case)[-1] for case in loaded] == [("user", "Greet Bob.")]

    def test_evals_are_evaluators_and_code_is_mentioned(self, folder):
        folder.write("rows.jsonl", ROWS[:1])
        text = PROMPT.replace("  dataset:", "  evals: [exact_match, my_scorer]\n  dataset:")
        loaded = folder.load(folder.write("hello.prompt.mdx", text))
        assert [(spec.type, spec.name) for spec in loaded.cases[0].evaluators] == [("equals", "exact_match")]
        assert any("the eval 'my_scorer' is code of an AgentMark client" in message for message in loaded.messages)

    @pytest.mark.parametrize(
        ("row", "message"),
        [({"mood": "x"}, "'input' does not match"), ({"name": 3}, "'input.name' does not match")],
    )
    def test_rows_are_checked_against_the_input_schema(self, folder, row, message):
        folder.write("rows.jsonl", [{"input": row}])
        error = folder.error(folder.write("hello.prompt.mdx", PROMPT))
        assert message in error.detail
        assert (error.path, error.line) == ("rows.jsonl", 1)

    def test_a_schema_can_be_in_files(self, folder):
        folder.write("rows.jsonl", ROWS)
        folder.write("schemas/name.json", {"definitions": {"a/b": {"type": "string"}}})
        folder.write("schemas/row.json", {"properties": {"name": {"$ref": "./name.json#/definitions/a~1b"}}})
        text = PROMPT[: PROMPT.index("  type: object")] + "  $ref: ./schemas/row.json\n---\n<User>{props.name}</User>\n"
        assert len(folder.load(folder.write("hello.prompt.mdx", text))) == 2
        folder.write("rows.jsonl", [{"input": {"name": 3}}])
        assert "'input.name' does not match" in folder.error("hello.prompt.mdx").detail
        for name, what in (("none.json", "was not found"), ("row.json#/x", "row.json has no '/x'")):
            folder.write("hello.prompt.mdx", text.replace("row.json", name))
            assert what in folder.error("hello.prompt.mdx").detail

    @pytest.mark.parametrize("parent", [".", "agentmark", "templates", "prompts"])
    def test_the_dataset_is_found_where_agentmark_looks(self, folder, parent):
        folder.write(".agentv/config.yaml", "version: 1\n")
        folder.write(f"{parent}/rows.jsonl", ROWS)
        assert len(folder.load(folder.write("prompts/hello.prompt.mdx", PROMPT))) == 2

    def test_a_folder_runs_the_prompt_and_not_its_rows_again(self, folder):
        folder.write("evals/rows.jsonl", ROWS)
        folder.write("evals/hello.prompt.mdx", PROMPT)
        folder.write("evals/other.prompt.mdx", body("Hi"))
        folder.write("evals/page.mdx", "# A page\n")
        assert len(folder.load("evals")) == 2

    @pytest.mark.parametrize(
        ("text", "detail"),
        [
            (PROMPT, "The dataset './rows.jsonl' was not found"),
            (body("Hi"), "The prompt has no rows"),
            ("no front matter", "The file must begin with front matter between two lines of ---"),
        ],
    )
    def test_a_file_that_cannot_be_used_is_an_error(self, folder, text, detail):
        assert folder.error(folder.write("hello.prompt.mdx", text)).detail == detail


class TestPrompt:
    def render(self, folder, text, **variables):
        folder.write("p.prompt.mdx", body(text))
        return folder.rows({"input": variables}, sidecar={"prompt": "p.prompt.mdx"}).cases[0].input[0].content

    @pytest.mark.parametrize(
        ("text", "variables", "rendered"),
        [
            ("{props.user.name}: {props.list[0]}", {"user": {"name": "Ada"}, "list": [1]}, "Ada: 1"),
            ("{props.a + 1} {props.a == 2} {props.b || 'none'}", {"a": 2, "b": ""}, "3 true none"),
            ("{truncate(props.a, 1, 2)}", {"a": "xyz"}, "x..."),
            ("{upper(props.a)} {join(props.b, '-')}", {"a": "x", "b": [1, 2]}, "X 1-2"),
            ("<If condition={props.a > 1 && !props.b}>yes</If><Else>no</Else>", {"a": 2, "b": False}, "yes"),
            ("<If condition={props.a}>1</If><ElseIf condition={props.b}>2</ElseIf>", {"a": 1, "b": True}, "2"),
            (
                "\n<ForEach arr={props.xs}>{(x, i) => (<>{i}={x.v};</>)}</ForEach>\n",
                {"xs": [{"v": "a"}, {"v": "b"}]},
                "<>0=a;</>\n\n<>1=b;</>",
            ),
            ("a {/* comment */}b \\{c\\} `{d}`", {}, "a b \\{c} `{d}`"),
            ("{props.a}", {"a": "{{ b }} {props.c}"}, "\\{\\{ b }} \\{props.c}"),
        ],
    )
    def test_expressions_and_tags_are_rendered(self, folder, text, variables, rendered):
        assert self.render(folder, text, **variables) == rendered

    @pytest.mark.parametrize(
        ("data", "image"),
        [("aGk=", "data:image/png;base64,aGk="), ("https://e.org/a.png", "https://e.org/a.png")],
    )
    def test_a_file_that_is_an_image_is_sent(self, folder, data, image):
        parts = self.render(folder, 'Look <FileAttachment data={props.a} mimeType="image/png" />', a=data)
        assert [part.value for part in parts[1:]] == [image]

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("<FileAttachment data={props.a} />", "<FileAttachment> needs the attributes 'data' and 'mimeType'"),
            ('<FileAttachment data="x" mimeType="text/csv" />', "<FileAttachment> of type 'text/csv' is not supported"),
        ],
    )
    def test_any_other_file_is_refused(self, folder, text, problem):
        folder.write("p.prompt.mdx", body(text))
        assert problem in folder.row_error({"input": {"a": 1}}, sidecar={"prompt": "p.prompt.mdx"}).detail

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{fetch(props.a)}", "the function 'fetch' is not supported"),
            ("{props.a ? 1 : 2}", "the operator '?' is not supported in {props.a ? 1 : 2}"),
            ("{props.a === 1}", "the operator '===' is not supported"),
            ("<Widget />", "<Widget> is not a tag of AgentMark, nor an imported component"),
            ("{props.a", "A { is not closed"),
            ("**a </b> c**", "</b> does not close the last tag"),
            ("[a][b]\n\n[b]: https://x.test", "'[b]: …' is not supported: write [text](address)"),
            ("a ⸢0⸣", "The text ⸢0⸣ is not supported"),
            ("<ForEach arr={props.a}>x</ForEach>", "<ForEach> needs lines of its own"),
            ("</User><User>\nimport X from './x.mdx'\n", "Cannot import './x.mdx': File"),
        ],
    )
    def test_what_is_not_supported_is_named_with_its_line(self, folder, text, problem):
        folder.write("p.prompt.mdx", body(text))
        error = folder.row_error({"input": {"a": 1}}, sidecar={"prompt": "p.prompt.mdx"})
        assert problem in error.detail
        assert "Prompt file 'p.prompt.mdx', line" in error.detail

    @pytest.mark.parametrize(
        "text", ["<If condition={true}>\n" * 3_000 + "</If>\n" * 3_000, "{" + "(" * 5_000 + "1" + ")" * 5_000 + "}"]
    )
    def test_what_is_nested_too_deeply_is_an_error(self, folder, text):
        folder.write("p.prompt.mdx", body(f"\n{text}\n"))
        error = folder.row_error({"input": {"a": 1}}, sidecar={"prompt": "p.prompt.mdx"})
        assert "nested too deeply" in error.detail

    def test_a_missing_variable_is_an_error_unless_the_schema_makes_it_optional(self, folder):
        folder.write("p.prompt.mdx", body("{props.gone}"))
        error = folder.row_error({"input": {"a": 1}}, sidecar={"prompt": "p.prompt.mdx"})
        assert error.detail == "The prompt uses the variable 'gone', which is missing in this row"


class TestKinds:
    """The kind of a prompt decides its tags and messages; attachments are for all messages of the user."""

    IMAGE = '<ImageAttachment image="https://e.org/a.png" />'

    def render(self, folder, text, config="text_config"):
        folder.write("p.prompt.mdx", f"---\nname: x\n{config}: {{model_name: m}}\n---\n{text}\n")
        messages = folder.rows({"input": {"a": 1}}, sidecar={"prompt": "p.prompt.mdx"}).cases[0].input
        contents = [[message.content] if isinstance(message.content, str) else message.content for message in messages]
        texts = [[getattr(part, "value", part) for part in content] for content in contents]
        return [(message.role, text) for message, text in zip(messages, texts, strict=True)]

    @pytest.mark.parametrize(
        ("config", "text", "messages"),
        [
            ("image_config", "<ImagePrompt>a</ImagePrompt>\n<ImagePrompt>b</ImagePrompt>", [("user", ["a"])]),
            (
                "speech_config",
                "<SpeechPrompt>a</SpeechPrompt>\n<System>b</System>",
                [("system", ["b"]), ("user", ["a"])],
            ),
        ],
    )
    def test_images_and_speech_have_one_prompt(self, folder, config, text, messages):
        assert self.render(folder, text, config) == messages

    @pytest.mark.parametrize(
        ("config", "text", "problem"),
        [
            ("image_config", "<User>a</User>", "<User> is not a tag"),
            ("text_config", "<SpeechPrompt>a</SpeechPrompt>", "<SpeechPrompt> is not a tag"),
            ("image_config", "<ImagePrompt></ImagePrompt>", "it has no text"),
            ("text_config", f"<System>{IMAGE}</System>", "<ImageAttachment> must be inside <User>"),
            ("text_config", "<User><ImageAttachment image='x.png' /></User>", "needs a URL, or Base64"),
            (
                "text_config",
                f"<User>\n<If condition={{true}}>\nx\n\n{IMAGE}\n</If>\n</User>\n<User>b</User>",
                "not certain",
            ),
            (
                "text_config",
                "<ForEach arr={[1, 2]}>\n{(x) => (<>\n<If condition={true}>\n<User>c</User>\n\n<User>d</User>\n</If>\n"
                "</>)}\n</ForEach>",
                "its place is not certain",
            ),
        ],
    )
    def test_what_the_engine_refuses_or_decides_by_chance_is_an_error(self, folder, config, text, problem):
        with pytest.raises(DatasetError, match=problem):
            self.render(folder, text, config)

    def test_each_message_of_the_user_has_all_images(self, folder):
        text = f"<User>one</User>\n<User>{self.IMAGE}two</User>"
        image = "https://e.org/a.png"
        assert self.render(folder, text) == [("user", ["one", image]), ("user", ["two", image])]

    def test_base64_gets_its_media_type(self, folder):
        text = "<User><ImageAttachment image='iVBORw0=' /><ImageAttachment image='' /></User>"
        assert self.render(folder, text) == [("user", ["", "data:image/png;base64,iVBORw0="])]

    def test_a_component_that_is_imported_twice_is_refused(self, folder):
        folder.write("a.mdx", "A\n")
        folder.write("b.mdx", "import A from './a.mdx'\n\n<A />\n")
        imports = "import A from './a.mdx'\nimport B from './b.mdx'\n\n"
        with pytest.raises(DatasetError, match="<A> is imported twice"):
            self.render(folder, f"{imports}<User>\n<A />\n</User>")
