//! Management datagrams, which a connection manager sends and receives by queue pair 1.

use super::Device;
use crate::core::memory::Memory;
use crate::roce::ManagementDatagram;

impl<M: Memory> Device<M> {
    /// Accepts management datagrams from now on, up to 1,024 that the driver has not taken.
    pub fn open_management(&mut self) {
        self.transports.roce.general_services.open();
    }

    /// Returns true if a management datagram was received that the driver has not taken.
    #[inline]
    pub fn has_management(&self) -> bool {
        self.transports.roce.general_services.has_received()
    }

    /// Takes the oldest received management datagram.
    #[inline]
    pub fn poll_management(&mut self) -> Option<ManagementDatagram> {
        self.transports.roce.general_services.take_received()
    }

    /// Sends a management datagram from one of the device's addresses. Dropped and counted if 1,024 wait
    /// already.
    pub fn send_management(&mut self, datagram: &ManagementDatagram) {
        self.transports.roce.send_management(datagram, &mut self.verbs);
    }
}
