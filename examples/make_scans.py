"""Makes up pictures of four clinics, and reviews of four shops, for whoever has none at hand.

python examples/make_scans.py            writes scans/ and reviews.csv
"""

# %%
# Pictures: a cell with a smooth or a rough inside; each clinic has its own stain and light.
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

CLINICS = {"Eastern": 60, "Hillside": 80, "Lakeside": 100, "Northern": 140}
SIDE = 32


def picture(rough: bool, stain: np.ndarray, light: float, rng: np.random.Generator) -> Image.Image:
    """One cell somewhere in the picture, in the clinic's colours."""
    y, x = np.mgrid[:SIDE, :SIDE]
    middle, radius = rng.uniform(12, 20, 2), rng.uniform(6, 10)
    inside = np.hypot(y - middle[0], x - middle[1]) < radius
    grain = rng.normal(0, 1, (SIDE // (1 if rough else 4),) * 2)
    grain = np.kron(grain, np.ones((SIDE // len(grain),) * 2))
    shade = light * (1 - 0.4 * inside * (1 + 0.5 * grain)) + rng.normal(0, 0.03, (SIDE, SIDE))
    pixels = 255 * shade[..., None] * (1 - 0.3 * stain)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


# %%
# Reviews: what people say, with the words of each kind of shop.
SHOPS = {
    "books": (["novel", "story", "author", "cover"], ["moving", "dull"]),
    "kitchen": (["pan", "kettle", "knife", "lid"], ["sturdy", "flimsy"]),
    "music": (["album", "voice", "recording", "band"], ["warm", "thin"]),
    "garden": (["spade", "hose", "plant", "pot"], ["reliable", "useless"]),
}
OPENINGS = {
    "liked": ["I love it.", "Very happy with this.", "Would buy it again."],
    "not liked": ["What a disappointment.", "I want my money back.", "Never again."],
}


def review(shop: str, verdict: str, rng: np.random.Generator) -> str:
    """Two or three short sentences."""
    things, (good, bad) = SHOPS[shop]
    word = good if verdict == "liked" else bad
    days = rng.integers(2, 30)
    return (
        f"{rng.choice(OPENINGS[verdict])} The {rng.choice(things)} is {word}, and I have had it "
        f"for {days} days."
    )


# %%
# The same ones every time: all that is random comes from one seed.
def make(folder: Path) -> None:
    """Writes the folder of pictures and the table."""
    rng = np.random.default_rng(7)
    for clinic, each in CLINICS.items():
        stain, light = rng.uniform(0, 1, 3), rng.uniform(0.6, 0.9)
        for name in ("smooth", "rough"):
            place = folder / "scans" / clinic / name
            place.mkdir(parents=True, exist_ok=True)
            for number in range(each):
                made = picture(name == "rough", stain, light, rng)
                made.save(place / f"{number:03}.png")
    rows = [
        (shop, review(shop, verdict, rng), int(rng.integers(5, 80)), verdict)
        for shop in SHOPS
        for verdict in OPENINGS
        for _ in range(100)
    ]
    table = pd.DataFrame(rows, columns=["shop", "review", "price", "verdict"])
    table.to_csv(folder / "reviews.csv", index=False)
    pictures = 2 * sum(CLINICS.values())
    print(f"{folder / 'scans'}: {pictures} pictures of {len(CLINICS)} clinics")
    print(f"{folder / 'reviews.csv'}: {len(rows)} reviews of {len(SHOPS)} shops")


if __name__ == "__main__":
    make(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
