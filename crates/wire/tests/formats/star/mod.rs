//! StaR packets: properties of any packet, and checks by independent implementations.

mod broken;
mod generated;
mod properties;
mod wireshark;
mod zlib;
