//! `nichrome rdma devices`: lists the addresses that a device can have on this machine.

use std::io::{self, Write};
use std::net::IpAddr;

use anyhow::Context;
use clap::Args;
use comfy_table::{Table, TableComponent, presets};
use nichrome_port::udp::local_addresses;
use serde::Serialize;

/// List the addresses that a device can have. Each device has one of this machine's IP addresses.
#[derive(Args)]
pub(crate) struct Devices {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// An address for a device.
#[derive(Serialize)]
struct Place {
    interface: String,
    address: IpAddr,
    gid: String,
    option: String,
}

impl Place {
    fn new(interface: &str, address: IpAddr) -> Self {
        let gid = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_string(),
            IpAddr::V6(address) => address.to_string(),
        };
        Self { interface: interface.to_owned(), address, gid, option: format!("--ip {address}") }
    }
}

impl Devices {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let addresses = local_addresses().context("cannot list this machine's addresses")?;
        let places: Vec<_> =
            addresses.iter().map(|(name, address)| Place::new(name.as_str(), *address)).collect();
        let text = if self.json { serde_json::to_string(&places)? } else { table(&places) };
        writeln!(io::stdout(), "{text}").context("cannot print the addresses")
    }
}

fn table(places: &[Place]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    table.set_header(["interface", "address", "GID", "nichrome rdma run"]);
    table.add_row(["lo", "a free address in 127.0.0.0/8", "::ffff:127.x.y.z", "(by default)"]);
    for Place { interface, address, gid, option } in places {
        table.add_row([interface.clone(), address.to_string(), gid.clone(), option.clone()]);
    }
    table.trim_fmt()
}
