"""Patches come from where they should."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.neuro.ssn.patches import all_patches, draw_patches, grid_patches, image_files


def test_a_grid_reads_row_by_row():
    image = np.arange(30.0).reshape(5, 6)
    found = grid_patches(image, 2, 2)
    np.testing.assert_array_equal(found[0], [0, 1, 6, 7])
    np.testing.assert_array_equal(found[1], [2, 3, 8, 9])
    np.testing.assert_array_equal(found[3], [12, 13, 18, 19])
    assert len(found) == 2 * 3


def test_draws_are_of_every_image_and_of_no_empty_place():
    rng = np.random.default_rng(0)
    first = rng.uniform(0, 0.5, (20, 20))
    second = rng.uniform(0.5, 1, (20, 20))
    second[:, :12] = 0.7  # empty
    found = draw_patches([first, second], 4, 101, np.random.default_rng(1))
    dark = found.max(1) <= 0.5
    assert len(found) == 101
    assert abs(int(dark.sum()) - 50) <= 1
    assert found.std(1).min() > 0.01
    known = {patch.tobytes() for patch in all_patches(first, 4).reshape(-1, 16).copy()}
    assert all(patch.tobytes() in known for patch in found[dark])


def test_bad_images_are_told(tmp_path):
    with pytest.raises(ValueError, match="5 by 9 pixels holds no patch of 6 by 6"):
        grid_patches(np.ones((5, 9)), 6, 1)
    with pytest.raises(ValueError, match="empty nearly everywhere"):
        draw_patches([np.ones((9, 9))], 3, 4, np.random.default_rng(0))
    for arguments, said in (((4, -3), "count=-3"), ((0, 4), "size=0")):
        with pytest.raises(ValueError, match=said):
            draw_patches([np.eye(9)], *arguments, np.random.default_rng(0))
    with pytest.raises(ValueError, match="no images"):
        draw_patches([], 3, 4, np.random.default_rng(0))
    with pytest.raises(FileNotFoundError, match="give a folder of images"):
        image_files(tmp_path / "none")
