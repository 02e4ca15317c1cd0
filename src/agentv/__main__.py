"""`python -m agentv` is the same as the command `agentv`."""

import gc


def main() -> None:
    """Run the command line, without collecting garbage until all modules are imported."""
    gc.disable()
    from agentv.cli import main as run  # late: collections would take a twentieth of the time of this import

    run()


if __name__ == "__main__":
    main()
