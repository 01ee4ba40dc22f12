"""Two questions that need few messages: moments of all records, and the gradient at a given model.

A record is a vector x with |x| <= 1 (its features and a constant, scaled by public bounds) and
outputs y with |y| <= 1: a scaled label, or a 1 in the place of its class. With noise are released

    moments     sum of x x'   (above the diagonal, and on it)
                sum of x y'
                sum of y^2    (of two classes, -1 and 1: sum of y; of several: their counts)
    gradient    sum of x r',  r the residuals of a model that was released before, with |r| <= 1

Proof. Of the products of a record above the diagonal take sqrt(2) times the value: then that part
and the diagonal together have the length of the matrix x x', which is |x|^2 <= 1. Likewise
|x y'| = |x| |y| <= 1, |y^2| <= 1, and |x r'| <= 1. Let the parts of the moments have noise of
deviations z_1 (above the diagonal z_1 / sqrt(2)), z_2 and z_3, with 1/z^2 = 1/z_1^2 + 1/z_2^2 +
1/z_3^2. Divided by their noise, what a record adds has a length of at most 1/z: it is one Gaussian
mechanism of noise multiplier z, whatever the z_i. So is a gradient, at every model, so that
adaptive questions compose as Gaussian mechanisms do: their 1/z^2 add up. A record that is replaced
moves sums by twice that, which the accountant charges for (`moved_by`). A subject adds the mean of
what its records would, which is no longer.

Without rounding error. Features and labels are rounded to whole numbers of 2^-bits (after they were
made so much shorter that rounding cannot make them too long, which is looked at once more in whole
numbers). Products and their sums are then whole numbers below 2^53 (`bits_for`), which double
precision holds exactly, in whichever order they are added: what one record adds changes no other's.
Outputs of the model, which residuals need, are exact likewise (`whole_outputs`), and all else is
worked out record by record. The exact sums of neighbours are then rounded to whole grains, which
moves each of m numbers by half a grain at most: rounded sums differ by at most 1 + grain sqrt(2 m)
in the length above, and the noise is in units of that. Noise is a rounded Gaussian in whole grains:
see `lattice`, whose proof is that of these sums too.
"""

import math
from typing import NamedTuple

import numpy as np
from dp_accounting import dp_event
from jaxtyping import Float, Num, Shaped

from silodp.base.errors import SilodpError
from silodp.privacy.mechanisms.randomness import HostRandom

Vectors = Float[np.ndarray, "records size"]
Outputs = Float[np.ndarray, "records outputs"]
Matrix = Float[np.ndarray, "size size"]
Weights = Float[np.ndarray, "size outputs"]

# What double precision holds exactly; one bit is left for a sum of two.
_EXACT_BITS = 52
_MOST_BITS = 24
# Deviation of the noise in grains: below what `rounded_gaussian` draws without looking twice.
_DEVIATION_BITS = 30
# Entries of records beyond are cut off, so that no square is infinite.
_LARGEST = 2.0**400
# Weights beyond are cut off: no model that means anything has them.
_LARGEST_WEIGHT = 2.0**20
# What double precision may add to a deviation, as a share of it.
_SLACK = 2.0**-40


def message_event(noise_multiplier: float) -> dp_event.DpEvent:
    """What one message costs, be it of moments or of a gradient."""
    return dp_event.GaussianDpEvent(noise_multiplier)


class WholeRecords(NamedTuple):
    """Records as whole numbers of 2^-bits, held as double precision.

    Attributes:
      x: vectors of at most 2^bits in length.
      y: outputs likewise.
      bits: see above.
      subject: whom each record is about, if subjects are protected.
    """

    x: Vectors
    y: Outputs
    bits: int
    subject: Shaped[np.ndarray, " records"] | None = None


class Shares(NamedTuple):
    """How a message of moments divides what it pays, 1/z^2, over its parts; they sum to 1."""

    gram: float
    cross: float
    labels: float


class Moments(NamedTuple):
    """Noisy sums over a silo's records, and the deviations of their noise.

    Attributes:
      gram: sum of x x', symmetric; noise above the diagonal is less by sqrt(2).
      cross: sum of x y'.
      labels: sum of y^2 over records [1]; of two classes, of y; of several, their counts [classes].
      noise: deviations of the noise of gram (on its diagonal), cross and labels [3].
    """

    gram: Matrix
    cross: Weights
    labels: Float[np.ndarray, " labels"]
    noise: Float[np.ndarray, "3"]


