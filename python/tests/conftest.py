import os

from hypothesis import settings

# The long form: NARROWS_FULL_TESTS=1.
settings.register_profile("short", max_examples=300, deadline=None)
settings.register_profile("long", max_examples=100_000, deadline=None)
settings.load_profile("long" if os.environ.get("NARROWS_FULL_TESTS") else "short")
