//! Parent domains, imported objects, and memory paged on demand.

use crate::running::c_program;

#[test]
fn a_parent_domain_is_used_as_its_domain() {
    c_program("domains.c", "parents");
}

#[test]
fn objects_of_another_context_are_imported_by_their_handles() {
    c_program("domains.c", "imports");
}

#[test]
fn memory_paged_on_demand_can_be_registered_before_it_is_mapped() {
    c_program("domains.c", "paging");
}
