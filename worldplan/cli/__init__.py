"""The command line: resolve the arguments, compose, build the objects, call, exit code."""
