"""The variants to choose from: targets, each with every prompt."""

from pathlib import Path

import click
import msgspec

from agentv.engine.run_options import EvalOptions
from agentv.engine.run_project import open_targets
from agentv.errors import UsageError, file_errors
from agentv.targets.targets_file import Variant


def with_variants(options: EvalOptions, prompts: tuple[str, ...], folder: str) -> EvalOptions:
    """Return options whose targets are all variants, the baseline first. Raises UsageError for fewer than two."""
    names = options.targets
    if prompts:
        file = open_targets(folder, options.targets_file)
        names = tuple(file.pick(options.targets))
        for name in names:
            target = file.get(name)
            if "system_prompt" not in target.__struct_fields__:
                detail = f"Provider '{target.provider}' has no `system_prompt`"
                raise UsageError(f"Target '{name}' cannot have a prompt", detail, "Use a model API or a coding agent")
    variants = tuple(
        Variant(name=f"{name}-{label}", base=name, settings={"system_prompt": text})
        for name in names
        for label, text in _texts(prompts).items()
    )
    targets = tuple(variant.name for variant in variants) or names
    if len(set(targets)) < 2:
        raise click.UsageError("Name at least two variants: --target NAME or --prompt FILE, several times")
    return msgspec.structs.replace(options, targets=tuple(dict.fromkeys(targets)), variants=variants)


def _texts(prompts: tuple[str, ...]) -> dict[str, str]:
    """Return the text of each prompt by the name of its file."""
    texts: dict[str, str] = {}
    for path in prompts:
        if (label := Path(path).stem) in texts:
            raise UsageError(f"Two prompts are called '{label}'", hint="Rename one of the files")
        with file_errors(f"Cannot read {path}"):
            texts[label] = Path(path).read_text(encoding="utf-8")
    return texts
