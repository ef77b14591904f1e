"""Packaged configurations; read by the command line only."""