def bits_for(max_count: int) -> int:
    """Bits of features and labels with which sums over so many records (or subjects) are exact."""
    bits = (_EXACT_BITS - max(1, max_count).bit_length()) // 2
    if bits < 8:
        raise SilodpError(f"{max_count} records are more than exact sums can be made of.")
    return min(_MOST_BITS, bits)


def whole_records(
    x: Num[np.ndarray, "records size"],
    y: Num[np.ndarray, "records outputs"],
    max_count: int,
    subject: Shaped[np.ndarray, " records"] | None = None,
) -> WholeRecords:
    """Records as whole numbers; longer vectors are brought back to length 1.

    Args:
      x: vectors.
      y: outputs.
      max_count: records (or subjects) that there may be, which is public.
      subject: whom each record is about.
    """
    bits = bits_for(max_count)
    if (len(x) if subject is None else len(np.unique(subject))) > max_count:
        raise ValueError("There are more records than a silo may have, which is public.")
    return WholeRecords(_whole(x, bits), _whole(y, bits), bits, subject)


def _whole(vectors: Num[np.ndarray, "records size"], bits: int) -> Vectors:
    """Vectors rounded to whole numbers of 2^-bits, of a length of at most 2^bits."""
    vectors = np.where(np.isfinite(vectors), vectors, 0.0).astype(np.float64)
    vectors = np.clip(vectors, -_LARGEST, _LARGEST)
    # Summed entry by entry: a row's length does not hang on how many rows there are.
    squared = np.zeros(len(vectors))
    for column in vectors.T:
        squared += column * column
    room = 1.0 - math.sqrt(vectors.shape[1]) * 2.0**-bits
    factor = room / np.maximum(1.0, np.sqrt(squared))
    whole = np.rint(vectors * factor[:, None] * 2.0**bits)
    # Exact: whole numbers of at most 24 bits.
    too_long = (whole.astype(np.int64) ** 2).sum(axis=1) > 4**bits
    return np.where(too_long[:, None], 0.0, whole)


def noisy_moments_of(
    records: WholeRecords,
    classes: bool,
    noise_multiplier: float,
    shares: Shares,
    random: HostRandom,
) -> Moments:
    """The message of moments; without noise if the multiplier is 0.

    Args:
      records: the silo's records.
      classes: whether outputs are classes, of which the sum of y says all.
      noise_multiplier: of the message as a whole.
      shares: how it is divided over the parts.
      random: where noise comes from.
    """
    size = records.x.shape[1]
    above = np.triu_indices(size, 1)
    gram = _sums_of_products(records.x, records.x, records)
    cross = _sums_of_products(records.x, records.y, records)
    ones = np.full((len(records.y), 1), 2.0**records.bits)
    labels = _sums_of_products(records.y, ones if classes else records.y, records)
    labels = labels[:, 0] if classes else np.trace(labels)[None]
    z = [noise_multiplier / math.sqrt(share) for share in shares]
    both = _released(
        np.concatenate([np.diag(gram), gram[above]]),
        z[0],
        random,
        np.repeat([1.0, math.sqrt(0.5)], [size, len(above[0])]),
    )
    gram = np.diag(both[:size])
    gram[above] = both[size:]
    return Moments(
        gram + np.triu(gram, 1).T,
        _released(cross, z[1], random),
        _released(labels, z[2], random),
        np.array(z),
    )


def noisy_gradient_of(
    records: WholeRecords,
    residuals: Float[np.ndarray, "records outputs"],
    noise_multiplier: float,
    random: HostRandom,
) -> Weights:
    """The message of a gradient: the noisy sum of x r', in units in which |r| <= 1.

    Args:
      records: the silo's records.
      residuals: of each record, from its own features and label and a released model alone, as
        `whole_outputs` makes it possible; longer ones are brought back to length 1.
      noise_multiplier: 0 for no noise.
      random: where noise comes from.
    """
    whole = _whole(residuals, records.bits)
    sums = _sums_of_products(records.x, whole, records)
    return _released(sums, noise_multiplier, random)


