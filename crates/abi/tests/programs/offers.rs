//! On each transport, the device announces exactly the operations that the transport carries.

use crate::running::c_program_by;

#[test]
fn each_transport_announces_what_it_carries() {
    for (transport, operations, has_all, groups) in
        [("roce", "1bff", "1", "64"), ("star", "1bff", "1", "64"), ("iwarp", "3f7", "0", "0")]
    {
        let runner = format!("env NICHROME_TRANSPORT={transport} ");
        c_program_by(&runner, "offers.c", &[operations, has_all, groups]);
    }
}
