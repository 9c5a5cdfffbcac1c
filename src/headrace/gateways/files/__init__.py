"""Files followed into a topic, each line once: `following` decides (pure), `reading` reads, `follower` runs.

Lines and positions are committed in one transaction, so neither a kill nor a broker that goes away loses a line or
writes one twice. Files are looked at every fifth of a second and not watched by the kernel: this is right on network
file systems and in containers as well, and costs next to nothing.
"""
