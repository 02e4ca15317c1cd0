"""A program that talks as Claude Code does and behaves as its prompt says: well, or in one of several bad ways."""

import json
import os
import subprocess
import sys
import time


def say(**event):
    print(json.dumps(event), flush=True)


def child(*command, **options):
    """Starts a process that would outlive everything, and writes down its id."""
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
    with open(os.environ["CHILDREN"], "a") as stream:
        print(started.pid, file=stream)


def answer(text, **result):
    block = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "true"}}
    say(type="assistant", message={"id": "m1", "content": [block]})
    say(type="user", message={"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]})
    say(type="assistant", message={"id": "m2", "content": [{"type": "text", "text": text}]})
    usage = {"input_tokens": 7, "output_tokens": 3}
    say(type="result", subtype="success", result=text, usage=usage, total_cost_usd=0.5, session_id="s", **result)


def main():
    prompt = sys.stdin.read()
    say(type="system", subtype="init")
    if "children" in prompt:
        child("sleep", "600")
        child("sleep", "600", start_new_session=True)
        # One whose parent is gone and whose session is its own: only its environment tells where it is from.
        inner = (
            "import subprocess; quiet = subprocess.DEVNULL;"
            "print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=quiet, stderr=quiet).pid)"
        )
        made = subprocess.run([sys.executable, "-c", inner], stdout=subprocess.PIPE, text=True, start_new_session=True)
        with open(os.environ["CHILDREN"], "a") as stream:
            stream.write(made.stdout)
    if "hang" in prompt:
        time.sleep(600)
    elif "flood" in prompt:
        line = json.dumps({"type": "system", "text": "x" * 65000}) + ("" if "one line" in prompt else "\n")
        while True:
            sys.stdout.write(line)
    elif "crash" in prompt:
        print("out of order", file=sys.stderr)
        sys.exit(7)
    elif "silent" in prompt:
        return
    elif "nonsense" in prompt:
        say(type="assistant", message={"id": 1, "content": "no list"})
        say(type="result", usage=3, modelUsage=[])
    elif "report" in prompt:
        for name in ("new.txt", "deep/er.txt"):
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            with open(name, "w") as stream:
                stream.write("made\n")
        home = os.environ.get("HOME", "")
        inside = sorted(
            os.path.relpath(os.path.join(folder, file), home) for folder, _, files in os.walk(home) for file in files
        )
        seen = {"cwd": os.getcwd(), "env": dict(os.environ), "home": inside, "argv": sys.argv[1:], "prompt": prompt}
        answer(json.dumps(seen))
    else:
        if "edit" in prompt:
            with open("given.txt", "a") as stream:
                stream.write(prompt)
        answer("yes, done: " + ",".join(sorted(os.listdir("."))))


main()
