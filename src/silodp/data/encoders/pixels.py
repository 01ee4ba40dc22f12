"""Features of a federation whose records are images in memory, such as CIFAR-10's."""

from dataclasses import replace

import numpy as np

from silodp.base.errors import SilodpError
from silodp.config.data_options import DataOptions
from silodp.data.encoders.encoding import features_of
from silodp.data.encoders.named import IMAGE, asked_for, encoder_info, encoder_of
from silodp.data.federation import Federation, Records
from silodp.data.preparation import Preparation, Scaling, preparation_of
from silodp.data.tables.columns import Column, Encoder


def with_features(federation: Federation, options: DataOptions) -> Federation:
    """The federation with features of its images, where options ask for such."""
    wanted = {**asked_for(options.features), **(options.encoders or {})}
    if not wanted:
        return federation
    if federation.pixels is None:
        raise SilodpError(
            f"Data set {federation.name!r} has no images, which --features are made of: leave it "
            "out."
        )
    if [*wanted] != [IMAGE]:
        raise SilodpError(
            f"Data set {federation.name!r} has images and no columns: give the name of an encoder "
            "alone (--features NAME)."
        )
    info = encoder_info(wanted[IMAGE], takes="image", no_cache=bool(options.no_cache))
    records = [part for silo in federation.silos for part in (silo.train, silo.test)]
    # All at once: the cores stay busy, and images that silos share are encoded once.
    images = [image for part in records for image in part.x]
    features = features_of(encoder_of(info), images)
    ends = np.cumsum([len(part) for part in records])[:-1]
    encoded = iter(
        replace(part, x=x) for part, x in zip(records, np.split(features, ends), strict=True)
    )
    column = Column(IMAGE, declared=True, encoder=info)

    def following() -> Records:
        return next(encoded)

    silos = []
    for silo in federation.silos:
        target = preparation_of(federation, silo).target
        preparation = Preparation(Encoder((column,)), Scaling(), target)
        train, test = following(), following()
        silos.append(replace(silo, train=train, test=test, preparation=preparation))
    return replace(
        federation,
        silos=tuple(silos),
        pixels=None,
        feature_bound=1.0,
        feature_names=column.feature_names,
    )
