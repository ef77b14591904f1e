import subprocess
import sys

import worldplan.data


def test_the_room_opens_without_heavy_packages():
    code = "import sys, worldplan.data; print(sorted({'torch', 'h5py', 'hdf5plugin'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_its_public_names_resolve():
    assert sorted(worldplan.data.__all__) == worldplan.data.__all__
    for name in worldplan.data.__all__:
        assert getattr(worldplan.data, name).__name__ == name
    assert not hasattr(worldplan.data, "nothing")
