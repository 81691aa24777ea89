//! Messages that an end sends and receives.

use nichrome_rdma::{CompletedOperation, Completion, Operation, ReceiveRequest, SendRequest, Status};

use super::end::{End, PATIENCE};

impl End {
    pub(crate) fn send(&self, wr_id: u64, operation: Operation, at: usize, len: usize) {
        let buffers = [self.region.slice(at, len)];
        self.qp.post_send(&SendRequest::new(wr_id, operation, &buffers)).unwrap();
    }

    pub(crate) fn receive(&self, wr_id: u64, at: usize, len: usize) {
        let buffers = [self.region.slice(at, len)];
        self.qp.post_receive(&ReceiveRequest { wr_id, buffers: &buffers }).unwrap();
    }

    /// Fills the region with a pattern of `seed`.
    pub(crate) fn fill(&self, seed: u8) {
        self.region.with(|bytes| {
            bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 7) as u8 ^ seed);
        });
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.region.with(|bytes| bytes[at..at + len].to_vec())
    }

    pub(crate) fn waits_for(&self, wr_id: u64, operation: CompletedOperation) {
        success(self.cq.wait(PATIENCE), wr_id, operation);
    }
}

pub(crate) fn success(completion: Option<Completion>, wr_id: u64, operation: CompletedOperation) {
    let completion = completion.unwrap_or_else(|| panic!("nothing completed"));
    assert_eq!(
        (completion.status, completion.wr_id, completion.operation),
        (Status::Success, wr_id, operation)
    );
}
