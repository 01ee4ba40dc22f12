"""The numbers that `fewround` rests on. None of them was tuned to a data set's test records."""

from typing import NamedTuple

from silodp.privacy.mechanisms.moments import Shares


class Constants(NamedTuple):
    """One sentence each.

    Attributes:
      parts: how the first message is divided over second, cross and label moments.
      gram_steps: times that the pooled Gram matrix and what silos differ by are worked out.
      gram_floor: eigenvalues of the pooled Gram matrix are at least so many times the largest that
        noise alone would give it.
      within_floor: likewise of what is within classes, of half of that.
      alike: numbers of which the variance is found together, about.
      parted: variance of class means along an axis, in variances of records, usually.
      least_count: records that a silo has of any class, at least.
      freedom: degrees of freedom of a class's scores (Student's t: the fewer, the more outliers).
      most_ratio: scores vary within classes by at most so many times what they should, if
      otherwise: they do otherwise with this chance, for each ratio looked at.
      ratio_error: error of that ratio, at least.
      slope_error: how far expected derivatives of the loss are off, as a share of that at 0.
      errors_beyond_noise: an entry differs between silos if it does by so many standard errors.
      spread_steps: times that the mean and the spread of models are worked out in turn; but
      close: fewer times, if the spread changes by no more than this part.
      smallest: what is smaller is 0.
      ridge: precision with which any weight is 0, so that all can be solved.
      least_variance: of weights beforehand, at least so many times the variance of their error.
      usual_square: mean of the squared label beforehand, and
      square_spread: its deviation (labels are from -1 to 1).
      usual_mean: likewise of the mean label of two classes, whose mean is 0.
      class_scale: residuals of classes, no longer than 1.42, are cut off at.
      gram_noise: noise of second moments, in units of what one record adds to a direction, from
        which on they get a smaller part of the first message.
      least_kept: part of discriminants that is kept at least, and
      most_kept: at most.
      usual_slope: how well the slope of the loss along models is known beforehand, as a part of
        that at the share of all.
      clip: residuals are cut off at so many of their deviations.
      most_explained: share of the variance of labels that models explain at most, of numbers and
        of two classes.
      least_residual: what the deviation of residuals is at least, in half ranges of the label.
    """

    parts: Shares = Shares(0.55, 0.35, 0.1)
    gram_steps: int = 2
    gram_floor: float = 1.0
    within_floor: float = 0.6
    alike: float = 24.0
    parted: float = 1.0
    least_count: float = 0.2
    freedom: float = 4.0
    most_ratio: float = 1.5
    otherwise: float = 1e-4
    ratio_error: float = 0.05
    slope_error: float = 0.05
    errors_beyond_noise: float = 2.0
    spread_steps: int = 6
    close: float = 1e-3
    smallest: float = 1e-12
    ridge: float = 1e-6
    least_variance: float = 1e-3
    usual_square: float = 0.17
    square_spread: float = 0.15
    usual_mean: float = 0.5
    class_scale: float = 1.0
    gram_noise: float = 10.0
    least_kept: float = 0.01
    most_kept: float = 1.5
    usual_slope: float = 0.5
    clip: float = 1.35
    most_explained: tuple[float, float] = (0.99, 0.8)
    least_residual: float = 0.05


CONSTANTS = Constants()

MESSAGE_SHARES = {
    1: (1.0,),
    2: (0.5, 0.5),
    3: (0.4, 0.25, 0.35),
    5: (0.35, 0.1, 0.15, 0.2, 0.2),
}
"""What each message takes of the budget, by how many there are."""

CLASS_SHARES = {
    1: (1.0,),
    2: (0.9, 0.1),
    3: (0.8, 0.08, 0.12),
    5: (0.7, 0.06, 0.08, 0.08, 0.08),
}
"""Likewise of several classes: later messages are of all silos together, with little noise."""
