"""The attacker: damaged and absurd input for everything that reads something. `make fuzz MINUTES=5` runs it.

A case is refused in one line, or gives what the undamaged input gives, or, where a format cannot tell damage
from content, something valid. A traceback, a crash, a hang, too much memory and a silently different answer are
failures.

* `targets/`: what is attacked, a file for each area. A new file with a `Target` of its own is found by itself.
* `mutate.py`: byte mutations, written down as small edits; inputs that reach new lines are mutated further.
* `attack.py`: runs cases in forked processes that are timed and limited in memory, and keeps what failed.
* `kept.jsonl`: every case that ever failed, as text; `test_fuzz.py` runs them all.
"""
