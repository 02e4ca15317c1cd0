"""Provider ids of promptfoo: each has a target, or is refused."""

import json
from pathlib import Path

import pytest

from agentv.datasets.formats.dataset_format import Source
from agentv.extensions.promptfoo.promptfoo_config import PROMPTFOO_CONFIG
from agentv.extensions.promptfoo.providers.provider_entries import UnmappedProvider, target_entry


def test_the_last_provider_of_an_id_decides_on_its_prompts(folder, command):
    prompts = [{"label": "one", "raw": "1"}, {"label": "two", "raw": "2"}]
    providers = [{"id": "echo", "prompts": ["one"]}, {"id": "echo", "label": "b", "prompts": ["two"]}]
    path = folder.write("promptfooconfig.json", json.dumps({"prompts": prompts, "providers": providers}))
    command("eval", path, "--out", "run")
    records = map(json.loads, Path("run", "results.jsonl").read_text("utf-8").splitlines())
    assert {(record["target"], record["candidate_answer"]) for record in records} == {("echo", "2"), ("b", "2")}


DEFAULTS = {"temperature": 0, "max_output_tokens": 1024}
MAPPED = {
    "openai:chat": {"provider": "openai", "model": "gpt-4.1-2025-04-14", **DEFAULTS},
    "openai:responses": {"provider": "openai", "api": "responses", "model": "gpt-4.1-2025-04-14", **DEFAULTS},
    "openai:o3-mini": {"provider": "openai", "model": "o3-mini"},
    "openrouter:openai/gpt-5": {"provider": "openrouter", "model": "openai/gpt-5"},
    "openai:embedding": {"provider": "openai", "model": "text-embedding-3-large"},
    "openai:codex:gpt-5": {"provider": "codex", "model": "gpt-5"},
    "openai:codex-sdk": {"provider": "codex"},
    "anthropic:claude-code": {"provider": "claude-code"},
    "opencode": {"provider": "opencode"},
    "hf:chat:a/b": {"provider": "huggingface", "model": "a/b"},
    "github:openai/gpt-5": {
        "provider": "openai",
        "base_url": "https://models.github.ai/inference",
        "api_key": "${{ GITHUB_TOKEN }}",
        "model": "openai/gpt-5",
    },
    "novita:a/b": {
        "provider": "openai",
        "base_url": "https://api.novita.ai/openai/v1",
        "api_key": "${{ NOVITA_API_KEY }}",
        "model": "a/b",
        **DEFAULTS,
    },
}


@pytest.mark.parametrize("provider", MAPPED)
def test_an_id_of_promptfoo_is_mapped(provider):
    assert target_entry(provider, ".", pytest.fail) == MAPPED[provider]


MANTLE = "https://bedrock-mantle.{}.api.aws/{}"
BEDROCK = {
    "bedrock:mantle:zai.glm-4.6": {"base_url": MANTLE.format("eu-west-1", "v1"), "model": "zai.glm-4.6", **DEFAULTS},
    "bedrock:mantle:google.gemma-4-x": {"base_url": MANTLE.format("eu-west-1", "openai/v1"), **DEFAULTS},
    "bedrock:openai.gpt-5.5": {"base_url": MANTLE.format("eu-west-1", "openai/v1"), "api": "responses"},
    "bedrock:responses:openai.gpt-oss-120b": {"base_url": MANTLE.format("eu-west-1", "v1"), "api": "responses"},
}


@pytest.mark.parametrize("provider", BEDROCK)
def test_a_model_of_bedrock_with_the_api_of_openai_is_called_there(provider):
    entry = target_entry({"id": provider, "config": {"region": "eu-west-1"}}, ".", pytest.fail)
    assert entry["provider"] == "openai" and entry["api_key"] == "${{ AWS_BEARER_TOKEN_BEDROCK }}"
    assert BEDROCK[provider].items() <= entry.items()
    assert ("temperature" in entry) == ("temperature" in BEDROCK[provider] or "gpt-oss" in provider)


