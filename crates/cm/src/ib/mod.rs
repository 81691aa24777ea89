//! Connections by InfiniBand's connection manager: messages on queue pair 1 (IBA volume 1, chapter 12).
//!
//! | state | entered by | left by |
//! |---|---|---|
//! | `ReqSent` | a program connects | REP, REJ, no answer |
//! | `RepReceived` | REP | the program: RTU or REJ |
//! | `ReqReceived` | REQ | the program: REP or REJ; REJ |
//! | `RepSent` | the program accepts | RTU, REJ, DREQ, no answer |
//! | `Established` | RTU sent or received | DREQ sent or received, REJ |
//! | `DreqSent` | the program disconnects, or abandons a connection that the peer may consider established | DREP, DREQ, no answer |
//! | `TimeWait` | the end of a connection | time |
//! | `Refused` | the program rejects a REQ | time |
//! | `SidrReqSent`, `SidrReqReceived`, `SidrAnswered` | the same for datagram services (SIDR) | |
//!
//! Where this differs from Linux (drivers/infiniband/core/cm.c):
//!
//! | case | Linux | here |
//! |---|---|---|
//! | DREQ received | DREP when the program disconnects or destroys | DREP at once |
//! | DREQ before the program has taken the REP | ignored | DREP, and the end of the connection |
//! | a program abandons an established connection | one DREQ | DREQ until it is answered |
//! | a program abandons a connection after its REP | one REJ | REJ, then DREQ until it is answered |
//! | REQ or REP unanswered | the program's event only | also REJ (timeout) to the peer |
//! | repeated REQ after REJ, SIDR_REQ after SIDR_REP | a new request for the program | the same answer, for [`linger`](crate::Config::linger) |
//! | REP for an unknown connection | ignored | REJ (invalid communication identifier) |
//! | address of the sender | not compared | must be the one that the connection began with |

mod active;
mod attributes;
mod close;
mod connection;
mod connections;
mod indication;
mod message;
mod passive;
mod receive;
mod sidr;
mod timeout;

pub(crate) use active::Connect;
pub(crate) use connection::{Accept, State};
pub(crate) use connections::Connections;
pub use connections::Transmit;
pub(crate) use indication::{Indication, Request, SidrRequest};
pub(crate) use sidr::{SidrAnswer, SidrConnect};