def _sums_of_products(
    left: Float[np.ndarray, "records rows"],
    right: Float[np.ndarray, "records columns"],
    records: WholeRecords,
) -> Float[np.ndarray, "rows columns"]:
    """Exact sums of a b' over records, in units of 1; of subjects, over the whole parts of means.

    Sums within a subject are exact too: of one with so many records that double precision would
    not hold them, numbers are cut to fewer bits, towards 0, by how many these are.
    """
    unit = 4.0**-records.bits
    if records.subject is None:
        return unit * (left.T @ right)
    total = np.zeros((left.shape[1], right.shape[1]))
    order = np.argsort(records.subject, kind="stable")
    starts = np.unique(records.subject[order], return_index=True)[1]
    for own in np.split(order, starts[1:]):
        if len(own):
            beyond = 2 * records.bits + len(own).bit_length() - _EXACT_BITS
            cut = 2.0 ** max(0, -(-beyond // 2))
            one, other = (np.trunc(part[own] / cut) for part in (left, right))
            total += np.trunc(one.T @ other / len(own)) * cut**2
    return unit * total


def _released(
    sums: Float[np.ndarray, "*shape"],
    noise_multiplier: float,
    random: HostRandom,
    shares: Float[np.ndarray, "*shape"] | float = 1.0,
) -> Float[np.ndarray, "*shape"]:
    """Sums that neighbours move by at most 1 in length, with noise on whole grains.

    Args:
      sums: exact.
      noise_multiplier: 0 for no noise.
      random: where noise comes from.
      shares: what part of the noise each gets, from sqrt(1/2) to 1: lengths are of sums over these.
    """
    if noise_multiplier == 0:
        return sums
    grain = 2.0 ** (math.ceil(math.log2(noise_multiplier)) - _DEVIATION_BITS)
    sensitivity = 1.0 + grain * math.sqrt(2 * sums.size)
    deviation = shares * (noise_multiplier * sensitivity * (1 + _SLACK) / grain)
    return (np.rint(sums / grain) + random.rounded_gaussian(deviation, sums.shape)) * grain


def whole_outputs(records: WholeRecords, weights: Weights) -> Outputs:
    """Outputs x'w of each record, for weights rounded so that they are exact.

    By Cauchy and Schwarz no part of a sum is beyond |x| |w|, so that none is rounded.
    """
    weights = np.clip(np.nan_to_num(weights), -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    longest = math.sqrt(float((weights**2).sum(axis=0).max(initial=0.0)))
    exponent = _EXACT_BITS - 1 - records.bits - math.ceil(math.log2(max(longest, 2.0**-20)))
    whole = np.rint(weights * 2.0**exponent)
    return records.x @ whole * 2.0 ** -(exponent + records.bits)


def softmax_residuals(
    records: WholeRecords, outputs: Outputs, scale: float
) -> Float[np.ndarray, "records classes"]:
    """Of each record, its class less the model's probabilities, in units of `scale`.

    Longer ones are brought back to length 1. Worked out class by class: the processor's own
    exponential may round by how many records there are.
    """
    columns = list(outputs.T)
    largest = columns[0]
    for column in columns[1:]:
        largest = np.maximum(largest, column)
    powers = [_exponential(column - largest) for column in columns]
    total = np.zeros(len(outputs))
    for power in powers:
        total = total + power
    chances = np.stack([power / total for power in powers], axis=1)
    return _within(records.y * 2.0**-records.bits - chances, scale)


def squared_residuals(records: WholeRecords, outputs: Outputs, scale: float) -> Outputs:
    """Of each record, its label less the output, in units of `scale` and cut off there."""
    return np.clip((records.y * 2.0**-records.bits - outputs) / scale, -1.0, 1.0)


def odds_residuals(records: WholeRecords, outputs: Outputs) -> Outputs:
    """Of each record of two classes, its label less what log-odds say, scaled to be 1 at most.

    The usual residual is (y + 1) / 2 - p. Over the larger of p and 1 - p it is y where the output
    has the other sign, and smaller by e^-|output| where it has the label's. What is expected of it
    is 0 where p is right, as of the usual one, but near p = 1/2 it is twice as long; and it is the
    slope of a convex loss: |output| or 1 - e^-|output|.
    """
    sign = np.sign(records.y)
    return sign * _exponential(-np.maximum(sign * outputs, 0.0).ravel()).reshape(outputs.shape)


def _within(vectors: Outputs, scale: float) -> Outputs:
    """Vectors in units of `scale`, brought back to length 1."""
    squared = np.zeros(len(vectors))
    for column in vectors.T:
        squared = squared + column * column
    return vectors / np.maximum(scale, np.sqrt(squared))[:, None]


def _exponential(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """e^x of numbers up to 0, by additions and products: the same wherever a number stands."""
    x = np.maximum(x, -700.0)
    power = np.rint(x * math.log2(math.e))
    rest = x - power * math.log(2)
    total = np.ones_like(x)
    for k in range(14, 0, -1):
        total = 1.0 + rest * total / k
    return np.ldexp(total, power.astype(np.int64))
