//! IPv4 fragmentation (RFC 791 section 3.2), as routers do it to packets without DF that exceed the next
//! link's MTU.

use crate::{EtherType, EthernetRepr, Fragment, FragmentOffset, HeaderOptions, Ipv4Repr};

/// The copied flag of an option type: the option is repeated in every fragment.
const COPIED: u8 = 0x80;

/// End of option list.
const END: u8 = 0;

/// No-operation option.
const NO_OPERATION: u8 = 1;

/// Fragments the IPv4 packet in `frame` to packets of up to `mtu` bytes, each in a frame with the same link
/// header. Also fragments a fragment further. `None` if the packet fits, has DF set, is not valid IPv4, or
/// `mtu` leaves no room for 8 bytes of payload.
pub fn ipv4_fragments(frame: &[u8], mtu: u16) -> Option<Vec<Vec<u8>>> {
    let (link, packet) = EthernetRepr::parse(frame).ok()?;
    if link.ethertype() != EtherType::IPV4 {
        return None;
    }
    let (whole, payload) = Ipv4Repr::parse(packet).ok()?;
    let fits = whole.header_len() + payload.len() <= usize::from(mtu);
    let size = usize::from(mtu).checked_sub(whole.header_len())? & !7;
    if fits || whole.dont_fragment || size == 0 {
        return None;
    }
    let later_options = copied(&whole.options)?;
    let count = payload.len().div_ceil(size);
    let mut fragments = Vec::with_capacity(count);
    for (nth, piece) in payload.chunks(size).enumerate() {
        let offset = usize::from(whole.fragment.offset.bytes()) + nth * size;
        let fragment = Fragment {
            offset: FragmentOffset::from_bytes(u16::try_from(offset).ok()?)?,
            more_fragments: whole.fragment.more_fragments || nth + 1 < count,
        };
        let options = if nth == 0 { whole.options } else { later_options };
        let mut bytes = Vec::with_capacity(frame.len() - packet.len() + usize::from(mtu));
        link.emit(&mut bytes);
        Ipv4Repr { fragment, options, ..whole }.emit(piece.len(), &mut bytes).ok()?;
        bytes.extend_from_slice(piece);
        fragments.push(bytes);
    }
    Some(fragments)
}

/// Returns the options that all fragments repeat; `None` if the option list is malformed.
fn copied(options: &HeaderOptions) -> Option<HeaderOptions> {
    let mut rest = options.as_bytes();
    let mut copied = Vec::with_capacity(HeaderOptions::MAX_LEN);
    while let [kind, after @ ..] = rest {
        match *kind {
            END => break,
            NO_OPERATION => rest = after,
            kind => {
                let (option, after) = rest.split_at_checked(usize::from(*after.first()?).max(2))?;
                if kind & COPIED != 0 {
                    copied.extend_from_slice(option);
                }
                rest = after;
            }
        }
    }
    HeaderOptions::new(&copied)
}

#[cfg(test)]
mod tests {
    use etherparse::SlicedPacket;
    use etherparse::defrag::IpDefragPool;
    use proptest::prelude::*;

    use super::*;
    use crate::{Network, TcpFrame, TrafficClass, VlanTag};

    fn network(options: &[u8]) -> Network {
        Network::Ipv4 {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            ident: 0xABCD,
            dont_fragment: false,
            ttl: 9,
            tos: TrafficClass(0xB9),
            options: options.to_vec(),
        }
    }

    fn frame(options: &[u8], len: usize) -> Vec<u8> {
        let payload = (0..len).map(|at| at as u8).collect();
        let tags = vec![VlanTag { tpid: EtherType::VLAN, tci: 7 }];
        TcpFrame { network: network(options), payload, tags, ..TcpFrame::default() }.build()
    }

    fn repr(frame: &[u8]) -> (Ipv4Repr, Vec<u8>) {
        let (ip, payload) = Ipv4Repr::parse(EthernetRepr::parse(frame).unwrap().1).unwrap();
        (ip, payload.to_vec())
    }

    proptest! {
        /// etherparse puts the fragments together again, in any order; each fits, also one that is cut twice.
        #[test]
        fn fragments_are_the_packet(mtu in 68..1500u16, then in 68..1500u16, len in 1500..9000usize, turn: usize) {
            let whole = frame(&[], len);
            let cut = |mtu| move |frame: Vec<u8>| ipv4_fragments(&frame, mtu).unwrap_or_else(|| vec![frame]);
            let mut fragments: Vec<_> = cut(mtu)(whole.clone()).into_iter().flat_map(cut(then)).collect();
            prop_assert!(fragments.len() > 1);
            let at = turn % fragments.len();
            fragments.rotate_left(at);
            let (ip, expected) = repr(&whole);
            let mut pool = IpDefragPool::<(), ()>::new();
            let mut together = None;
            for fragment in &fragments {
                prop_assert_eq!(&fragment[..18], &whole[..18]);
                prop_assert!(fragment.len() - 18 <= usize::from(mtu.min(then)));
                let (part, _) = repr(fragment);
                prop_assert_eq!(Ipv4Repr { fragment: ip.fragment, ..part }, ip);
                let sliced = SlicedPacket::from_ethernet(fragment).unwrap();
                together = together.or(pool.process_sliced_packet(&sliced, (), ()).unwrap());
            }
            prop_assert_eq!(together.map(|payload| payload.payload), Some(expected));
        }
    }

    #[test]
    fn only_options_with_the_copied_flag_are_in_later_fragments() {
        let options = [1, 7, 7, 4, 0, 0, 0, 0, 0x94, 4, 0, 0];
        let fragments = ipv4_fragments(&frame(&options, 100), 68).unwrap();
        let options_of = |nth: usize| repr(&fragments[nth]).0.options;
        assert_eq!(options_of(0).as_bytes(), options);
        assert_eq!(options_of(1).as_bytes(), [0x94, 4, 0, 0]);
        assert_eq!(ipv4_fragments(&frame(&[7, 40, 0, 0], 100), 68), None);
    }

    #[test]
    fn packets_that_a_router_does_not_fragment_are_unchanged() {
        let with_df = TcpFrame { payload: vec![0; 1000], ..TcpFrame::default() }.build();
        let v6 = Network::ipv6([1; 16].into(), [2; 16].into());
        let v6 = TcpFrame { network: v6, payload: vec![0; 1000], ..TcpFrame::default() }.build();
        for frame in [with_df, v6, frame(&[], 500), frame(&[], 1000)[..900].to_vec()] {
            assert_eq!(ipv4_fragments(&frame, 576), None);
        }
        assert_eq!(ipv4_fragments(&frame(&[], 1000), 27), None);
    }
}
