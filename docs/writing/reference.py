"""All pages of the reference by their names."""

from __future__ import annotations

from functools import partial

from agentv.registry import EVALUATORS, TARGETS
from writing import commands, evaluators, keys, statistics, targets

_NOTE = "<!-- Written by docs/generate.py. Change the code or docs/meanings.toml, then run it. -->"


def pages() -> dict[str, str]:
    """Every page by its path under docs/reference."""
    builders = {"cli.md": commands.page, "keys.md": keys.page, "stats.md": statistics.page}
    builders |= {"evaluators.md": evaluators.index, "targets.md": targets.index}
    builders |= {f"evaluators/{name}.md": partial(evaluators.page, name) for name in EVALUATORS.names()}
    builders |= {f"targets/{name}.md": partial(targets.page, name) for name in TARGETS.names()}
    return {name: "\n".join([_NOTE, "", *build()]).rstrip() + "\n" for name, build in builders.items()}
