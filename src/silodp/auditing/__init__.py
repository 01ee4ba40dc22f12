"""The audit: what a silo really releases, checked and attacked through the engine itself.

- Checks (`checks`, `direct`): noisy sums are read off the answers of training passes on designed
  records (`probes`), and held against the plan: the noise (`noise_checks`, `low_bits`), the batches
  (`draw_checks`), the clip (`sensitivity`), selections (`select_checks`), and whether the plan's
  noise is enough for its epsilon (`claim`). Each has a p-value, and together they raise a false
  alarm with a chance that is known.
- Many canaries in one run (`many_canaries`), each along an axis of its own: how well they can be
  guessed bounds epsilon from below (`betting`, `one_run`).
- The attack: the method is trained many times, with and without a canary in one silo. The
  adversary sees every answer of the silo (`watch`), and tells the two worlds apart as well as it
  can (`scores`). How well that is bounds epsilon from below (`bounds`).

A check that fails, or a bound above the claim, means that the claim is broken. The rest of the
privacy code proves epsilon from above. An honest run lies between the two.
"""
