"""Checks of how tasks talk to each other: what can be known of barriers, byte counts and named barriers before the kernel runs."""
