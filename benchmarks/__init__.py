"""Speed of the library, measured: ``python -m benchmarks`` runs everything and writes the table."""
