"""Compares the package with the command."""

import concurrent.futures
import decimal
import gc
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import distributed
import hyperqueue
import numpy
import pytest
from hyperqueue.cluster import WorkerConfig

import nichrome
from nichrome._command import options

REPOSITORY = Path(__file__).parents[2]
CAPTURE = sorted((REPOSITORY / "tests/captures").glob("tcp-*"))[0]


def test_a_capture_is_coalesced(tmp_path):
    result = nichrome.coalesce(CAPTURE, tmp_path / "out.pcapng", profile="npu", verify=True)
    assert result.summary["profile"] == "npu"
    assert 0 < result.packets_out < result.packets_in and result.segments_per_aggregate > 1
    assert sum(size["packets"] for size in result.sizes) <= result.packets_out
    assert (tmp_path / "out.pcapng").stat().st_size > 0


def test_tables_are_those_of_pandas_and_pyarrow():
    result = nichrome.coalesce(CAPTURE)
    assert result.to_pandas().to_dict("records") == result.to_arrow().to_pylist() == result.sizes


def test_every_engine_is_compared():
    compared = nichrome.coalesce(CAPTURE, compare=True)
    assert compared.packets_in == nichrome.coalesce(CAPTURE).packets_in and len(compared.runs) == 12
    assert all(0 < run["packets_out"] <= compared.packets_in for run in compared.runs)
    columns = ["profile", "hold_us", "packets_out", "aggregates", "mean_segments_per_aggregate", "drops"]
    assert compared.to_pandas()[columns].to_dict("records") == compared.to_arrow().select(columns).to_pylist()


def test_what_the_command_refuses_is_raised():
    with pytest.raises(nichrome.NichromeError, match="/nonexistent"):
        nichrome.coalesce("/nonexistent")


def test_the_command_of_a_user_install_is_found(tmp_path):
    installed = tmp_path / "bin" / "nichrome"
    installed.parent.mkdir()
    installed.symlink_to("/bin/true")
    environment = {"PYTHONPATH": str(REPOSITORY / "python"), "PYTHONUSERBASE": str(tmp_path), "PATH": "/nonexistent"}
    program = [sys.executable, "-c", "import nichrome; print(nichrome.command())"]
    assert subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout == f"{installed}\n"


@pytest.mark.parametrize("name", ["output", "acks"])
@pytest.mark.parametrize("stream", ["-", "/dev/stdout", Path("/dev/stdout")])
def test_a_capture_is_not_written_to_standard_output(name, stream):
    with pytest.raises(ValueError, match=f"{name} needs the name of a file"):
        nichrome.coalesce(CAPTURE, **{name: stream})


@pytest.mark.parametrize(
    "value, expected",
    [
        (1e-05, ["0.00001"]),
        (0.5, ["0.5"]),
        (1e22, ["10000000000000000000000"]),
        (numpy.float64(1e-05), ["0.00001"]),
        (numpy.float32(1e-05), ["0.00001"]),
        (decimal.Decimal("1e-05"), ["0.00001"]),
        (3, ["3"]),
        (["1ms", 1e-05], ["1ms", "0.00001"]),
        (("a",), ["a"]),
        ([], []),
    ],
)
def test_options_have_no_exponents_and_lists_repeat_them(value, expected):
    assert options({"to_left": value}) == [f"--to-left={word}" for word in expected]


def test_a_sweep_has_small_numbers(tmp_path):
    lines = nichrome.sim.tasks("iwarp-today-loss", {"loss": (1e-05, 0.5)}, store=tmp_path)
    assert {line[line.index("--set") + 1] for line in lines} == {"loss=0.00001%", "loss=0.5%"}


@pytest.mark.parametrize("frames", [numpy.arange(64, 192, 64), numpy.array([64, 128], numpy.float32), map(decimal.Decimal, [64, 128])])
def test_a_sweep_has_numbers_of_other_types(tmp_path, frames):
    lines = nichrome.sim.tasks("lro-netfpga-cpu", {"frame": frames}, seeds=numpy.arange(1, 3), store=tmp_path)
    expected = nichrome.sim.tasks("lro-netfpga-cpu", {"frame": [64, 128]}, seeds=[1, 2], store=tmp_path)
    assert lines == expected and len(lines) > 2


