"""Images are what their packages hold, in the ranges that are promised."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from armillary import corpora
from armillary.corpora import images


def test_every_photograph_is_luminance():
    for name in images.PHOTOS:
        values = images.photo(name)
        assert values.ndim == 2, name
        assert min(values.shape) >= 300, name
        assert 0 <= values.min() < values.max() <= 1, name
    with pytest.raises(LookupError, match="astronaut"):
        images.photo("lena")


def test_luminance_weighs_the_channels_and_scales_integers():
    white = np.full((2, 3, 4), 255, np.uint8)
    np.testing.assert_allclose(images.luminance(white), 1.0)
    green = np.zeros((1, 1, 3))
    green[..., 1] = 1
    assert images.luminance(green)[0, 0] == pytest.approx(0.7154)
    assert images.luminance(np.array([[65535]], np.uint16))[0, 0] == 1
    with pytest.raises(ValueError, match="channels"):
        images.luminance(np.zeros((2, 2, 2)))


def test_digits_are_the_published_ones():
    found = images.digits()
    assert found.pixels.shape == (1797, 8, 8)
    assert found.pixels.max() == 1
    assert np.bincount(found.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


@pytest.mark.skipif(
    not Path("/usr/share/datasets/fashion-mnist").is_dir(),
    reason="apt install dataset-fashion-mnist",
)
def test_fashion_mnist_is_the_published_one():
    found = images.fashion_mnist("test")
    assert found.pixels.shape == (10000, 28, 28)
    assert np.bincount(found.labels).tolist() == [1000] * 10
    assert found.labels[:5].tolist() == [9, 2, 1, 1, 6]
    assert found.pixels.mean() == pytest.approx(0.2868, abs=1e-4)


def test_an_idx_file_is_read_in_its_shape(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(struct.pack(">HBBII", 0, 8, 2, 2, 3) + bytes(range(6))))
    assert images._idx(path).tolist() == [[0, 1, 2], [3, 4, 5]]
    path.write_bytes(gzip.compress(b"not an idx file"))
    with pytest.raises(ValueError, match="IDX"):
        images._idx(path)


def test_the_folder_of_data_comes_before_the_system_package(tmp_path):
    entry = next(e for e in corpora.EXTERNAL if e.name == "fashion-mnist-test-labels")
    own = tmp_path / entry.path
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine")
    assert corpora.external(entry.name, tmp_path, unverified=True) == own
    assert "apt install dataset-fashion-mnist" in entry.how
