//! Objects that verbs refuse instead of following their pointers.

use crate::running::c_program;

#[test]
fn a_handle_that_the_program_overwrote_is_refused() {
    c_program("refusals.c", "handles");
}

#[test]
fn a_queue_whose_pointer_to_its_channel_was_overwritten_leaves_it() {
    c_program("refusals.c", "overwritten channel");
}

#[test]
fn a_pointer_to_no_object_is_refused() {
    c_program("refusals.c", "pointers");
}

#[test]
fn a_request_with_a_pointer_to_no_object_is_refused() {
    c_program("refusals.c", "posted");
}

#[test]
fn a_post_to_a_destroyed_queue_and_a_poll_of_one_are_refused() {
    c_program("refusals.c", "destroyed");
}

#[test]
fn a_queue_without_a_channel_is_not_armed() {
    c_program("refusals.c", "channels");
}

#[test]
fn an_attribute_that_is_not_supported_is_refused() {
    c_program("refusals.c", "attributes");
}