def test_a_sweep_needs_lists(tmp_path):
    with pytest.raises(TypeError, match=r"frame needs a list of values, such as \['64'\]"):
        nichrome.sim.tasks("lro-netfpga-cpu", {"frame": "64"}, store=tmp_path)


def test_no_run_begins_after_one_has_failed(monkeypatch):
    began = []

    def fail(words):
        began.append(words)
        time.sleep(0.1)
        raise nichrome.NichromeError("no such run")

    monkeypatch.setattr(nichrome.sim, "_run_task", fail)
    lists = {"frame": list(range(64, 128))}
    with concurrent.futures.ThreadPoolExecutor(1) as executor, pytest.raises(nichrome.NichromeError, match="no such run"):
        nichrome.sim.sweep_records("lro-netfpga-cpu", lists, executor=executor)
    assert len(began) <= 2


def test_a_small_number_is_an_impairment():
    with nichrome.wan.Path(loss=1e-05, to_left=["delay=1ms", "rate=1mbit"]) as path:
        shown = path.show()
        assert shown["to_right"]["impairments"]["loss"] == "0.001%"
        assert shown["to_left"]["impairments"]["delay"] == "1ms" and shown["to_left"]["impairments"]["rate"] == "1mbit"
        path.set(loss=2e-05)
        assert path.show()["to_left"]["impairments"]["loss"] == "0.002%"


def test_an_experiment_is_run():
    points = nichrome.sim.points("lro-netfpga-cpu", set={"path-clock": "250MHz"})
    assert points != nichrome.sim.points("lro-netfpga-cpu")
    assert {"series", "x", "value", "unit"} <= set(points[0])


def dask_executor():
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    return cluster.get_client().get_executor()


@pytest.mark.parametrize("executor", [lambda: concurrent.futures.ProcessPoolExecutor(2), dask_executor])
def test_a_sweep_gives_the_same_on_any_executor(executor):
    lists = {"path-clock": ["125MHz", "250MHz"]}
    here = nichrome.sim.sweep_records("lro-netfpga-cpu", lists)
    with executor() as workers:
        there = nichrome.sim.sweep_records("lro-netfpga-cpu", lists, executor=workers)
    assert here == there and len(here) > 2


def test_a_sweep_has_its_own_runs_of_a_store_that_has_others(tmp_path):
    def frames(size):
        lists = {"duration": ["1ms"], "warm-up": ["0"], "frame": [size]}
        found = nichrome.sim.sweep_records("lro-netfpga-cpu", lists, store=tmp_path)
        return {record["parameters"]["frame"] for record in found}, len(found)

    (small, few), (large, _) = frames("64B"), frames("128B")
    assert (small, large) == ({64}, {128})
    assert len(nichrome.sim.records(tmp_path)) == 2 * few


def test_a_sweep_of_a_file_whose_folder_has_any_name(tmp_path):
    folder = tmp_path / '\U0001f4e6 "\\\x7f'
    folder.mkdir()
    file = folder / "own.toml"
    file.write_text((REPOSITORY / "experiments/lro-netfpga-cpu.toml").read_text())
    lists = {"duration": ["1ms"], "warm-up": ["0"], "frame": [64]}
    assert nichrome.sim.sweep_records(str(file), lists) == nichrome.sim.sweep_records("lro-netfpga-cpu", lists)


def test_a_folder_of_results_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        nichrome.sim.records(tmp_path / "none")


def test_a_sweep_gives_the_same_on_workers_of_mpi(tmp_path):
    here = nichrome.sim.sweep_records("lro-netfpga-cpu", {"path-clock": ["125MHz", "250MHz"]})
    example = REPOSITORY / "python/examples/mpi_sweep.py"
    # One process submits, two are workers. Another MPI may be installed beside Debian's openmpi.
    launcher = ["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3"]
    environment = {**os.environ, "MPI4PY_LIBMPI": "libmpi.so.40"}
    words = [*launcher, sys.executable, "-m", "mpi4py.futures", example, tmp_path / "store"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, f"{len(here)} runs\n"), done.stderr
    assert nichrome.sim.records(tmp_path / "store") == here