@pytest.mark.parametrize(
    ("id", "config", "limit"),
    [
        ("bedrock:converse:us.anthropic.claude-sonnet-4-6", {"maxTokens": 9}, 9),
        ("bedrock:amazon.nova-pro-v1:0", {"interfaceConfig": {"max_new_tokens": 8, "temperature": 0}}, 8),
        ("bedrock:us.meta.llama3-2-1b-instruct-v1:0", {"max_gen_len": 7}, 7),
    ],
)
def test_the_token_limit_of_bedrock_has_several_names(id, config, limit):
    assert target_entry({"id": id, "config": config}, ".", pytest.fail)["max_output_tokens"] == limit


SHOP = """
def call_api(prompt, options, context):
    return {"output": options["config"]["basePath"] + str(context["vars"].get("__repeatIndex"))}
"""


def test_code_of_a_provider_reads_the_folder_of_its_configuration(folder, command):
    folder.write("shop.py", SHOP)
    data = {"prompts": ["{{x}}"], "providers": ["python:shop.py"], "tests": [{"vars": {"x": "a"}}]}
    path = folder.write("promptfooconfig.json", json.dumps(data))
    assert "the variable '__repeatIndex', which shop.py reads" in " ".join(map(str, folder.load(path).warnings))
    ended = command("eval", path, "--out", str(folder.path / "run"), "--no-gate")
    (record,) = map(json.loads, (folder.path / "run" / "results.jsonl").read_text("utf-8").splitlines())
    assert (record["candidate_answer"], ended.code) == (f"{folder.path}None", 0)


def test_the_address_of_databricks_may_be_in_the_config(folder):
    config = {"workspaceUrl": "https://shop.example/", "usageContext": {"team": "a"}}
    entry = target_entry({"id": "databricks:m", "config": config}, ".", pytest.fail)
    assert entry["base_url"] == "https://shop.example/serving-endpoints"
    assert entry["extra_body"] == {"usage_context": {"team": "a"}}


GEMINI_MODEL = {
    "provider": "gemini",
    "model": "gemini-2.5-pro",
    "base_url": "https://generativelanguage.googleapis.com/v1beta",
    "api_key": "${{ GEMINI_API_KEY }}",
}
GENERATION = {"maxOutputTokens": 9, "topP": 0.9}
CALLS = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}
GEMINI = [
    ({"maxOutputTokens": 9, "topP": 0.9}, {"max_output_tokens": 9, "extra_body": {"generationConfig": {"topP": 0.9}}}),
    ({"generationConfig": GENERATION}, {"extra_body": {"generationConfig": GENERATION}}),
    ({"systemInstruction": {"parts": [{"text": "Be kind."}]}}, {"system_prompt": "Be kind."}),
    (
        {"responseSchema": {"type": "object"}},
        {
            "extra_body": {
                "generationConfig": {"response_schema": {"type": "object"}, "response_mime_type": "application/json"}
            }
        },
    ),
    ({"toolConfig": CALLS}, {"extra_body": {"toolConfig": CALLS}}),
    (
        {"tool_config": {"function_calling_config": {"mode": "any", "allowed_function_names": ["f"]}}},
        {"extra_body": {"toolConfig": CALLS}},
    ),
    ({"apiHost": "proxy.example", "apiVersion": "v1alpha"}, {"base_url": "https://proxy.example/v1alpha"}),
    (
        {"safetySettings": [{"category": "A", "probability": "BLOCK_NONE"}]},
        {"extra_body": {"safetySettings": [{"category": "A", "threshold": "BLOCK_NONE"}]}},
    ),
    (
        {
            "tools": [
                {"functionDeclarations": [{"name": "f", "parameters": {"type": "array", "items": {"title": "x"}}}]}
            ]
        },
        {
            "answer_form": "promptfoo",
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "ARRAY", "items": {}}}]}],
        },
    ),
    ({"tools": {"googleSearch": {}}}, {"answer_form": "promptfoo", "tools": [{"googleSearch": {}}]}),
]


@pytest.mark.parametrize(("config", "settings"), GEMINI)
def test_settings_of_gemini_are_those_of_its_requests(config, settings):
    entry = target_entry({"id": "google:gemini-2.5-pro", "config": config}, ".", pytest.fail)
    assert entry == {**GEMINI_MODEL, **settings}


