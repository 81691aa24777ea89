//! Messages with any content.

use std::net::{IpAddr, SocketAddr};

use nichrome_wire::cm::{
    Apr, CommId, CommIds, Drep, Dreq, Ece, Gid, Guid, IpHeader, Lap, Mad, Message, Mra, MraMessage, Path,
    PrivateData, Rej, RejMessage, RejectReason, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus,
    TimeExponent, TransactionId, TransportService,
};
use nichrome_wire::rdma::{PKey, PathMtu, Psn, QKey, QpNumber};
use proptest::prelude::*;

/// Random numbers, cut to the width of each field.
struct Fields(u64);

impl Fields {
    fn next(&mut self, bits: u32) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) >> (64 - bits)
    }

    fn byte(&mut self) -> u8 {
        self.next(8) as u8
    }

    fn small(&mut self, bits: u32) -> u8 {
        self.next(bits) as u8
    }

    fn word(&mut self) -> u32 {
        self.next(32) as u32
    }

    fn flag(&mut self) -> bool {
        self.next(1) == 1
    }

    fn data<const N: usize>(&mut self) -> PrivateData<N> {
        PrivateData(std::array::from_fn(|_| self.byte()))
    }

    fn ids(&mut self) -> CommIds {
        CommIds { local: CommId(self.word()), remote: CommId(self.word()) }
    }

    fn qp(&mut self) -> QpNumber {
        QpNumber::new(self.next(24) as u32).unwrap()
    }

    fn psn(&mut self) -> Psn {
        Psn::new(self.next(24) as u32)
    }

    fn time(&mut self) -> TimeExponent {
        TimeExponent::new(self.small(5))
    }

    fn ece(&mut self) -> Ece {
        Ece { vendor: self.next(24) as u32, options: self.word() }
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.next(16) as usize % all.len()]
    }

    fn path(&mut self) -> Path {
        Path {
            local_lid: self.next(16) as u16,
            remote_lid: self.next(16) as u16,
            local_gid: Gid(self.data::<16>().0),
            remote_gid: Gid(self.data::<16>().0),
            flow_label: self.next(20) as u32,
            rate: self.small(6),
            traffic_class: self.byte(),
            hop_limit: self.byte(),
            service_level: self.small(4),
            subnet_local: self.flag(),
            ack_timeout: self.time(),
        }
    }

    fn req(&mut self) -> Req {
        use TransportService::{Rc, Rd, Uc, Xrc};
        Req {
            local: CommId(self.word()),
            ece: self.ece(),
            service: ServiceId(self.next(64)),
            guid: Guid(self.next(64)),
            qkey: QKey(self.word()),
            qp: self.qp(),
            responder_resources: self.byte(),
            initiator_depth: self.byte(),
            remote_timeout: self.time(),
            local_timeout: self.time(),
            transport: self.pick(&[Rc, Uc, Rd, Xrc]),
            flow_control: self.flag(),
            psn: self.psn(),
            retry_count: self.small(3),
            rnr_retry: self.small(3),
            pkey: PKey(self.next(16) as u16),
            path_mtu: self.pick(&PathMtu::ALL),
            max_cm_retries: self.small(4),
            srq: self.flag(),
            primary: self.path(),
            alternate: self.flag().then(|| self.path()),
            private_data: self.data(),
        }
    }

    fn rep(&mut self) -> Rep {
        Rep {
            ids: self.ids(),
            ece: self.ece(),
            qkey: QKey(self.word()),
            qp: self.qp(),
            psn: self.psn(),
            responder_resources: self.byte(),
            initiator_depth: self.byte(),
            ack_delay: self.time(),
            failover: self.small(2),
            flow_control: self.flag(),
            rnr_retry: self.small(3),
            srq: self.flag(),
            guid: Guid(self.next(64)),
            private_data: self.data(),
        }
    }

    fn rej(&mut self) -> Rej {
        Rej {
            ids: self.ids(),
            rejected: self.pick(&[RejMessage::Req, RejMessage::Rep, RejMessage::Other]),
            reason: RejectReason(self.next(16) as u16),
            information_len: self.byte() % 73,
            information: self.data(),
            private_data: self.data(),
        }
    }

    fn sidr_rep(&mut self) -> SidrRep {
        SidrRep {
            request: self.word(),
            status: SidrStatus(self.byte()),
            ece: self.ece(),
            qp: self.qp(),
            service: ServiceId(self.next(64)),
            qkey: QKey(self.word()),
            information_len: self.byte(),
            information: self.data(),
            private_data: self.data(),
        }
    }

    fn message(&mut self, kind: u8) -> Message {
        match kind {
            0 => Message::Req(self.req()),
            1 => Message::Mra(Mra {
                ids: self.ids(),
                received: self.pick(&[MraMessage::Req, MraMessage::Rep, MraMessage::Other]),
                service_timeout: self.time(),
                private_data: self.data(),
            }),
            2 => Message::Rej(self.rej()),
            3 => Message::Rep(self.rep()),
            4 => Message::Rtu(Rtu { ids: self.ids(), private_data: self.data() }),
            5 => Message::Dreq(Dreq { ids: self.ids(), remote_qp: self.qp(), private_data: self.data() }),
            6 => Message::Drep(Drep { ids: self.ids(), private_data: self.data() }),
            7 => Message::SidrReq(SidrReq {
                request: self.word(),
                pkey: PKey(self.next(16) as u16),
                service: ServiceId(self.next(64)),
                private_data: self.data(),
            }),
            8 => Message::SidrRep(self.sidr_rep()),
            9 => Message::Lap(Lap { ids: self.ids(), rest: self.data() }),
            _ => Message::Apr(Apr { ids: self.ids(), rest: self.data() }),
        }
    }
}

/// Number of kinds of messages.
pub(crate) const KINDS: u8 = 11;

/// The message of this kind with the fields of a seed.
pub(crate) fn message(kind: u8, seed: u64) -> Message {
    Fields(seed).message(kind)
}

pub(crate) fn mad() -> impl Strategy<Value = Mad> {
    (0..KINDS, any::<u64>(), any::<u64>()).prop_map(|(kind, seed, transaction)| Mad {
        transaction: TransactionId(transaction),
        message: message(kind, seed),
    })
}

pub(crate) fn ip_header() -> impl Strategy<Value = IpHeader> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(one, other)| [IpAddr::from(one), IpAddr::from(other)]);
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(one, other)| [IpAddr::from(one), IpAddr::from(other)]);
    (prop_oneof![v4, v6], any::<u16>()).prop_map(|([source, destination], port)| IpHeader {
        source: SocketAddr::new(source, port),
        destination,
    })
}
