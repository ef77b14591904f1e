"""Everything that acts: planning, baselines, replay, scripts, and users' own functions."""
