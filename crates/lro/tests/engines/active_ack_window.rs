//! Active ACK: the windows in the card's ACKs, and their scale.

use nichrome_lro::ActiveAck;
use nichrome_wire::TcpFlags;

use crate::active_ack::{SCALE, SETTLE, acked, acks_for, card, connected, host, host_syn, peer_syn, syn};
use crate::common::{Change, data};

#[test]
fn the_window_ends_at_the_hosts_right_edge() {
    let mut card = connected();
    let acks = acks_for(&mut card, &[data(100, 1280)]);
    assert_eq!((acks[0].ack, acks[0].window), (1381, 1000 - 1280 / 128));
    let acks = acks_for(&mut card, &[data(1380, 100)]);
    assert_eq!((acks[0].ack, acks[0].window), (1481, 989), "100 bytes cost a whole unit of 128");
}

#[test]
fn nothing_is_acknowledged_beyond_the_right_edge_or_with_a_zero_window() {
    let mut card = connected();
    card.host_sends(&host(100, 10));
    let acks = acks_for(&mut card, &[data(100, 1200)]);
    assert_eq!(acks, [], "80 bytes are left, less than a unit");
    assert_eq!(acks_for(&mut card, &[data(1300, 200)]), [], "beyond");
    card.host_sends(&host(1500, 0));
    assert_eq!(acks_for(&mut card, &[data(1500, 1)]), []);
    card.host_sends(&host(1501, 1000));
    assert_eq!(acked(&acks_for(&mut card, &[data(1501, 99)])), [1600], "it goes on when the window opens");
}

#[test]
fn without_both_syns_there_is_no_window_scale_and_no_active_ack() {
    for seen in ["neither", "the peer's", "the host's"] {
        let mut card = card(ActiveAck::Safe);
        if seen == "the peer's" {
            card.receive(&peer_syn(data(0, 0)));
        }
        if seen == "the host's" {
            card.host_sends(&host_syn(host(0, 1000)));
        }
        card.receive(&data(0, 100)).wait(SETTLE).host_sends(&host(100, 1000));
        assert_eq!(acks_for(&mut card, &[data(100, 100), data(0, 100)]), [], "{seen}");
    }
}

#[test]
fn the_window_is_not_scaled_unless_both_syns_say_so() {
    let without = [2, 4, 5, 180];
    for (peer, host_options) in [(&without[..], &[3, 3, SCALE, 0][..]), (&[3, 3, 9, 0], &without)] {
        let mut card = card(ActiveAck::Safe);
        card.receive(&peer_syn(data(0, 0)).with(|frame| frame.options = peer.to_vec()));
        card.host_sends(&syn(host(0, 1000), TcpFlags::ACK, host_options));
        card.receive(&data(0, 100)).wait(SETTLE).host_sends(&host(100, 1000));
        let acks = acks_for(&mut card, &[data(100, 300)]);
        assert_eq!((acks[0].ack, acks[0].window), (401, 700));
    }
}

#[test]
fn the_window_is_not_scaled_by_more_than_14() {
    let mut card = card(ActiveAck::Safe);
    card.receive(&peer_syn(data(0, 0))).host_sends(&syn(host(0, 9), TcpFlags::ACK, &[3, 3, 15, 0]));
    card.receive(&data(0, 100)).wait(SETTLE).host_sends(&host(100, 3));
    assert_eq!(acks_for(&mut card, &[data(100, 20_000)])[0].window, 1, "29,152 bytes, 16,384 a unit");
}

#[test]
fn the_window_scale_of_an_earlier_connection_does_not_count() {
    let mut card = connected();
    card.receive(&peer_syn(data(0, 0)));
    // The card does not see the host's SYN.
    card.receive(&data(0, 100)).wait(SETTLE).host_sends(&host(100, 1000));
    assert_eq!(acks_for(&mut card, &[data(100, 100)]), []);
}
