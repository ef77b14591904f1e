import numpy as np

from worldplan.envs.drawing import coverage, paint_discs, shrink


def test_coverage_of_whole_and_cut_pixels():
    np.testing.assert_allclose(coverage(1.0, 3.5, 5, 5.0), [0, 1, 1, 0.5, 0])
    np.testing.assert_allclose(coverage(2.0, 4.0, 2, 8.0), [0.5, 0])


def test_shrinking_takes_the_mean_of_areas():
    image = np.random.default_rng(0).integers(0, 256, (12, 18, 3), np.uint8)
    blocks = image.reshape(4, 3, 6, 3, 3).mean((1, 3))
    np.testing.assert_array_equal(shrink(image, 4, 6), np.rint(blocks).astype(np.uint8))
    # a ratio that is not whole keeps the mean
    assert abs(shrink(image, 5, 7).mean() - image.mean()) < 1
    assert (shrink(np.full((10, 10, 3), 77, np.uint8), 3, 4) == 77).all()


def test_discs_are_symmetric_and_cut_at_the_edge():
    frames = np.full((2, 21, 21, 3), 255, np.uint8)
    paint_discs(frames, np.array([[10.5, 10.5], [0.0, 21.0]]), 4.0, (0, 0, 0))
    np.testing.assert_array_equal(frames[0], frames[0, ::-1])
    np.testing.assert_array_equal(frames[0], frames[0].transpose(1, 0, 2))
    assert (frames[0, 10, 10] == 0).all() and (frames[0, 0] == 255).all()
    assert (
        (frames[1, 20, 0] == 0).all() and (frames[1, :10] == 255).all() and (frames[1, :, 10:] == 255).all()
    )
