"""`agentv view`: serve runs as a local page."""

from agentv.cli.options import FILE, PORT, Arguments, argument, declare, flag, option


class ViewArguments(Arguments):
    """RUN is a run folder, a run id, results of another tool, or a folder of runs. Without RUN, all runs of the project
    are listed, and runs in progress are shown live.

    The page is served to this machine only, on a free port. The printed link works once; the browser that opens it has
    access until the command ends.
    """

    action = "agentv.extensions.view.server:view"
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


view_command = declare("view", ViewArguments)