def test_settings_that_gemini_does_not_have_are_named():
    lost: list[str] = []
    config = {"systemInstruction": "Talk like {{who}}.", "region": "global", "tool_choice": "auto"}
    entry = target_entry({"id": "vertex:gemini-2.5-pro", "config": config}, ".", lost.append)
    assert entry == GEMINI_MODEL
    assert [what for what in lost if "systemInstruction" in what or "region" in what or "tool_choice" in what] == lost[
        1:
    ]


PHOTO = b"\xff\xd8\xff\xe0" + b"x" * 20


def test_gemini_receives_the_images_in_a_text(folder, command):
    folder.write("photo.jpg", PHOTO)
    config = {"prompts": ["Look:\n{{photo}}\nWhat is {{it}}?"], "providers": ["google:gemini-2.5-flash"]}
    config["tests"] = [{"vars": {"photo": "file://photo.jpg", "it": "{%"}}]
    row = json.loads(command("cases", folder.write("promptfooconfig.yaml", json.dumps(config))).stdout)
    first, image, last = row["input"][0]["content"]
    assert (first["value"], last["value"]) == ("Look:", "What is {%?") and image["type"] == "image"
    config["providers"].append("echo")
    refused = command("validate", folder.write("promptfooconfig.yaml", json.dumps(config)))
    assert "other providers their Base64" in refused.stdout


def test_the_own_provider_of_a_test_decides_whether_it_receives_images(folder):
    folder.write("photo.jpg", PHOTO)
    test = {"vars": {"photo": "file://photo.jpg"}, "provider": "google:gemini-2.5-flash"}
    config = {"prompts": ["{{photo}}\nWhat is it?"], "providers": ["echo"], "tests": [test]}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    assert [type(part).__name__ for part in case.input[0].content] == ["ImagePart", "TextPart"]
    config = {**config, "providers": [test["provider"]], "tests": [{**test, "provider": "echo"}]}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    assert case.input[0].content.startswith("data:image/jpeg;base64,")


def test_a_prompt_with_an_image_and_an_unknown_filter_is_an_error(folder):
    folder.write("photo.jpg", PHOTO)
    config = {"prompts": ["{{ photo | nope }}"], "providers": ["google:gemini-2.5-flash"]}
    config["tests"] = [{"vars": {"photo": "file://photo.jpg"}}]
    assert "unknown filter: nope" in str(folder.error(folder.write("promptfooconfig.json", json.dumps(config))))


@pytest.mark.parametrize(
    ("id", "config", "settings"),
    [
        ("anthropic:claude-haiku-4-5", {"beta": "a"}, {"headers": {"anthropic-beta": "a"}}),
        ("anthropic:claude-haiku-4-5", {"beta": [1]}, {"headers": {"anthropic-beta": "1"}}),
        ("anthropic:claude-opus-4-1", {"thinking": {"type": "enabled"}, "top_p": "x"}, {"extra_body": {"top_p": "x"}}),
        ("anthropic:claude-haiku-4-5", {"timeoutMs": "x"}, {"timeout_seconds": "x"}),
        ("google:gemini-2.5-pro", {"safetySettings": 1}, {"extra_body": {"safetySettings": 1}}),
        ("google:gemini-2.5-pro", {"systemInstruction": {"parts": ["Be", 1]}}, {"system_prompt": "Be\n\n1"}),
        (
            "google:gemini-2.5-pro",
            {"tools": [{"functionDeclarations": [1]}]},
            {"tools": [{"functionDeclarations": [1]}]},
        ),
    ],
)
def test_a_setting_of_another_type_is_sent_as_it_is(id, config, settings):
    entry = target_entry({"id": id, "config": config}, ".", pytest.fail)
    assert {key: entry[key] for key in settings} == settings


