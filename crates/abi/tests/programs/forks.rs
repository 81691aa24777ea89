//! Forked children that clean up what they have inherited, or outlive their parent.

use crate::connection_manager::{IWARP, STAR};
use crate::running::{THROUGH_MEMORY, c_program_arguments, free_port};

/// Runs a test of `forks.c` at an address that no other test uses.
fn forks(test: &str, address: &str, more: &[(&str, &str)]) {
    let environment = [&[("NICHROME_IP", address)], more].concat();
    c_program_arguments("forks.c", &[test, address, &free_port()], &environment);
}

#[test]
fn an_address_is_free_after_its_process_although_a_forked_child_lives_on() {
    for more in [&[][..], &[THROUGH_MEMORY], &[STAR], &[IWARP]] {
        forks("orphan", "127.77.6.1", more);
    }
}

#[test]
fn a_forked_child_that_leaves_a_multicast_group_leaves_its_parent_in_it() {
    forks("multicast", "127.77.6.2", &[]);
}

#[test]
fn a_forked_child_that_destroys_an_identifier_leaves_its_parent_the_port() {
    forks("port", "127.77.6.3", &[]);
}

#[test]
fn a_forked_child_that_destroys_a_listener_leaves_its_parent_the_peers() {
    forks("listener", "127.77.6.4", &[IWARP]);
}
