import numpy as np
import pytest

from armillary.serving.hexgen import Hexgen


def test_location_of_symmetric_samples_is_their_centre():
    assert Hexgen().fit([1.0, 2.0, 3.0]).location_ == pytest.approx(2.0)


@pytest.mark.parametrize("x", [[], [[1.0]], [np.nan]])
def test_bad_samples_are_told(x):
    with pytest.raises(ValueError, match="x has shape"):
        Hexgen().fit(x)
