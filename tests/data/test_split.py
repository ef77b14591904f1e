from dataclasses import replace

import numpy as np
import pytest

from worldplan.data import native
from worldplan.data.split import split
from worldplan.errors import DataError


def test_sides_are_disjoint_complete_and_seeded(dataset):
    data = dataset([2] * 20)
    train, test = split(data, 0.25, seed=3)
    assert len(test) == 5 and sorted([*train, *test]) == list(range(20))
    assert all(np.array_equal(a, b) for a, b in zip(split(data, 0.25, seed=3), (train, test), strict=True))
    assert not np.array_equal(split(data, 0.25, seed=4)[1], test)
    assert len(split(data, 7)[1]) == 7
    assert set(split(data, 2, seed=3)[1]) < set(test)


def test_imagined_episodes_are_not_evaluated_on_unless_asked(tmp_path, episode):
    meta = {"source": "model", "model": "m"}
    data = native.write(
        tmp_path / "a.h5",
        [replace(episode(i, 3), meta=meta) if i % 2 else episode(i, 3) for i in range(20)],
    )
    train, test = split(data, 0.5)
    assert len(test) == 5 and not (test % 2).any()
    assert (split(data, 15, imagined=True)[1] % 2).any()
    with pytest.raises(DataError, match="10 of them eligible"):
        split(data, 11)


@pytest.mark.parametrize("held_out", [0, 3, 1.0])
def test_nothing_on_one_side_is_an_error(dataset, held_out):
    with pytest.raises(DataError, match="each side"):
        split(dataset([2] * 3), held_out)
