"""An HTTP client behind a path that loses 2 % of the packets. Run by: pytest test_http_under_loss.py"""

import subprocess
import sys

import pytest


@pytest.mark.wan(delay="20ms", loss="2%", seed=1)
def test_a_download_is_complete_in_spite_of_loss(wan, tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(256)) * 4096)
    server = [sys.executable, "-m", "http.server", "8000", "--directory", str(tmp_path)]
    wan.left.popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wan.left.wait_for_port(8000)
    client = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1], timeout=60).read())"
    url = f"http://{wan.left.address}:8000/file"
    got = wan.right.run([sys.executable, "-c", client, url], capture_output=True, check=True).stdout
    assert got == (tmp_path / "file").read_bytes()
    assert wan.show()["to_right"]["drops"]
