"""Which runs a sweep trains, for tests."""

from silodp.sweeps import sweeping


def watch(monkeypatch):
    """A list that fills with what is trained from here on: names of settings, with seeds."""
    runs, train = [], sweeping.train_chunk

    def watched(chunk, *rest):
        runs.extend((point.run, seed) for point in chunk.points for seed in chunk.seeds)
        return train(chunk, *rest)

    monkeypatch.setattr(sweeping, "train_chunk", watched)
    return runs
