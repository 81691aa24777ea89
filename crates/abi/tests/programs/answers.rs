//! Results of verbs that large programs depend on. UCX, NCCL, sideway and google/rdma-unit-test failed on
//! each of them once.

use crate::running::c_program;

#[test]
fn gid_indices_interface_and_speed_of_the_port_are_queried() {
    c_program("answers.c", "port");
}

#[test]
fn a_datagram_names_its_network_header_and_acknowledged_events_are_counted() {
    c_program("answers.c", "datagram");
}

#[test]
fn a_new_queue_pairs_capacities_are_returned() {
    c_program("answers.c", "capacities");
}

#[test]
fn a_misaligned_scatter_gather_list_is_read() {
    c_program("answers.c", "misaligned list");
}

#[test]
fn a_type_2_window_has_the_key_of_its_last_bind() {
    c_program("answers.c", "window");
}

#[test]
fn a_bound_type_2_window_is_not_bound_again() {
    c_program("answers.c", "bound window");
}

#[test]
fn wall_clock_timestamps_never_go_back() {
    c_program("answers.c", "timestamps");
}

#[test]
fn a_window_keeps_its_key_if_no_bind_is_posted() {
    c_program("answers.c", "abandoned bind");
}

#[test]
fn a_queue_pair_returns_the_path_that_it_was_given() {
    c_program("answers.c", "path");
}

#[test]
fn static_rates_are_those_of_the_header() {
    c_program("answers.c", "rates");
}
