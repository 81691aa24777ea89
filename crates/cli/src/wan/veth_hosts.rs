//! Two hosts connected by veth.

use nichrome_port::{Feature, Interface, InterfaceName, Netlink, NetworkNamespace, Settings};

use crate::side::Side;

/// Creates two hosts connected by a veth pair; the sender segments its packets before the veth.
pub(crate) fn veth_hosts(mtu: u32) -> anyhow::Result<[NetworkNamespace; 2]> {
    let namespaces = [NetworkNamespace::new()?, NetworkNamespace::new()?];
    let names: [InterfaceName; 2] = [Side::Left.name().parse()?, Side::Right.name().parse()?];
    namespaces[0].run(|| Netlink::open()?.add_veth(names[0], names[1], &namespaces[1]))??;
    let on_each = |work: &dyn Fn(&Netlink, &Interface, Side) -> anyhow::Result<()>| -> anyhow::Result<()> {
        for ((namespace, name), side) in namespaces.iter().zip(names).zip(Side::BOTH) {
            namespace.run(|| {
                let netlink = Netlink::open()?;
                work(&netlink, &netlink.interface(name)?, side)
            })??;
        }
        Ok(())
    };
    on_each(&|netlink, interface, _| {
        Feature::Tso.disable(interface.name)?;
        Feature::Gro.enable(interface.name)?;
        netlink.configure(interface, Settings { mtu: Some(mtu), ..Settings::default() })?;
        Ok(netlink.set_up(interface)?)
    })?;
    on_each(&|netlink, interface, side| {
        netlink.wait_until_running(interface)?;
        Ok(netlink.add_address(interface, side.ipv4().into(), 24)?)
    })?;
    Ok(namespaces)
}
