"""A sweep on the workers of MPI. Run by: mpiexec -n 3 python -m mpi4py.futures mpi_sweep.py results

One process submits the runs, the others are its workers. All must see the folder.
"""

import sys

from mpi4py.futures import MPIPoolExecutor

import nichrome

if __name__ == "__main__":
    lists = {"path-clock": ["125MHz", "250MHz"]}
    with MPIPoolExecutor() as executor:
        records = nichrome.sim.sweep_records("lro-netfpga-cpu", lists, store=sys.argv[1], executor=executor)
    print(len(records), "runs")
