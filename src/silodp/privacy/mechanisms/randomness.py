"""Where the randomness of experiments comes from: random words, each with an address.

A word is a hash (Threefry-2x32) of the key of its training pass, the step, what it is for, and its
place. So draws do not depend on how silos are padded or grouped, and an engine can draw the words
of all silos in one operation: random numbers are the larger part of the work of a small model's
step, and by far of the time to compile it.

None of this protects anyone: keys have 64 bits, noise is in single precision, and both follow from
a seed. What is released has its randomness from `release_draws`, and on the host from `HostRandom`.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int64, Integer, Key, Shaped, UInt32

from silodp.config.choices import Entropy
from silodp.privacy.mechanisms.keystream import Keystream, key_of
from silodp.privacy.mechanisms.rounded_gaussian import rounded_gaussian
from silodp.privacy.mechanisms.shapes import Params, WholeNumber

# A run's key, and the silos' places in the federation.
RunKey = UInt32[Array, "2"]
Places = Int[Array, " silos"]
# Words that are broadcast against others.
Words = Integer[Array, "..."] | int

# What a word is for.
_SAMPLE, _NOISE = 0, 1


class PassRandomness(NamedTuple):
    """All that is random in one training pass, of an experiment or of a release."""

    sample: Any  # uint32 [draws, width] for `sampling.draw_batches`; or as `given_batches` takes it
    noise: Any  # [steps, number of parameters]: standard normal; or whole grains (int32)


class PassSize(NamedTuple):
    """How much randomness a training pass takes; static."""

    draws: int
    width: int
    steps: int
    parameters: int


def pass_keys(
    key: RunKey, silos: Places, number: WholeNumber, passes: int, trial: WholeNumber = 0
) -> UInt32[Array, "silos {passes} 2"]:
    """Keys of the training passes of a round, as two words each.

    Args:
      key: the run's key, two words.
      silos: the silos' places in the federation.
      number: number of the round.
      passes: number of passes of each silo in a round.
      trial: number of the trial, where a silo tries several hyperparameters.
    """
    silo_keys = _hash(key[0], key[1], silos, number)
    passes_of_round = jnp.arange(passes, dtype=jnp.uint32)
    return _hash(
        silo_keys[:, None, 0], silo_keys[:, None, 1], passes_of_round[None, :], jnp.uint32(trial)
    )


def selection_keys(
    key: RunKey, silos: Places, number: WholeNumber, trial: WholeNumber = 0
) -> UInt32[Array, "silos 2"]:
    """Keys of the private selections of a round; arguments as for `pass_keys`."""
    silo_keys = _hash(key[0], key[1], silos, number)
    last = jnp.uint32(2**32 - 1)  # no training pass has this number
    return _hash(silo_keys[:, 0], silo_keys[:, 1], last, jnp.uint32(trial))


def selection_words(key: UInt32[Array, "2"], candidates: int) -> UInt32[Array, "{candidates} 2"]:
    """Random words for one private selection, from its key."""
    return _hash(key[0], key[1], jnp.arange(candidates, dtype=jnp.uint32), jnp.uint32(0))


def draw_pass(key: UInt32[Array, "2"], size: PassSize) -> PassRandomness:
    """The randomness of one pass, from its key."""
    (drawn,) = draw_passes([key[None]], [size])
    return jax.tree.map(lambda a: a[0], drawn)


def draw_passes(
    keys: Sequence[UInt32[Array, "_ 2"]], sizes: Sequence[PassSize]
) -> list[PassRandomness]:
    """`draw_pass` for groups of passes in one operation: their keys, and a size for each."""
    both = list(zip(keys, sizes, strict=True))
    pairs = _word_pairs([(k, _SAMPLE, s.draws, -(-s.width // 2)) for k, s in both])
    samples = [
        p.reshape(*p.shape[:2], -1)[:, :, : s.width] for p, s in zip(pairs, sizes, strict=True)
    ]
    noises = _word_pairs([(k, _NOISE, s.steps, s.parameters) for k, s in both], _noise)
    return [PassRandomness(s, z) for s, z in zip(samples, noises, strict=True)]


def _word_pairs(
    streams: Sequence[tuple[UInt32[Array, "_ 2"], int, int, int]],
    finish: Callable[[UInt32[Array, "words 2"]], Shaped[Array, "words ..."]] = lambda words: words,
) -> list[Shaped[Array, "_ _ _ ..."]]:
    """Pairs of words [passes, rows, width, 2] of streams given as (keys, purpose, rows, width).

    Args:
      streams: the streams of each group.
      finish: what is made of pairs, applied while the words of all groups are one array.
    """
    columns = []
    for keys, purpose, rows, width in streams:
        shape = (len(keys), rows, width)
        row = 2 * jnp.arange(rows, dtype=jnp.uint32)[:, None] + purpose
        place = jnp.arange(width, dtype=jnp.uint32)
        parts = (keys[:, None, None, 0], keys[:, None, None, 1], row, place)
        columns.append([jnp.broadcast_to(part, shape).reshape(-1) for part in parts])
    drawn = finish(_hash(*(jnp.concatenate(parts) for parts in zip(*columns, strict=True))))
    ends = np.cumsum([len(keys) * rows * width for keys, _, rows, width in streams])[:-1]
    return [
        part.reshape(len(keys), rows, width, *part.shape[1:])
        for part, (keys, _, rows, width) in zip(jnp.split(drawn, ends), streams, strict=True)
    ]


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@jax.jit  # so that it is traced once for each shape, and not in every program anew
def _hash(key0: Words, key1: Words, x0: Words, x1: Words) -> UInt32[Array, "*broadcast 2"]:
    """Threefry-2x32 (20 rounds) of broadcast uint32 arrays; the two words are the last axis.

    J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011). Written out, so that XLA
    makes one loop of it: on a CPU nearly four times faster than JAX's own, which gives the same.
    """
    a, b, x0, x1 = (jnp.asarray(v, jnp.uint32) for v in (key0, key1, x0, x1))
    schedule = (a, b, a ^ b ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << rotation) | (x1 >> (32 - rotation)))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return jnp.stack(jnp.broadcast_arrays(x0, x1), axis=-1)


def init_key(key: RunKey) -> Key[Array, ""]:
    """The key for a run's first model: no pass has it, so a public model says nothing of noise."""
    last = jnp.uint32(2**32 - 1)  # no silo's place
    return jax.random.wrap_key_data(_hash(key[0], key[1], last, last))


