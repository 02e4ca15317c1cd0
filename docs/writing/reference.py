"""All pages of the reference by their names."""

from __future__ import annotations

from functools import partial

from agentv import stats
from agentv.registry import EVALUATORS, TARGETS
from writing import commands, evaluators, foreign_formats, keys, statistics, targets

NOTE = "<!-- Written by docs/generate.py. Change the code, then run it. -->"


def pages() -> dict[str, str]:
    """Every page by its path under docs/reference."""
    builders = {
        "cli.md": commands.index,
        "keys.md": keys.page,
        "workspaces.md": keys.workspaces,
        "sandbox.md": keys.sandbox,
        "refused-keys.md": keys.refused,
        "formats.md": foreign_formats.page,
    }
    builders |= {f"cli/{name}.md": partial(commands.page, name) for name in commands.names()}
    builders |= {"stats.md": statistics.index}
    builders |= {f"stats/{module}.md": partial(statistics.page, module) for module in stats.NAMES}
    builders |= {"evaluators.md": evaluators.index, "targets.md": targets.index}
    builders |= {f"evaluators/{name}.md": partial(evaluators.page, name) for name in EVALUATORS.names()}
    builders |= {f"targets/{name}.md": partial(targets.page, name) for name in TARGETS.names()}
    return {name: "\n".join([NOTE, "", *build()]).rstrip() + "\n" for name, build in builders.items()}
