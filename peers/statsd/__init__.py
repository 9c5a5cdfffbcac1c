"""The reference daemon of StatsD, from npm."""
