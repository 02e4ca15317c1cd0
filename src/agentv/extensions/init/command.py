"""`agentv init`: create a starter project."""

import sys
from importlib.resources import files
from pathlib import Path

import click

from agentv.cli import output
from agentv.cli.options import Arguments, argument, declare, flag, option
from agentv.errors import file_errors, plural
from agentv.schemas import schema, to_text

KINDS = ("demo", "function", "command", "http", "model", "local", "agent")
"""What `agentv init` can write a project for."""

_FILES = {
    ".agentv/config.yaml": "agentv/config.yaml",
    ".agentv/targets.yaml": "agentv/targets.yaml",
    "evals/README.md": "evals/README.md",
    "evals/greetings.yaml": "evals/greetings.yaml",
    "evals/arithmetic.jsonl": "evals/arithmetic.jsonl",
    "evals/arithmetic.yaml": "evals/arithmetic.yaml",
    ".env.example": "env.example",
    ".gitignore": "gitignore",
}
_CODE = {
    "function": {"agent.py": "agent.txt"},
    "command": {"agent.py": "agent.txt"},
    "http": {"agent.py": "agent.txt", "service.py": "service.txt"},
}
_WORKFLOWS = {
    ".github/workflows/evals.yaml": "workflow.yaml",
    ".github/workflows/evals-base.yaml": "base_workflow.yaml",
}
_RECORDING = ".agentv/results/recording.jsonl"
_RESTORE = """\
      - uses: actions/cache/restore@5a3ec84eff668545956fd18022155c47e93e2684 # v4.2.3
        with: {path: .agentv/results, key: agentv-runs-, restore-keys: agentv-runs-}
"""
_GATE = {"threshold": '"0.8"', "max-errors": "1%"}
_CI: dict[str, tuple[str, str]] = {
    "function": ("default", ""),
    "command": ("default", ""),
    "http": ("service", ""),
    "model": ("model", "OPENAI_API_KEY"),
    "local": ("local", ""),
    "agent": ("agent", "ANTHROPIC_API_KEY"),
}
"""The target that the workflows of each kind evaluate, and the secret with its key. The demo has only fixed answers."""
_NEXT = {
    "demo": "Add your own target to `.agentv/targets.yaml`. The one there returns fixed answers.",
    "function": "Replace the function in `agent.py` with your own, or name another in `.agentv/targets.yaml`.",
    "command": "Replace the program in `.agentv/targets.yaml` with your own.",
    "http": "Start your service, or `python service.py`, and run `agentv eval evals --target service`.",
    "model": "Add the key to `.env`, run `agentv targets check model`, then `agentv eval evals --target model`.",
    "local": "Start your model server, run `agentv targets check local`, then `agentv eval evals --target local`.",
    "agent": "Install the agent, run `agentv targets check agent`, then `agentv eval evals --target agent`.",
}
_SCHEMAS = ("dataset", "line", "sidecar", "targets", "config")


class InitArguments(Arguments):
    """Writes a project that runs without an API key: two small datasets, a targets file for what you evaluate, a
    configuration, a README with the next steps, and the schemas for completion and validation in editors. On a
    terminal, asks what you evaluate, and before it replaces an existing file.

    \b
    demo      fixed answers            model    a model API
    function  a Python function        local    a model on this machine
    command   a program                agent    a coding agent
    http      an HTTP service
    """

    action = "agentv.extensions.init.command:init"
    examples = ("agentv init", "agentv init my-project --for function", "agentv init --for model --ci")

    folder: str = argument(type=click.Path(file_okay=False), default=".")
    kind: str | None = option(
        "--for", "What you evaluate (default: asked on a terminal, else demo).", click.Choice(KINDS)
    )
    ci: bool = flag("--ci", "Also write GitHub workflows that run the evaluations and comment on pull requests.")
    force: bool = flag("--force", "Replace existing files without asking.")


