//! Computes the terms of a connection from an MPA Request and its Reply (RFC 5044 section 7.1, RFC 6581
//! section 9).

use nichrome_wire::iwarp::{Crc, Enhanced, MpaFlags, MpaFrame, Rtr};

use super::error::SetupError;
use super::identity::Identity;
use super::options::Options;
use crate::iwarp::{Role, RtrMessage, Terms};

/// Returns the terms of the initiator that sent a Request with these options and received `reply`.
pub(super) fn of_initiator(options: &Options, reply: &MpaFrame<'_>) -> Result<Terms, SetupError> {
    let asked = options.enhanced();
    if reply.revision > if asked.is_some() { 2 } else { 1 } {
        return Err(SetupError::Revision(reply.revision));
    }
    // An older peer replies without enhanced connection data: this end's requested options apply.
    let agreed = reply.enhanced.filter(|_| asked.is_some());
    let terms = terms(Role::Initiator, options, &reply.flags, reply.private_data);
    let Some(Enhanced { ird, ord, peer_to_peer, rtr }) = agreed else { return Ok(terms) };
    if let Some(ord) = ord.filter(|ord| *ord > options.ird) {
        return Err(SetupError::Ird { ord, ird: options.ird });
    }
    let rtr = if options.is_peer_to_peer() && peer_to_peer {
        let both = |ours, theirs| ours && theirs;
        let common = Rtr {
            send: both(options.rtr.send, rtr.send),
            write: both(options.rtr.write, rtr.write),
            read: both(options.rtr.read, rtr.read),
        };
        Some(choose(common).ok_or(SetupError::Rtr)?)
    } else {
        None
    };
    Ok(Terms { ord: lower(options.ord, ird), rtr, ..terms })
}

/// Returns the terms of the responder to `request`, and the enhanced connection data of its Reply.
pub(super) fn of_responder(
    options: &Options,
    request: &MpaFrame<'_>,
) -> Result<(Terms, Option<Enhanced>), SetupError> {
    let terms = terms(Role::Responder, options, &request.flags, request.private_data);
    let Some(Enhanced { ird, ord: _, peer_to_peer, rtr }) = request.enhanced else {
        return Ok((terms, None));
    };
    let rtr = if peer_to_peer { Some(choose(rtr).ok_or(SetupError::Rtr)?) } else { None };
    // The ready-to-receive message is one of the READs that the IRD counts.
    let own_ird = if rtr == Some(RtrMessage::Read) { options.ird.max(1) } else { options.ird };
    let terms = Terms { ird: own_ird, ord: lower(options.ord, ird), rtr, ..terms };
    let is_chosen = |message| rtr == Some(message);
    let chosen = Rtr {
        send: is_chosen(RtrMessage::Send),
        write: is_chosen(RtrMessage::Write),
        read: is_chosen(RtrMessage::Read),
    };
    let (ird, ord) = (Some(terms.ird), Some(terms.ord));
    Ok((terms, Some(Enhanced { ird, ord, peer_to_peer, rtr: chosen })))
}

/// Returns the terms that do not depend on enhanced connection data.
fn terms(role: Role, options: &Options, theirs: &MpaFlags, private_data: &[u8]) -> Terms {
    Terms {
        role,
        crc: if options.crc || theirs.crc { Crc::Used } else { Crc::Unused },
        markers_out: theirs.markers,
        markers_in: options.markers,
        ird: options.ird,
        ord: options.ord,
        rtr: None,
        extended: Identity::parse(private_data).is_some(),
        max_ulpdu: options.max_ulpdu,
    }
}

/// Chooses one of the offered ready-to-receive messages, in siw's order of preference.
fn choose(offered: Rtr) -> Option<RtrMessage> {
    let preferred = [
        (offered.write, RtrMessage::Write),
        (offered.read, RtrMessage::Read),
        (offered.send, RtrMessage::Send),
    ];
    preferred.into_iter().find_map(|(is_offered, message)| is_offered.then_some(message))
}

/// Returns this end's ORD: at most the peer's IRD, if that is negotiated.
fn lower(ord: u16, ird: Option<u16>) -> u16 {
    ird.map_or(ord, |ird| ord.min(ird))
}
