"""`python -m agentv` is the same as the command `agentv`."""

from agentv.cli import main

if __name__ == "__main__":
    main()
