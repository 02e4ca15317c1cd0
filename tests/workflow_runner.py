"""Run workflows and the GitHub Action of this repository as a runner of GitHub would, with real commands."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
_TERM = re.compile(r"'[^']*'|always\(\)|&&|\|\||[A-Za-z_][\w.-]*")
_OPERATORS = {"&&": " and ", "||": " or ", "always()": "True"}


def evaluate(expression, context):
    """Return the value of an expression such as `inputs.out != '' && always()`. A missing value is empty."""

    def term(match):
        if match[0] in _OPERATORS or match[0].startswith("'"):
            return _OPERATORS.get(match[0], match[0])
        value = context
        for name in match[0].split("."):
            value = value.get(name, "") if isinstance(value, dict) else ""
        return repr(value)

    return eval(_TERM.sub(term, expression))


def filled(text, context):
    """Return a text with the values of its expressions."""
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: str(evaluate(match[1], context)), str(text))


def is_run(step, context, has_failed):
    condition = str(step.get("if", "")).removeprefix("${{").removesuffix("}}")
    return (not has_failed or "always()" in condition) and (not condition or bool(evaluate(condition, context)))


def run_script(script, variables):
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


def runner_variables():
    """Return the variables of a runner whose workspace is this folder."""
    files = {name: os.path.abspath(name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    return {**files, "GITHUB_ACTION_PATH": str(REPOSITORY)}


def run_action(inputs, variables=None, context=None):
    """Run the steps of the Action: after a failure, only those that say `always()`. Return code and output by step."""
    context = {**(context or {}), "steps": {}}
    context["inputs"] = {name: filled(spec["default"], context) for name, spec in ACTION["inputs"].items()}
    context["inputs"] |= {"package": "installed", **inputs}
    results = {}
    for step in ACTION["runs"]["steps"]:
        if not is_run(step, context, any(code for code, _ in results.values())):
            continue
        values = {name: filled(text, context) for name, text in step["env"].items()}
        ended = run_script(step["run"], {**runner_variables(), **(variables or {}), **values})
        results[step["name"]] = (ended.returncode, ended.stdout + ended.stderr)
        output = Path("github_output")
        lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
        context["steps"]["evaluate"] = {"outputs": dict(line.split("=", 1) for line in lines)}
    return results


class Runner:
    """Runs jobs of workflows. `caches` and `artifacts` are kept in `home` between jobs."""

    def __init__(self, home):
        self.home = home
        self.caches = []

    def run(self, job, context, variables):
        """Run the steps of a job in this folder; return whether it succeeded, and the output of its commands."""
        text, has_failed, saved = [], False, None
        for step in job["steps"]:
            if not is_run(step, context, has_failed):
                continue
            uses, inputs = step.get("uses", "run").partition("@")[0], step.get("with", {})
            inputs = {name: filled(value, context) for name, value in inputs.items()}
            if uses == "OWNER/agentv":
                own = {name: filled(value, context) for name, value in step.get("env", {}).items()}
                results = run_action(inputs, {**variables, **own}, context)
                text += [output for _, output in results.values()]
                has_failed |= any(code for code, _ in results.values())
            elif uses == "run":
                ended = run_script(step["run"], variables)
                text.append(ended.stdout + ended.stderr)
                has_failed |= ended.returncode != 0
            else:
                saved = self._use(uses, inputs) or saved
        if saved and not has_failed:
            self._keep(saved["path"], f"cache-{len(self.caches)}")
            self.caches.append(f"cache-{len(self.caches)}")
        return not has_failed, "\n".join(text)

    def _use(self, uses, inputs):
        """Do what an action of GitHub does; return the inputs of one that saves a cache at the end."""
        if uses in ("actions/cache", "actions/cache/restore"):
            if self.caches:
                shutil.copytree(self.home / self.caches[-1], inputs["path"], dirs_exist_ok=True)
            return inputs if uses == "actions/cache" else None
        if uses == "actions/upload-artifact":
            self._keep(inputs["path"], f"artifact-{inputs['name']}")
        elif uses == "actions/download-artifact":
            if (self.home / f"artifact-{inputs['name']}").exists():  # else the step fails, and the job continues
                shutil.copytree(self.home / f"artifact-{inputs['name']}", inputs["path"])
        else:
            assert uses in ("actions/checkout", "actions/setup-python"), uses
        return None

    def _keep(self, path, name):
        shutil.rmtree(self.home / name, ignore_errors=True)
        if os.path.isdir(path):
            shutil.copytree(path, self.home / name)
