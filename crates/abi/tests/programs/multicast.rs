//! Multicast between the processes of one machine: on its loopback interface, with an address each, and on
//! another, with one address for all.

use crate::namespaces::in_one_network;
use crate::running::c_program_by;

#[test]
fn every_process_receives_the_datagrams_of_its_groups() {
    c_program_by("", "multicast.c", &["::ffff:239.255.91.1", "ff0e::ffff:239.255.91.2"]);
}

#[test]
fn processes_that_share_an_address_receive_the_datagrams_of_their_groups() {
    for (address, groups) in [
        ("10.9.0.1/24", ["::ffff:239.255.91.1", "ff1e::ffff:239.255.91.2"]),
        ("fd00:9::1/64", ["ff15::9:1", "ff0e::ffff:239.255.91.2"]),
    ] {
        c_program_by(&in_one_network(address, ""), "multicast.c", &groups);
    }
}