def test_a_sweep_of_1000_points_gives_the_same_on_hyperqueue(tmp_path):
    frames = [f"{64 + 58 * nth}B" for nth in range(25)]
    costs = [f"{1000 + 100 * nth}ns" for nth in range(20)]
    lists = {"frame": frames, "interrupt-cost": costs, "warm-up": ["0"], "duration": ["1ms"]}
    here = nichrome.sim.sweep_records("lro-netfpga-cpu", lists)
    assert len(here) == 1000
    job = hyperqueue.Job(default_workdir=tmp_path, max_fails=0)
    for task in nichrome.sim.tasks("lro-netfpga-cpu", lists, store=tmp_path / "store"):
        job.program(task, stdout=None, stderr=None)
    with hyperqueue.LocalCluster(server_dir=str(tmp_path / "server")) as cluster:
        for _ in range(2):
            cluster.start_worker(WorkerConfig(cores=1))
        client = cluster.client()
        client.wait_for_jobs([client.submit(job)])
    assert nichrome.sim.records(tmp_path / "store") == here


def test_points_and_runs_are_data_frames():
    assert list(nichrome.sim.run("lro-netfpga-cpu").columns[:3]) == ["series", "x", "value"]
    runs = nichrome.sim.sweep("lro-netfpga-cpu", {"path-clock": ["125MHz"]})
    assert set(runs["parameters.path-clock"]) == {125e6}


def test_no_pipe_of_a_path_stays_open():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        with nichrome.wan.Path():
            pass
        with pytest.raises(nichrome.NichromeError), nichrome.wan.Path(loss="200%"):
            pass
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_a_path_ends_beside_a_process_that_was_forked_within_it():
    with nichrome.wan.Path() as path:
        forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
        forked.start()
    assert forked.is_alive() and path.summary is not None
    forked.kill()
    forked.join()


def test_a_path_within_itself_is_refused_and_goes_on():
    with nichrome.wan.Path() as path:
        with pytest.raises(nichrome.NichromeError, match="running already"):
            path.__enter__()
        assert path.show()
    with path:
        assert path.show()


def test_a_path_is_changed_while_it_is_in_use():
    program = "import socket,time; t=time.monotonic(); socket.create_connection(('{}', 9)).close(); print(time.monotonic()-t)"
    with nichrome.wan.Path(delay="1ms", seed=7) as path:
        path.left.popen([sys.executable, "-m", "http.server", "9"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path.left.wait_for_port(9)

        def connect():
            words = [sys.executable, "-c", program.format(path.left.address)]
            return float(path.right.run(words, check=True, capture_output=True, text=True).stdout)

        # A busy machine sometimes takes longer.
        assert any(connect() < 0.2 for _ in range(10))
        path.set(delay="100ms")
        assert connect() >= 0.2
        assert path.show()["to_right"]["impairments"] == {"delay": "100ms"}
    assert path.summary["seed"] == 7 and path.summary["to_left"]["packets_delivered"] > 0


def test_a_wrong_impairment_is_raised():
    with pytest.raises(nichrome.NichromeError, match="200%"), nichrome.wan.Path(loss="200%"):
        pass


def test_programs_find_the_device():
    found = subprocess.run(["ibv_devinfo"], env=nichrome.rdma.environment(), capture_output=True, text=True, check=True)
    assert "nichrome0" in found.stdout


def test_the_environment_of_a_device_keeps_values_of_any_bytes(monkeypatch):
    monkeypatch.setenv("RETURNS", "a\rb\r\nc")
    monkeypatch.setenv("NOT_UTF_8", os.fsdecode(b"\xff"))
    environment = nichrome.rdma.environment()
    assert environment["RETURNS"] == "a\rb\r\nc" and os.fsencode(environment["NOT_UTF_8"]) == b"\xff"
