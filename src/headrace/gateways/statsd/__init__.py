"""What programs that speak StatsD or DogStatsD say, aggregated by interval: `parse` and `aggregation/` are pure, `sockets`
and `server` the shell."""
