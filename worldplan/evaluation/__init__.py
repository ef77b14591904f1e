"""Judging: records, intervals, agreement, ranking, model validity, figures, videos, the report."""