def init(args: InitArguments) -> None:
    """Write the starter project."""
    root, kind = Path(args.folder), args.kind or _ask_for_kind()
    new_count, kept_count = 0, 0
    for name, text in _texts(kind, args.ci).items():
        path = root / name
        with file_errors(f"Cannot read {path}"):
            content = path.read_bytes().replace(b"\r\n", b"\n") if path.exists() else None
        if content == text.encode():
            continue
        if content is not None and not args.force and not _may_replace(path):
            output.note(f"Kept existing {path}")
            kept_count += 1
            continue
        with file_errors(f"Cannot write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        new_count += 1
    if new_count or kept_count:
        output.echo(f"Wrote {plural(new_count, 'file')}{f', kept {kept_count}' if kept_count else ''} in {root}")
    else:
        output.echo(f"Nothing to do: all files of the project are in {root}")
    enter = "" if args.folder == "." else f"  cd {args.folder}\n"
    output.echo(f"\nNext:\n{enter}  agentv validate .\n  agentv eval evals")
    if args.ci:
        output.echo(
            "\nIn .github/workflows, replace OWNER/agentv@000… with the repository and commit of agentv to use."
        )
    output.echo(f"\nThen:\n  {_NEXT[kind]}\n\nMore in {root / 'evals' / 'README.md'}")


def _texts(kind: str, ci: bool) -> dict[str, str]:
    """Return the texts of the project's files by path."""
    starter = files("agentv.extensions.init") / "starter"
    sources = {**_FILES, **_CODE.get(kind, {}), **(_WORKFLOWS if ci else {})}
    if kind != "demo":
        sources[".agentv/targets.yaml"] = f"kinds/{kind}.yaml"
    texts = {name: starter.joinpath(source).read_text(encoding="utf-8") for name, source in sources.items()}
    for name in _WORKFLOWS if ci else ():
        for mark, lines in _workflow_lines(kind).items():
            texts[name] = texts[name].replace(f"{mark}\n", lines)
    texts["evals/README.md"] = texts["evals/README.md"].replace("NEXT", f"1. {_NEXT[kind]}")
    return texts | {f".agentv/schemas/{name}.schema.json": to_text(schema(name)).decode() for name in _SCHEMAS}


def _workflow_lines(kind: str) -> dict[str, str]:
    """Return the lines of the workflows that depend on the kind: target, gates, key, recording.

    Fixed answers have no gate. Pull requests of forks have no key, so that they replay the calls of the base branch.
    """
    if kind not in _CI:
        comment = "# The target has fixed answers. Name your own with target, threshold and max-errors."
        return {"GATE": f"          {comment}\n", "TARGET": "", "RECORDING": "", "FRESH": ""}
    target, secret = _CI[kind]
    gate = [f"{key}: {value}" for key, value in {"target": target, **_GATE}.items()]
    base = [f"target: {target}"]
    if secret:
        gate.append(f"replay: ${{{{ secrets.{secret} == '' && '{_RECORDING}' || '' }}}} # forks have no key")
        base.append(f"args: --record {_RECORDING}")
    key = f"        env:\n          {secret}: ${{{{ secrets.{secret} }}}}\n" if secret else ""
    blocks = {"GATE": gate, "TARGET": base}
    return {
        **{mark: "".join(f"          {line}\n" for line in lines) + key for mark, lines in blocks.items()},
        "RECORDING": _RESTORE if secret else "",
        "FRESH": f"      - run: rm -f {_RECORDING}\n" if secret else "",
    }


def _ask_for_kind() -> str:
    """Ask what is evaluated; without a terminal, it is the demo."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "demo"
    output.message(f"What do you evaluate?\n{(InitArguments.__doc__ or '').partition(chr(8))[2]}")
    kind: str = click.prompt("Name", type=click.Choice(KINDS), default="demo", show_choices=False, err=True)
    return kind


def _may_replace(path: Path) -> bool:
    """Ask whether to replace a file; without a terminal, it is kept."""
    return sys.stdin.isatty() and click.confirm(f"{path} already exists. Replace it?", default=False, err=True)


init_command = declare("init", InitArguments)
