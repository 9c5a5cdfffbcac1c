"""What the running system says about itself: structured log lines now, metrics beside them as they come."""
