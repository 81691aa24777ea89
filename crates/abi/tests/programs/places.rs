//! The address of a device that the connection manager opens.

use crate::running::{command, compile, ended};

#[test]
fn a_listener_at_all_addresses_opens_the_device_at_the_loopback_address_of_ipv4() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    compile("places.c", &program);
    for (families, address) in [("all", "::ffff:127.0.0.1"), ("only", "::1")] {
        let child = command(program.to_str().unwrap(), &[families], &[]).spawn().unwrap();
        let output = ended(child, families);
        let [found, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(found.trim_end(), address, "{errors}");
    }
}
