//! XRC domains within a process.

use crate::running::c_program;

#[test]
fn domains_of_one_file_are_one_and_targets_are_opened_by_their_number() {
    c_program("xrc.c", "");
}
