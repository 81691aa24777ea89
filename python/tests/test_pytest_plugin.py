"""The plugin for pytest. These tests also run with the oldest pytest that it works with."""

pytest_plugins = ["pytester"]


def test_a_failing_test_keeps_the_packets_of_its_device(pytester):
    pytester.makepyfile(
        """
        import subprocess

        def test_programs(rdma_device):
            server = subprocess.Popen(["ibv_rc_pingpong", "-g", "0", "-n", "10"], env=rdma_device, stdout=subprocess.DEVNULL)
            client = ["ibv_rc_pingpong", "-g", "0", "-n", "10", "127.0.0.1"]
            # Refused until the server listens.
            while subprocess.run(client, env=rdma_device, capture_output=True).returncode != 0:
                assert server.poll() is None
            server.wait()
            assert False
        """
    )
    result = pytester.runpytest("-p", "nichrome.pytest_plugin")
    result.assert_outcomes(failed=1)
    kept = sorted((pytester.path / "nichrome-captures").iterdir(), key=lambda file: file.stat().st_size)
    # The captures of the server and of the client that it served: 10 messages of 4096 bytes each way.
    assert len(kept) >= 2 and all(file.stat().st_size > 2 * 10 * 4096 for file in kept[-2:]), kept


def test_a_failing_test_keeps_its_packets(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.wan(delay="1ms")
        @pytest.mark.parametrize("passes", [True, False, pytest.param(False, id="x" * 300), pytest.param(False, id="x" * 299)])
        def test_ping(wan, passes):
            wan.right.run(["python3", "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.0.0.1', 9))"], check=True)
            assert passes
        """
    )
    result = pytester.runpytest("-p", "nichrome.pytest_plugin")
    result.assert_outcomes(passed=1, failed=3)
    kept = sorted((file.name for file in (pytester.path / "nichrome-captures").iterdir()), key=len)
    assert len(kept) == 3 and kept[0].endswith("False_.pcapng") and all("x" * 100 in name for name in kept[1:]), kept


def test_a_test_that_passes_when_it_is_run_again_keeps_the_packets_of_its_failure(pytester):
    pytester.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            # As pytest-rerunfailures does.
            runtestprotocol(item, log=False, nextitem=nextitem)
            item._initrequest()
            runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    pytester.makepyfile(
        """
        attempts = []

        def test_ping(wan):
            attempts.append(wan)
            if len(attempts) == 1:
                wan.right.run(["python3", "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x' * 1000, ('10.0.0.1', 9))"], check=True)
            assert len(attempts) > 1
        """
    )
    result = pytester.runpytest("-p", "nichrome.pytest_plugin")
    result.assert_outcomes(passed=1)
    (kept,) = (pytester.path / "nichrome-captures").iterdir()
    assert kept.stat().st_size > 1000


def test_a_path_that_fails_keeps_its_packets(pytester):
    pytester.makepyfile(
        """
        import os
        import signal

        def test_ping(wan):
            wan.right.run(["python3", "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.0.0.1', 9))"], check=True)
            os.kill(wan.pid, signal.SIGTERM)
        """
    )
    result = pytester.runpytest("-p", "nichrome.pytest_plugin")
    result.assert_outcomes(passed=1, errors=1)
    assert [file.name for file in (pytester.path / "nichrome-captures").iterdir()] == ["test_a_path_that_fails_keeps_its_packets.py_test_ping.pcapng"]
