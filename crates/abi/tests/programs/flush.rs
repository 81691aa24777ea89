//! FLUSH and ATOMIC WRITE of rdma-core's newer releases.

use crate::running::c_program;

#[test]
fn flush_and_atomic_write_run_and_end_as_on_rxe() {
    c_program("flush.c", "");
}
