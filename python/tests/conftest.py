"""How much is tested: few turns, or as many as the environment says (docs/python.md)."""

import os

from hypothesis import settings

FULL = bool(os.environ.get("NARROWS_FULL_TESTS"))
#: Examples of each property, so round trips too.
ROUND_TRIPS = int(os.environ.get("NARROWS_ROUND_TRIPS") or (100_000 if FULL else 300))
#: Calls after which memory is compared.
LEAK_CALLS = int(os.environ.get("NARROWS_LEAK_CALLS") or (10_000 if FULL else 1000))

settings.register_profile("narrows", max_examples=ROUND_TRIPS, deadline=None)
settings.load_profile("narrows")
