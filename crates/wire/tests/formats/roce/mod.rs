//! RoCEv2 against independent implementations: captures of Linux's rxe, tshark, scapy; and properties of any
//! packet.

mod captures;
mod generated;
mod properties;
mod scapy;
mod tshark;
