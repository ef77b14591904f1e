"""Everything that searches, what a search minimises, and how its candidates are scored."""
