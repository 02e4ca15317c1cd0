"""`agentv view`: serve runs as a local page."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentv.cli import output
from agentv.cli.options import FILE, PORT, Arguments, argument, declare, flag, option
from agentv.errors import EXIT_OK, UsageError, plural
from agentv.settings.project import project_root

if TYPE_CHECKING:
    from agentv.calibration.label_file import LabelFile
    from agentv.view.server import Address

_MOST_SHUTDOWN_S = 1.0


class ViewArguments(Arguments):
    """RUN is a run folder, a run id, results of another tool, or a folder of runs. Without RUN, all runs of the project
    are listed, and runs in progress are shown live.

    The page is served to this machine only, on a free port. The printed link works once; the browser that opens it has
    access until the command ends.
    """

    action = "agentv.cli.commands.view:view"
    examples = (
        "agentv view",
        "agentv view latest",
        "agentv view before after",
        "agentv view inspect.eval --no-open",
        "agentv view RUN --label labels.jsonl --labeller ann",
    )

    runs: tuple[str, ...] = argument(nargs=-1, metavar="[RUN...]", type=str)
    label_file: str | None = option("--label FILE", "Allow labels on the page, and append them to FILE.", FILE)
    labeller: str = option("--labeller NAME", "Name of the person who labels, when there are several.", default="")
    host: str = option(
        "--host HOST", "Address to listen on. Other machines can then read the runs.", str, default="127.0.0.1"
    )
    port: int = option("--port N", "Port to listen on; 0 for a free one.", PORT, default=0)
    no_open: bool = flag("--no-open", "Do not open a browser.")


def view(args: ViewArguments) -> None:
    """Serve the page until the process is interrupted."""
    from agentv.calibration.labels import checked_labeller
    from agentv.engine.named_runs import existing_run, run_name, run_path
    from agentv.view.run_list import RunList, places_of
    from agentv.view.server import Address, serve
    from agentv.view.state import ViewOptions, ViewState

    if args.labeller and args.label_file is None:
        raise UsageError("--labeller needs --label", hint="Add --label FILE, where the labels are written")
    root = project_root(".")
    for given in args.runs:
        existing_run(given)
    paths = [run_path(given) for given in args.runs]
    runs = RunList(places_of(paths, root), root=root, name=run_name)
    runs.refresh()
    label_file = None if args.label_file is None else _label_file(args.label_file)
    title = os.path.basename(os.path.realpath(paths[0] if len(paths) == 1 else root))
    state = ViewState(runs, ViewOptions(title=title, label_file=label_file, labeller=checked_labeller(args.labeller)))
    if not args.host.strip():
        raise UsageError("--host needs an address or a name", hint="Leave it out to serve this machine only")
    address = Address(args.host, args.port)
    asyncio.run(serve(state, address, partial(announce, len(runs.runs()), address, not args.no_open)))
    output.message("\nStopped")
    _end_soon()


def _label_file(given: str) -> LabelFile:
    """Open the file for labels. Raises AgentvError if it is not a label file."""
    from agentv.calibration.label_file import LabelFile

    path = Path(given)
    if not path.parent.is_dir():
        raise UsageError(f"Cannot write {path}", f"The folder {path.parent} does not exist")
    return LabelFile(path)


def announce(count: int, address: Address, opens: bool, url: str) -> None:
    """Print the link and a warning if other machines can connect, and open the browser."""
    output.echo(f"Serving {plural(count, 'run')} at {url}")
    if not count:
        output.note("There are no runs yet. They appear on the page when `agentv eval` starts one.")
    output.message("Press Ctrl-C to stop")
    if not address.is_loopback:
        output.warn(
            f"The server listens on {address.host}. Anyone on the network who has this link can read the runs, and "
            "connections are not encrypted."
        )
    if opens and _has_display():
        import webbrowser  # late: it looks for browsers

        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _has_display() -> bool:
    """Return whether a browser can open. Without a display, it would be a text browser in this terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def _end_soon() -> None:
    """End the process even if a thread still reads a large run."""
    timer = threading.Timer(_MOST_SHUTDOWN_S, os._exit, (EXIT_OK,))
    timer.daemon = True
    timer.start()


view_command = declare("view", ViewArguments)
