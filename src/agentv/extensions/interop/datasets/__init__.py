"""One module per dataset format of another tool."""
