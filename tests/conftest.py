"""What all tests share: how hypothesis looks for counterexamples.

No deadline: how long an example takes on a busy machine says nothing about the code. The same examples every time, so
that a run that passes passes again; `HEADRACE_EXAMPLES=20` looks for new ones, and for more of them.
"""

import os

# Many short lives of a JVM: what its second compiler would make faster has ended before it pays.
os.environ.setdefault("HEADRACE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("search" if os.environ.get("HEADRACE_EXAMPLES", "1") != "1" else "same")