REFUSED = (
    *(
        "bedrock:api:InvokeModel",
        "bedrock:amazon.nova-sonic-v1:0",
        "bedrock:amazon.nova-reel-v1:1",
        "bedrock:luma.ray-v2:0",
    ),
    *("a2a:http://x", "agentic:memory-poisoning", "azure:assistant:a"),
    *("azure:image:d", "azure:foundry-agent:a", "azure:realtime:d", "azure:video:d", "bam:m", "bedrock-agent:a"),
    *("bedrock:kb:x", "browser", "cloudera:m", "cloudflare-gateway:openai:m"),
    *("elevenlabs:tts", "envoy:m", "f5:m", "fal:image:m", "file://p.go"),
    *("file://p.rb", "golang:p.go", "google:live:m", "helicone:m", "huggingface:feature-extraction:m"),
    *("huggingface:text-classification:m", "jfrog:m", "mcp", "meta:m", "mlflow-gateway:m", "modelslab:image:m"),
    *("n8n:http://x", "openai:agents:a", "openai:assistant:a", "openai:chatkit:a", "openai:codex-app-server"),
    *("openai:image:m", "openai:moderation", "openai:realtime:m", "openai:transcription:m", "openai:tts:m"),
    *("openai:video:m", "openclaw", "openinterpreter", "package:p:x", "portkey:m", "promptfoo:model:m"),
    *("promptfoo://provider/1", "promptfoo:manual-input", "promptfoo:redteam:goat", "promptfoo:simulated-user"),
    *("quiverai:m", "qwak:m", "replicate:m", "ruby:p.rb", "sagemaker:m", "sequence", "slack", "snowflake:m"),
    *("voyage:m", "transformers:text-generation:m", "vercel:m", "watsonx:m", "webhook:http://x"),
    *("websocket", "ws://x", "wss://x", "xai:image:m", "xai:video:m", "xai:voice:m"),
)


@pytest.mark.parametrize("provider", REFUSED)
def test_every_other_id_of_promptfoo_is_refused(provider):
    with pytest.raises(UnmappedProvider):
        target_entry(provider, ".", pytest.fail)


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("openai:completion:davinci-002", "the completion API of 'openai:completion:davinci-002'"),
        ("openai:gpt-3.5-turbo-instruct", "the completion API"),
        ("llama:m", "the completion API"),
        ({"id": "python:p.py", "config": {"pythonExecutable": "venv/bin/python"}}, "runs in the Python of agentv"),
        ("azure:chat:m", "often a temperature of 0 and 1,024 tokens"),
        (
            {"id": "bedrock:converse:m", "config": {"tools": [{"toolSpec": {}}]}},
            "the output of an answer with tool calls",
        ),
    ],
)
def test_a_provider_that_answers_differently_is_named(provider, message):
    reasons = []
    target_entry(provider, ".", reasons.append)
    assert message in " ".join(reasons)


def test_an_answer_for_a_json_schema_is_parsed_as_in_promptfoo():
    config = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}}
    entry = target_entry({"id": "openai:gpt-4o", "config": config, "transform": "output.a"}, ".", pytest.fail)
    assert [step["javascript"] for step in entry["transform"]][1] == "output.a"
    assert "JSON.parse(output)" in entry["transform"][0]["javascript"]


ADDRESSES = {
    "openai:o3": (("OPENAI_BASE_URL", "OPENAI_API_KEY"), "${{ OPENAI_BASE_URL }}", "${{ OPENAI_API_KEY }}"),
    "openai:o4": (("OPENAI_BASE_URL", "OPENAI_API_HOST"), "https://${{ OPENAI_API_HOST }}/v1", None),
    "openai:o1": ({"OPENAI_BASE_URL": "http://own/v1", "OPENAI_API_KEY": "k"}, "http://own/v1", "k"),
    "openai:gpt-5": ({"OPENAI_API_KEY": None}, None, None),
    "anthropic:m": (("ANTHROPIC_BASE_URL",), "${{ ANTHROPIC_BASE_URL }}", None),
    "ollama:m": (("OLLAMA_BASE_URL",), "${{ OLLAMA_BASE_URL }}/v1", None),
    "groq:m": (("OPENAI_BASE_URL",), None, None),
    "google:m": (("GOOGLE_API_HOST",), "https://${{ GOOGLE_API_HOST }}/v1beta", "${{ GEMINI_API_KEY }}"),
    "llama": (("LLAMA_BASE_URL",), "${{ LLAMA_BASE_URL }}/v1", None),
    "localai:m": (("LOCALAI_BASE_URL",), "${{ LOCALAI_BASE_URL }}", "none"),
    "docker:m": (("DOCKER_MODEL_RUNNER_BASE_URL",), "${{ DOCKER_MODEL_RUNNER_BASE_URL }}/engines/v1", "none"),
    "fireworks:m": (("FIREWORKS_API_BASE_URL",), "${{ FIREWORKS_API_BASE_URL }}", None),
    "mistral:m": (("MISTRAL_API_BASE_URL", "MISTRAL_API_HOST"), "https://${{ MISTRAL_API_HOST }}/v1", None),
}


