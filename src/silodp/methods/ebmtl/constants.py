"""The numbers of ebmtl that were chosen once, for all data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What docs/ebmtl.md calls by these names, with the values that all its tables were made with.

    Attributes:
      mixture_rate: the most by which a round moves the log-weight of an estimate.
      least_log_share: a log-weight does not fall below this, so that it can still come back.
      doubt: the share of all directions among silos that must be found real for a silo's own
        deviations to be kept where the free tests say nothing.
      trust: how strongly the share that is found speaks for or against keeping them.
      first_power: round t counts by t^power in the mean over rounds; this is the first power.
      least_power: it falls no lower than this.
      most_power: and rises no higher.
      power_rate: the most by which a round moves the logarithm of the power.
      unobservable_share: the gradients' variance as a share of clip^2, where every step takes all
        records and so nothing can be seen of it.
      grad_var_memory: what an earlier round counts in that variance, a round later.
      most_expected: x of its regression is at most this: with next to no noise a few digits do.
      most_excess: and y at most this.
      chance: how many standard deviations beyond the usual the noise may go: for a sum of squares
        it does so once in forty times, for the largest singular value once in a hundred.
      least_variance_share: a smaller variance counts as this share of the largest one.
      unknown_variance_factor: the variance of a silo that keeps its noise to itself counts as this
        many times the largest one.
      most_followed: eigenvectors are followed for this many directions, since what silos have in
        common shows in the largest few.
      turns_per_entry: how many entries of D are worth rotating one entry of the matrix of
        directions.
      lift: added to all eigenvalues, as a share of their mean, while columns turn: a matrix of too
        few directions (of zeros, say) would leave columns that are nothing, or nearly the same.
      most_parts: what silos kept is noted for this many parts of all rounds: for each is slow.
    """

    mixture_rate: float = 0.5
    least_log_share: float = -6.0
    doubt: float = 0.2
    trust: float = 4.0
    first_power: float = 10.0
    least_power: float = 1.0
    most_power: float = 1000.0
    power_rate: float = 0.5
    unobservable_share: float = 0.25
    grad_var_memory: float = 0.97
    most_expected: float = 1e6
    most_excess: float = 1e12
    chance: float = 2.0
    least_variance_share: float = 1e-3
    unknown_variance_factor: float = 1e6
    most_followed: int = 64
    turns_per_entry: int = 1
    lift: float = 1e-3
    most_parts: int = 50


CONSTANTS = Constants()
