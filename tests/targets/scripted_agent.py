"""A fake Claude Code whose prompt selects its behaviour: a normal answer, or one of several failures."""

import base64
import json
import os
import subprocess
import sys
import threading


def emit(**event):
    print(json.dumps(event), flush=True)


def child(*command, **options):
    """Start a process that does not end by itself, and write down its id."""
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
    with open(os.environ["CHILDREN"], "a") as stream:
        print(started.pid, file=stream)


def answer(input, text):
    block = {"type": "tool_use", "id": "t1", "name": "Bash", "input": input}
    emit(type="assistant", message={"id": "m1", "content": [block]})
    emit(type="user", message={"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]})
    emit(type="assistant", message={"id": "m2", "content": [{"type": "text", "text": text}]})
    usage = {"input_tokens": 7, "output_tokens": 3}
    emit(type="result", subtype="success", result=text, usage=usage, total_cost_usd=0.5, session_id="s")


def start_children():
    child("tail", "-f", "/dev/null")
    child("tail", "-f", "/dev/null", start_new_session=True)
    # A process without a parent, in its own session, can only be found by its environment.
    inner = (
        "import subprocess; quiet = subprocess.DEVNULL;"
        "print(subprocess.Popen(['tail', '-f', '/dev/null'], start_new_session=True, stdout=quiet, stderr=quiet).pid)"
    )
    made = subprocess.run([sys.executable, "-c", inner], stdout=subprocess.PIPE, text=True, start_new_session=True)
    with open(os.environ["CHILDREN"], "a") as stream:
        stream.write(made.stdout)


def flood(end):
    line = json.dumps({"type": "system", "text": "x" * 65000}) + end
    while True:
        sys.stdout.write(line)


def crash(why="out of order"):
    print(why, file=sys.stderr)
    sys.exit(7)


def print_nonsense():
    emit(type="assistant", message={"id": 1, "content": [["no block"]]})
    emit(type="result", usage=3, modelUsage=[])


def report():
    """Report the agent's environment, encoded so that paths are not rewritten, and leave two files."""
    for name in ("new.txt", "deep/er.txt"):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w") as stream:
            stream.write("made\n")
    home = os.environ.get("HOME", "")
    inside = sorted(
        os.path.relpath(os.path.join(folder, file), home) for folder, _, files in os.walk(home) for file in files
    )
    seen = {"cwd": os.getcwd(), "env": dict(os.environ), "home": inside, "argv": sys.argv[1:]}
    answer({}, base64.b64encode(json.dumps(seen).encode()).decode())


def name_paths():
    here = os.getcwd()
    answer({"in": f"{here}/src/a.py", "at": here}, f"See {here}/src/a.py in {here}")


def print_key():
    answer({"key": os.environ["ANTHROPIC_API_KEY"]}, os.environ["ANTHROPIC_API_KEY"])


def edit(prompt):
    with open("given.txt", "a") as stream:
        stream.write(prompt)
    follow_prompt()


def follow_prompt():
    answer({"command": "true"}, "yes, done: " + ",".join(sorted(os.listdir("."))))


def main():
    prompt = sys.stdin.read()
    emit(type="system", subtype="init")
    if "children" in prompt:
        start_children()
    ways = {
        "hang": threading.Event().wait,
        "flood in one line": lambda: flood(""),
        "flood": lambda: flood("\n"),
        "crash": crash,
        "no key": lambda: crash("No API key found"),
        "silent": lambda: None,
        "nonsense": print_nonsense,
        "report": report,
        "name paths": name_paths,
        "tell the key": print_key,
        "edit": lambda: edit(prompt),
    }
    next((way for word, way in ways.items() if word in prompt), follow_prompt)()


main()
