"""Training: one loop as a generator, schedules, resume state, trackers and the probe."""
