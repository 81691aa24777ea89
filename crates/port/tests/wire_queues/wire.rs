//! Two connected interfaces, and the frames between them.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nichrome_port::{
    Device, Interface, InterfaceName, Netlink, NetworkNamespace, PacketRing, PacketRingConfig, PacketSocket,
    Settings, WireFrame, WireQueue, clock, gain_network_admin,
};
use nichrome_wire::{EtherType, MacAddr, VirtioNetHeader, VlanTag};

/// The experimental EtherType of the tests' frames.
pub(crate) const OURS: [u8; 2] = [0x88, 0xB5];
pub(crate) const CARD: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// The MAC address of neither interface: received in promiscuous mode only.
pub(crate) const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Creates the user namespace of an unprivileged user. The process must still have one thread.
#[ctor::ctor(unsafe)]
fn become_able_at_start() {
    // If this fails, the test that needs a namespace reports the reason.
    let _ = gain_network_admin();
}

pub(crate) fn name(name: &str) -> InterfaceName {
    name.parse().unwrap()
}

/// Two connected Ethernet interfaces, each in a namespace: the card's and its peer's.
pub(crate) struct Wire {
    pub(crate) card_side: NetworkNamespace,
    pub(crate) peer_side: NetworkNamespace,
    pub(crate) card: Interface,
    pub(crate) peer: Interface,
}

impl Wire {
    pub(crate) fn new(mtu: u32) -> Self {
        gain_network_admin().unwrap();
        let (card_side, peer_side) = (NetworkNamespace::new().unwrap(), NetworkNamespace::new().unwrap());
        card_side
            .run(|| Netlink::open().unwrap().add_veth(name("card0"), name("peer0"), &peer_side).unwrap())
            .unwrap();
        let set_up = |side: &NetworkNamespace, called, mac| {
            side.run(|| {
                let netlink = Netlink::open().unwrap();
                let interface = netlink.interface(name(called)).unwrap();
                let settings = Settings { mac: Some(mac), mtu: Some(mtu), queue_len: None };
                netlink.configure(&interface, settings).unwrap();
                netlink.silence(&interface).unwrap();
                netlink.set_up(&interface).unwrap();
            })
            .unwrap();
        };
        set_up(&card_side, "card0", CARD);
        set_up(&peer_side, "peer0", PEER);
        let running = |side: &NetworkNamespace, called| {
            side.run(|| {
                let netlink = Netlink::open().unwrap();
                netlink.wait_until_running(&netlink.interface(name(called)).unwrap()).unwrap();
                netlink.interface(name(called)).unwrap()
            })
            .unwrap()
        };
        let (card, peer) = (running(&card_side, "card0"), running(&peer_side, "peer0"));
        Self { card_side, peer_side, card, peer }
    }

    pub(crate) fn card_now(&self) -> Interface {
        self.card_side.run(|| Netlink::open().unwrap().interface(self.card.name).unwrap()).unwrap()
    }

    /// Opens a socket on the peer's interface, for sending.
    pub(crate) fn sender(&self) -> PacketSocket {
        self.peer_side.run(|| PacketSocket::open(&self.peer).unwrap()).unwrap()
    }

    /// Opens a ring on the peer's interface, for receiving.
    pub(crate) fn receiver(&self) -> PacketRing {
        self.peer_side.run(|| PacketRing::open(&self.peer, PacketRingConfig::default()).unwrap()).unwrap()
    }

    pub(crate) fn on_card<T>(&self, work: impl FnOnce(&Interface) -> T) -> T {
        self.card_side.run(|| work(&self.card)).unwrap()
    }
}

/// Returns the frame with this number, of `len` bytes.
pub(crate) fn frame(number: u32, len: usize, tags: &[VlanTag]) -> Vec<u8> {
    let mut frame = [OTHER.0, PEER.0].concat();
    for tag in tags {
        frame.extend(tag.tpid.0.to_be_bytes());
        frame.extend(tag.tci.to_be_bytes());
    }
    frame.extend(OURS);
    frame.extend(number.to_be_bytes());
    let start = frame.len();
    frame.resize(len.max(start), 0);
    for (byte, place) in frame[start..].iter_mut().zip(0u32..) {
        *byte = (number.wrapping_mul(31).wrapping_add(place)) as u8;
    }
    frame
}

/// Returns the VLAN tags of the frame with this number.
pub(crate) fn tags(number: u32) -> Vec<VlanTag> {
    let inner = VlanTag { tpid: EtherType::VLAN, tci: 0x6000 | number as u16 & 0xFFF };
    match number % 4 {
        0 => vec![inner],
        1 => vec![VlanTag { tpid: EtherType::QINQ, tci: 7 }, inner],
        _ => vec![],
    }
}

/// Returns true for the tests' frames: the kernel may send frames by itself.
pub(crate) fn is_ours(frame: &[u8]) -> bool {
    frame.get(..12) == Some(&[OTHER.0, PEER.0].concat())
}

/// Sends a frame without pending offloads, as a card would send it.
pub(crate) fn put(sender: &PacketSocket, frame: &[u8]) {
    let bytes = [&[0; VirtioNetHeader::LEN], frame].concat();
    let until = clock::now() + PATIENCE;
    while let Err(error) = sender.send_bytes(&bytes) {
        assert!(clock::now() < until, "{error}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Receives `count` of the tests' frames.
pub(crate) fn take<Q: WireQueue>(queue: &mut Q, count: usize) -> Vec<WireFrame<Q::Buffer>> {
    let until = clock::now() + PATIENCE;
    let (mut frames, mut batch) = (Vec::new(), Vec::new());
    while frames.len() < count {
        assert!(clock::now() < until, "{} of {count} frames; {:?}", frames.len(), queue.stats());
        clock::wait([queue.as_fd()], Some(clock::now() + Duration::from_millis(100))).unwrap();
        queue.receive(&mut batch, 32).unwrap();
        assert!(batch.len() <= 32);
        frames.extend(batch.drain(..).filter(|frame| is_ours(frame.buffer.as_ref())));
    }
    frames
}

pub(crate) fn assert_same<B: AsRef<[u8]>>(received: &[WireFrame<B>], sent: &[Vec<u8>]) {
    assert_eq!(received.len(), sent.len());
    for (number, (received, sent)) in received.iter().zip(sent).enumerate() {
        assert_eq!(received.buffer.as_ref(), sent, "frame {number}");
    }
}