def new_secret(entropy: Entropy) -> bytes:
    """What a run's noise comes from: 32 bytes of the operating system; none if the seed will do."""
    return secrets.token_bytes(32) if entropy == "os" else b""


def run_key(seed: int, secret: bytes) -> UInt32[np.ndarray, "2"]:
    """The key of the run of that seed, two words: its first model, which is public, comes from it.

    In an experiment all else that is random does as well.
    """
    if secret:
        return np.frombuffer(key_of(secret, "run", seed)[:8], np.uint32)
    return np.asarray(jax.random.key_data(jax.random.key(seed)), np.uint32)


class HostRandom:
    """Randomness for what is released once a run, on the host: as strong as the secret is."""

    def __init__(self, seed: int, secret: bytes, purpose: str):
        """Derives the stream from the secret; in a run without one, from the seed alone."""
        self._stream = Keystream(key_of(secret, "host", seed, purpose), bytes(12))

    def rounded_gaussian(
        self, deviation: Float[np.ndarray, "*shape"] | float, shape: tuple[int, ...]
    ) -> Int64[np.ndarray, "*shape"]:
        """Whole numbers with the probabilities of a rounded Gaussian, in an array of that shape.

        The deviation is one for all, or one for each.
        """
        words = self._stream.words(math.prod(shape))
        deviations = np.broadcast_to(deviation, shape).ravel()
        drawn = rounded_gaussian(words, deviations, lambda _, count: self._stream.read(count))
        return drawn.reshape(shape)

    def uniform(self) -> float:
        """A uniform number from 0 to below 1, of 53 bits."""
        return float(self._stream.words(1)[0] >> np.uint64(11)) * 2.0**-53

    def integers(self, below: int, size: int) -> Int64[np.ndarray, " {size}"]:
        """Whole numbers from 0, each as likely as the others but for `below` in 2^64."""
        return np.array([int(word) * below >> 64 for word in self._stream.words(size)], np.int64)


def _noise(words: UInt32[Array, "*draws 2"]) -> Float[Array, "*draws"]:
    """Standard normal numbers, each the sum of two draws.

    A single draw in single precision ends at 5.3 standard deviations: over a run, a record could be
    told from noise that lies just outside what its absence can give, with a chance above delta. The
    sum reaches 7.5, where that chance is nothing.
    """
    return jnp.sum(_normal(words), axis=-1) * jnp.float32(np.sqrt(0.5))


def _normal(words: UInt32[Array, "*draws"]) -> Float[Array, "*draws"]:
    """Standard normal numbers, by the inverse of the distribution function."""
    # An odd multiple of 2^-23 in (-1, 1): symmetric and exact, so that it never rounds to an end
    # point, where the noise would be infinite.
    uniform = ((words >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-22) - 1.0
    return jnp.float32(np.sqrt(2.0)) * jax.lax.erf_inv(uniform)


def as_params(vector: Shaped[Array | np.ndarray, "*several params"], like: Params) -> Params:
    """Vectors in the shape of the parameters."""
    leaves, treedef = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = jnp.split(vector, ends, axis=-1)
    shaped = [p.reshape(*p.shape[:-1], *leaf.shape) for p, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(treedef, shaped)
