"""The arguments of the commands: typed fields that declare their click options."""
