"""Isolate users' programs: namespaces, Landlock, a system call filter, bubblewrap and containers."""
