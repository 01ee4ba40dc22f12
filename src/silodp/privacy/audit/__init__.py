"""The audit: an attack on the real thing, and the epsilon that it proves from below.

The method is trained many times, with and without a canary in one silo, by the simulation engine
with its own sampler, clip, noise and lattice. The adversary sees every answer of the silo (see
`watch`), and tells the two worlds apart as well as it can. How well that is bounds epsilon from
below (see `bounds`): a bound above the claim means that the claim is broken.

The rest of the privacy code proves epsilon from above. An honest run lies between the two.
"""

from silodp.privacy.audit.auditing import Audit, audit

__all__ = ["Audit", "audit"]
