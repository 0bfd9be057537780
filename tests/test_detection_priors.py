"""The 8,732 priors of SSD300, and where each is in the mirrored image."""

import math

import pytest
import torch

from cissl.detection import boxes, priors, ssd
from cissl.detection.consistency import mirrored_back

LAYOUTS = {"ssd300": priors.SSD300, "small": ssd.small_maps(96), "small-160": ssd.small_maps(160)}


def by_hand():
    """As the paper says it, in pixels."""
    made = []
    sizes = (30, 60, 111, 162, 213, 264, 315)
    more = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
    for number, (cells, step) in enumerate(zip((38, 19, 10, 5, 3, 1), (8, 16, 32, 64, 100, 300), strict=True)):
        size, following = sizes[number], sizes[number + 1]
        for row in range(cells):
            for column in range(cells):
                shapes = [(size, size), (math.sqrt(size * following),) * 2]
                for ratio in more[number]:
                    shapes.append((size * ratio**0.5, size / ratio**0.5))
                    shapes.append((size / ratio**0.5, size * ratio**0.5))
                for width, height in shapes:
                    box = ((column + 0.5) * step, (row + 0.5) * step, width, height)
                    made.append([min(max(x / 300, 0.0), 1.0) for x in box])
    return torch.tensor(made)


def test_ssd300_has_8732_priors_as_in_the_paper():
    made = priors.ssd300()
    assert made.shape == (8732, 4)
    torch.testing.assert_close(made, by_hand(), atol=1e-7, rtol=0)
    assert [map_.cells**2 * len(map_.shapes) for map_ in priors.SSD300] == [5776, 2166, 600, 150, 36, 4]


def test_priors_are_clipped_to_the_image_in_centre_form():
    made = priors.ssd300()
    assert made.min() > 0
    assert made.max() == 1
    assert (made[:, 2:] == 1).any()  # the widest of the last map
    assert (made[:, 0] == 1).any()  # the last column of the third


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_partner_of_a_partner_is_the_prior_itself(layout):
    mirror = priors.mirror_index(LAYOUTS[layout])
    assert mirror[mirror].equal(torch.arange(len(mirror)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_partner_has_the_same_shape_and_row_in_the_column_of_the_other_side(layout):
    maps = LAYOUTS[layout]
    made, mirror = priors.priors(maps), priors.mirror_index(maps)
    assert made[mirror][:, 1:].equal(made[:, 1:])
    reach = torch.cat([torch.full((m.cells**2 * len(m.shapes),), m.cells * m.step) for m in maps])
    unclipped = (made[:, 0] < 1) & (made[mirror][:, 0] < 1)
    assert unclipped.sum() > 0.9 * len(made)
    torch.testing.assert_close((made[:, 0] + made[mirror][:, 0])[unclipped], reach[unclipped])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mirrored_box_is_where_it_should_be_for_every_prior(layout):
    """What each prior's partner says of an object in the mirrored image is, put back, the object's own box."""
    maps = LAYOUTS[layout]
    made, mirror = priors.priors(maps).double(), priors.mirror_index(maps)
    generator = torch.Generator().manual_seed(0)
    said = torch.randn(len(made), 4, generator=generator, dtype=torch.float64)
    objects = boxes.decode(said, made)
    of_mirrored = boxes.encode(boxes.flip(objects), made[mirror])[mirror]  # in the order of the mirrored image's priors
    _, back = mirrored_back(torch.zeros(1, len(made), 2), of_mirrored[None], mirror)
    found = boxes.decode(back[0], made)
    # SSD300's cells reach beyond the image, by 4 to 20 of its 300 pixels: that much its columns are not symmetric.
    beyond = made[:, 0] + made[mirror][:, 0] - 1
    found[:, ::2] -= beyond[:, None]
    torch.testing.assert_close(found, objects)
    assert beyond.abs().max() < (1e-6 if layout != "ssd300" else 20.001 / 300)