@pytest.mark.parametrize(("provider", "row"), ADDRESSES.items(), ids=ADDRESSES)
def test_the_environment_redirects_the_calls_to_a_service(provider, row):
    variables, address, key = row
    variables = variables if isinstance(variables, dict) else dict.fromkeys(variables)
    entry = target_entry(provider, ".", [].append, variables)
    assert (entry.get("base_url"), entry.get("api_key")) == (address, key)


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_the_config_of_a_provider_may_be_in_files(folder):
    folder.write("tools.json", json.dumps([TOOL]))
    folder.write("system.txt", "Be kind.\n")
    folder.write("format.yaml", "type: json_schema\njson_schema: {name: a, schema: file://schema.json}\n")
    folder.write("schema.json", '{"type": "object"}')
    config = {
        "tools": "file://tools.json",
        "systemPrompt": "file://system.txt",
        "response_format": "file://format.yaml",
    }
    provider = {"id": "openai:gpt-4o", "config": config}
    path = folder.write("promptfooconfig.json", json.dumps({"prompts": ["x"], "providers": [provider]}))
    [entry] = PROMPTFOO_CONFIG.targets(Source((path,), path, "promptfoo", path))
    assert entry["tools"] == [TOOL] and entry["system_prompt"] == "Be kind."
    assert entry["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert entry["answer_form"] == "promptfoo"


@pytest.mark.parametrize(
    ("configs", "providers", "seeds"),
    [
        ([{"seed": 5}], ["openai:o3", {"id": "openai:o4", "config": {"seed": 1}}], [5, 5]),
        ([{"seed": 5}, {"seed": 5}], ["openai:o3"], [5]),
        ([{"seed": 5}, {}], ["openai:o3"], [None]),
        ([{"seed": 5}], ["echo"], [None]),
    ],
)
def test_the_config_of_all_prompts_is_that_of_the_models(folder, command, configs, providers, seeds):
    prompts = [{"raw": f"{number}", "config": config} for number, config in enumerate(configs)]
    path = folder.write("promptfooconfig.json", json.dumps({"prompts": prompts, "providers": providers}))
    entries = PROMPTFOO_CONFIG.targets(Source((path,), path, "promptfoo", path))
    assert [entry.get("seed") for entry in entries] == seeds
    is_lost = "'config' of the prompt" in command("validate", path).stdout
    assert is_lost == (None in seeds)


def test_a_provider_may_have_an_environment_of_its_own():
    losses = []
    provider = {"id": "openai:o3", "env": {"OPENAI_BASE_URL": "http://own/v1", "OTHER": "x"}}
    assert target_entry(provider, ".", losses.append, {"OPENAI_API_KEY": None}) == {
        **{"provider": "openai", "model": "o3"},
        **{"base_url": "http://own/v1", "api_key": "${{ OPENAI_API_KEY }}"},
    }
    assert losses == ["'OTHER' in the env of the provider 'openai:o3'"]


def test_a_provider_whose_settings_cannot_be_read_is_named_and_the_others_are_kept(folder, command):
    config = {"url": "http://x/{{ env.NONE | random }}"}
    whole = {"prompts": ["x"], "providers": [{"id": "http", "config": config}, "echo"]}
    ended = command("validate", folder.write("promptfooconfig.json", json.dumps(whole)))
    assert ended.code == 0 and "the provider 'http': The template '{{ env.NONE | random }}'" in ended.stdout


def test_a_model_is_not_evaluated_instead_of_providers_that_cannot_be_used(folder, command):
    path = folder.write("promptfooconfig.yaml", "prompts: [Hello]\nproviders: [{id: browser, label: page}]\n")
    judged = command("eval", path, "--dry-run", "--judge", "openai:gpt-5")
    assert (judged.code, "None of the targets in" in judged.stderr) == (2, True)
    folder.write(
        ".agentv/targets.yaml", "targets:\n  - {name: page, provider: mock}\n  - {name: other, provider: mock}\n"
    )
    assert "page: 1 job" in command("eval", path, "--dry-run").stdout


THINKING = {"type": "enabled", "budget_tokens": 9}
STRUCTURED = {"type": "json_schema", "schema": {"type": "object"}}
ANTHROPIC = [
    ("claude-haiku-4-5", {}, {"max_output_tokens": 1024, "temperature": 0}),
    ("claude-haiku-4-5", {"top_p": 0.5, "temperature": 1}, {"max_output_tokens": 1024, "extra_body": {"top_p": 0.5}}),
    (
        "claude-haiku-4-5",
        {"thinking": THINKING, "temperature": 1, "top_p": 0.5, "tool_choice": {"type": "any"}},
        {"max_output_tokens": 2048, "reasoning": THINKING, "extra_body": {"top_p": 0.95}, "answer_form": "promptfoo"},
    ),
    ("claude-opus-4-8", {"temperature": 0, "top_k": 1}, {"max_output_tokens": 1024}),
    (
        "claude-sonnet-5",
        {"thinking": THINKING, "effort": "high"},
        {
            "max_output_tokens": 2048,
            "reasoning": {"type": "adaptive"},
            "answer_form": "promptfoo",
            "extra_body": {"output_config": {"effort": "high"}},
        },
    ),
    ("claude-opus-5", {}, {"max_output_tokens": 2048}),
    (
        "claude-opus-5",
        {"thinking": {"type": "disabled"}},
        {"max_output_tokens": 1024, "reasoning": {"type": "disabled"}, "answer_form": "promptfoo"},
    ),
]


@pytest.mark.parametrize(("model", "config", "settings"), ANTHROPIC)
def test_settings_of_anthropic_are_those_of_its_requests(model, config, settings):
    entry = target_entry({"id": f"anthropic:messages:{model}", "config": config}, ".", pytest.fail)
    assert entry == {"provider": "anthropic", "model": model, **settings}


def test_an_answer_in_the_format_of_anthropic_is_data():
    entry = target_entry(
        {"id": "anthropic:claude-haiku-4-5", "config": {"output_format": STRUCTURED}}, ".", pytest.fail
    )
    assert entry["extra_body"] == {"output_config": {"format": STRUCTURED}}
    assert entry["headers"] == {"anthropic-beta": "structured-outputs-2025-11-13"}
    assert "JSON.parse" in entry["transform"]["javascript"]


@pytest.mark.parametrize(
    ("id", "config", "settings"),
    [
        ("openai:gpt-5-mini", {"temperature": 0, "max_tokens": 9}, {}),
        ("openai:gpt-5-mini", {"max_completion_tokens": 9}, {"max_output_tokens": 9}),
        ("openai:responses:o3", {"instructions": "Be kind."}, {"extra_body": {"instructions": "Be kind."}}),
        ("mistral:m", {}, {"max_output_tokens": 1024}),
        ("litellm:m", {}, {}),
    ],
)
def test_defaults_are_those_of_the_model(id, config, settings):
    entry = target_entry({"id": id, "config": config}, ".", pytest.fail)
    fixed = ("provider", "model", "api", "base_url", "api_key")
    assert {key: value for key, value in entry.items() if key not in fixed} == settings


@pytest.mark.parametrize("name", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_the_key_of_google_is_sent_to_gemini(name):
    entry = target_entry("google:gemini-2.5-pro", ".", pytest.fail, {name: ""})
    assert entry["api_key"] == f"${{{{ {name} }}}}"
